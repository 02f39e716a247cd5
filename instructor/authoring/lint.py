"""Find the faults of a master's form, a sentence each; build.py refuses a part that has any. Its
prose: prose.py.
"""

import ast
import importlib
import importlib.util
import re

from course.engine.exercise import Exercise
from course.notebook.registry import (
    EXERCISE_TITLE,
    FACTS_LINE,
    GOALS,
    MINUTES_LINE,
    NEEDS,
    QUESTION,
    TITLE_LINE,
    Part,
    load_unit,
    read_cells,
    solutions_folder,
)
from course.system.folders import ROOT
from instructor.authoring.prose import lint_prose

FACTS_EXAMPLE = (
    "**Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 6 (or **Extra**)"
)
ROLES = ("locked", "solution", "test", "answer")
MOST_MINUTES = 150  # of a part in all
MOST_CORE = 120  # of a unit: one session


def lint_part(unit: str, part: str, nb, forbids: dict) -> list[str]:
    """The faults of a part's source notebook.

    Args:
        forbids: {exercise: dotted names that its check forbids}, which the text has to state.
    """
    texts = [cell.source for cell in nb.cells if cell.cell_type == "markdown"]
    faults = lint_cells(nb, forbids) + _header(part, nb.cells[0].source if nb.cells else "")
    faults += [
        f"it needs the line {FACTS_EXAMPLE}: {match[0]}"
        for match in _facts(texts)
        if not match["kind"]
    ]
    prose = lint_prose(nb, solutions_folder() / unit / f"{part}.ipynb") if nb.cells else []
    return [*faults, *_minutes(texts), *prose]


def lint_unit(unit: str) -> list[str]:
    """The faults that show only when all parts of `unit` are read together."""
    loaded = load_unit(unit)
    faults = [*_names(unit, loaded.parts)]
    for part in loaded.parts:
        numbers = [exercise.number for exercise in part.exercises]
        if numbers != list(range(1, len(numbers) + 1)):
            faults.append(
                f"{part.name}: its exercises are numbered {numbers}, not from 1 without a gap"
            )
    titles = {
        match["unit"]
        for part in loaded.parts
        if (match := TITLE_LINE.search(read_cells(part.path)[0].source))
    }
    if len(titles) > 1:
        faults.append(f"{unit}: its parts give it different titles: {', '.join(sorted(titles))}")
    if loaded.core_minutes > MOST_CORE:
        faults.append(
            f"{unit}: its core takes {loaded.core_minutes} minutes, more than {MOST_CORE}"
        )
    return faults


def forbidden(unit: str) -> dict[str, tuple[str, ...]]:
    """{exercise: dotted names that its answer may not use} of the checks of `unit`."""
    return {exercise.name: exercise.forbids for exercise in exercises(unit)}


def exercises(unit: str) -> list[Exercise]:
    """The exercises that have a check in course/checks/<unit>/."""
    checks = f"course.checks.{unit[3:]}"
    if importlib.util.find_spec(checks) is None:
        return []
    return [
        found
        for found in vars(importlib.import_module(checks)).values()
        if isinstance(found, Exercise)
    ]


def lint_marks(number: int, marks: dict) -> list[str]:
    """The faults of the marks on the line of cell `number`."""
    known = {*ROLES, "points", "tags"}
    unknown = marks.keys() - known - {"lines_to_next_cell"}  # jupytext's own
    faults = [
        f"cell {number}: unknown mark {name!r}; there are {', '.join(sorted(known))}"
        for name in unknown
    ]
    for role in marks.keys() & {*ROLES}:
        if not (isinstance(marks[role], str) and re.fullmatch(r"[\w-]+", marks[role])):
            faults.append(
                f"cell {number}: {role}={marks[role]!r} must be a name in quotes, of letters, digits, _ and -"
            )
    if not isinstance(marks.get("points", 1), int):
        faults.append(f"cell {number}: points={marks['points']!r} must be a whole number")
    return faults


def lint_cells(nb, forbids: dict) -> list[str]:
    """The faults of the cells of a source notebook and of the texts of its tasks."""
    ids = [grade_id(cell) for cell in nb.cells if grade_id(cell)]
    faults = [
        f"{name}: more than one cell has this id"
        for name in sorted({i for i in ids if ids.count(i) > 1})
    ]
    for number, cell in enumerate(nb.cells):
        marks = cell.metadata.get("nbgrader", {})
        name = marks.get("grade_id")
        faults += _cell(number, name, marks, cell.source)
        if marks.get("solution") and not marks.get("grade"):
            before = nb.cells[number - 1] if number else None
            text = before.source if before and before.cell_type == "markdown" else ""
            faults += _tests(name, nb.cells[number + 1 : number + 3], text)
            faults += [f"{name}: {fault}" for fault in _task(text)]
            faults += _not_allowed(name, text, forbids.get(name, ()))
    return faults or ([] if nb.cells else ["there is no cell in it"])


def grade_id(cell) -> str | None:
    """The cell's nbgrader id, if it has one."""
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def _cell(number, name, marks, source):
    if marks.get("grade") and not marks.get("points", 0) > 0:
        yield f"{name}: a graded cell needs points above 0"
    if marks.get("solution") and not ("BEGIN SOLUTION" in source and "END SOLUTION" in source):
        yield f"{name}: no ### BEGIN SOLUTION ... ### END SOLUTION, so the learner would get the answer"
    if marks.get("grade") and not marks.get("solution"):
        yield from _grade_cell(name, source)
    if "BEGIN HIDDEN TESTS" in source and not (name or "").endswith("-hidden"):
        yield f"cell {number}: a hidden test is outside a grade cell called <exercise>-hidden"
    if "BEGIN SOLUTION" in source and not marks.get("solution"):
        yield f"cell {number}: a solution is in a cell without the mark solution or answer"


def _grade_cell(name, source):
    body = ast.parse(source).body
    calls = [
        node for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]
    if len(body) != 1 or len(calls) != 1 or not ast.unparse(body[0]).startswith("check."):
        return [
            f"{name}: a grade cell is one call, check.<exercise>(<answer>), and ends in no other expression"
        ]
    lines = source.strip().splitlines()
    hidden = (lines[0], lines[-1]) == ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
    if name.endswith("-hidden") and not (hidden and "seed=" in source):
        return [
            f"{name}: needs ### BEGIN HIDDEN TESTS, a call with seed=..., ### END HIDDEN TESTS, and nothing else"
        ]
    if not name.endswith("-hidden") and "seed=" in source:
        return [f"{name}: a seed in a visible cell is known to learners; leave it out"]
    return []


def _tests(name, after, text):
    """Faults of the grade cells of exercise `name`, and of the points that its text promises."""
    if [grade_id(cell) for cell in after] != [f"{name}-visible", f"{name}-hidden"]:
        yield f"{name}: the next two cells must be the tests {name}-visible and {name}-hidden"
    points = sum(cell.metadata.get("nbgrader", {}).get("points", 0) for cell in after)
    facts = FACTS_LINE.search(text)
    if facts and int(facts["points"]) != points:
        yield f"{name}: the text says {facts['points']} points, its grade cells give {points}"


def _task(text):
    """Faults of the form of a task's text."""
    facts = FACTS_LINE.search(text)
    if not facts:
        yield "the text before it needs the line " + FACTS_EXAMPLE
    if not EXERCISE_TITLE.search(text):
        yield "the text before it needs a heading like ### Exercise 1 · What to write"
    if "**Convention**" not in text and "**Must**" not in text:
        yield "the text before it needs a paragraph that starts with **Must** or **Convention**"
    if "**Source**" not in text:
        yield "the text before it needs a paragraph that starts with **Source**"
    if text.count("<details>") < 2:
        yield "needs at least two hints in <details>, the first a question"


def _not_allowed(name, text, forbids):
    paragraph = re.search(r"^\*\*Not allowed\*\* .*?(?=\n\n|\Z)", text, re.M | re.S)
    quoted = re.findall(r"`([\w.]+)`", paragraph[0]) if paragraph else []
    if paragraph and "Any collective" in paragraph[0]:
        forbids = {path for path in forbids if not path.startswith("torch.distributed.")}
    stated, enforced = ({path.split(".")[-1] for path in paths} for paths in (quoted, forbids))
    for missing in sorted(enforced - stated):
        yield f"{name}: its check forbids {missing}; the paragraph **Not allowed** must say `{missing}`"
    for idle in sorted(stated - enforced):
        yield f"{name}: the paragraph **Not allowed** says `{idle}`, which its check does not forbid"


HEADER = (  # what the first cell of a part has
    ("its title, # Fast loading, part 1: A file and a fast batch", TITLE_LINE),
    ("its question, **How fast can a batch get?**", QUESTION),
    ("**You will be able to** with a list", GOALS),
    ("**Minutes** 55 core · 110 in all", MINUTES_LINE),
    ("**Needs** nothing (or what it needs)", NEEDS),
)


def _header(part, text):
    matches = [pattern.search(text) for _, pattern in HEADER]
    faults = [
        f"its first cell needs {what}"
        for (what, _), match in zip(HEADER, matches, strict=True)
        if not match
    ]
    title = matches[0]
    if title and title["number"] != part.partition("_")[0]:
        faults.append(f"its title says part {title['number']}, its file is called {part}.py")
    return faults


def _facts(texts):
    return [match for text in texts if (match := FACTS_LINE.search(text))]


def _minutes(texts):
    """Faults: minutes of a part that are too many, or less than what its core and its exercises
    take.
    """
    stated = MINUTES_LINE.search(texts[0]) if texts else None
    if not stated:
        return
    facts = _facts(texts)
    core = sum(int(match["minutes"]) for match in facts if match["kind"] != "Extra")
    extra = sum(int(match["minutes"]) for match in facts) - core
    if int(stated["core"]) < core:
        yield f"its header says {stated['core']} minutes for the core, its core exercises take {core}"
    if int(stated["all"]) < (least := max(int(stated["core"]), core) + extra):
        yield f"its header says {stated['all']} minutes in all, its core and its extra exercises take {least}"
    if int(stated["all"]) > MOST_MINUTES:
        yield f"it takes {stated['all']} minutes, more than {MOST_MINUTES}: cut it into two parts"


def _names(unit, parts: tuple[Part, ...]):
    """Faults of names: used twice in a unit, an exercise that is not asked or lacks one of its
    files.
    """
    asked_in = {}
    for part in parts:
        for cell in read_cells(part.path):
            for name in (
                cell.marks[role] for role in ("solution", "test", "answer") if role in cell.marks
            ):
                asked_in.setdefault(name, []).append(part.name)
    for name, places in asked_in.items():
        if len(places) > 1:
            yield f"{name}: this id is in {' and '.join(places)}; a unit has every name once"
    checked = {exercise.name for exercise in exercises(unit)}
    names = {exercise.name for part in parts for exercise in part.exercises}
    for name in sorted(checked - names):
        yield f"{name}: course/checks/{unit[3:]}/{name}.py holds its check, but no part asks it"
    for name in sorted(names - checked):
        yield f"{name}: no check; it belongs in course/checks/{unit[3:]}/{name}.py, in a function of that name"
    for name in sorted(names):
        if not (solutions_folder() / unit / "answers" / f"{name}.py").is_file():
            yield f"{name}: no known mistakes; they belong in solutions/{unit}/answers/{name}.py"
    folders = (ROOT / "course" / "checks" / unit[3:], solutions_folder() / unit / "answers")
    for path in [part.path for part in parts] + [
        folder / f"{name}.py" for name in sorted(names) for folder in folders
    ]:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        yield from (
            f"{path.parent.name}/{path.name}: {line.strip('#> ')}"
            for line in lines
            if "TODO:" in line
        )
