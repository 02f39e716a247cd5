"""Find the faults of a master's form, a sentence each; a part with any is not built.

The faults of its prose: prose.py, of its evidence: evidence.py.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from course.checks import exercises
from course.notebook.cells import FLAGS, HIDDEN, VISIBLE, Cell, read_cells
from course.notebook.registry import Part, Unit, load_unit, package_of, solutions_folder
from course.notebook.statements import (
    EXERCISE_TITLE,
    GOALS,
    MINUTES_LINE,
    NEEDS,
    QUESTION,
    TITLE_LINE,
    TaskFacts,
    part_header,
    task_facts,
)
from course.system.folders import ROOT
from instructor.authoring.evidence import lint_evidence, repeated_sentences
from instructor.authoring.prose import lint_prose, runs_of

FACTS_EXAMPLE = (
    "**Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 6 (or **Extra**)"
)
PART_MINUTES_MAX = 150  # in all
UNIT_CORE_MINUTES_MAX = 95  # what a session of two hours leaves for work
SESSIONS_MAX = 2  # of a unit
HINTS_MIN = 2
HEADER = (  # what the first cell of a part has
    ("its title, # Fast loading, part 1: A file and a fast batch", TITLE_LINE),
    ("its question, **How fast can a batch get?**", QUESTION),
    ("**You will be able to** with a list", GOALS),
    ("**Minutes** 55 core · 110 in all", MINUTES_LINE),
    ("**Needs** nothing (or what it needs)", NEEDS),
)

IMPORTS_CHECK = re.compile(r"^from course\.checks import \w+ as check$", re.M)

Forbids = Mapping[str, tuple[str, ...]]  # {exercise: dotted names that its check forbids}


def lint_part(unit: str, part: str, cells: list[Cell], forbids: Forbids) -> list[str]:
    """The faults of a part's source notebook.

    Args:
        forbids: what the text of a task has to state.
    """
    header = cells[0].source if cells else ""
    facts = _facts_of(cells)
    faults = lint_cells(cells, forbids)
    faults += _header(part, header)
    for stated in facts:
        if not stated.kind:
            faults.append(f"it needs the line {FACTS_EXAMPLE}: {stated.line}")
    faults += _minutes(header, facts)
    faults += _checks_import(unit, cells)
    if not cells:
        return faults
    executed = solutions_folder() / unit / f"{part}.ipynb"
    faults += lint_prose(cells, executed)
    faults += lint_evidence(unit, cells, runs_of(executed))
    return faults


def lint_unit(unit: str) -> list[str]:
    """The faults that show only when all parts of `unit` are read together."""
    loaded = load_unit(unit)
    faults = [*_names(unit, loaded.parts), *_files(unit, loaded.parts)]
    for part in loaded.parts:
        numbers = [exercise.number for exercise in part.exercises]
        if numbers != list(range(1, len(numbers) + 1)):
            faults.append(
                f"{part.name}: its exercises are numbered {numbers}, not from 1 without a gap"
            )
    titles = set()
    for part in loaded.parts:
        header = part_header(read_cells(part.path)[0].source)
        if header.number is not None:
            titles.add(header.unit_title)
    if len(titles) > 1:
        faults.append(f"{unit}: its parts give it different titles: {', '.join(sorted(titles))}")
    return [*faults, *_sessions(loaded), *repeated_sentences(unit)]


def _sessions(unit: Unit) -> Iterator[str]:
    """Faults of the sessions of a unit: too many, or one with more core than fits into it."""
    for session, minutes in unit.session_minutes.items():
        if not 1 <= session <= SESSIONS_MAX:
            yield f"{unit.name}: a part is in session {session}; a unit has at most {SESSIONS_MAX}"
        if minutes > UNIT_CORE_MINUTES_MAX:
            yield (
                f"{unit.name}: the core of session {session} takes {minutes} minutes, "
                f"more than {UNIT_CORE_MINUTES_MAX}"
            )


def _checks_import(unit: str, cells: list[Cell]) -> Iterator[str]:
    """The fault of a part whose grade cells call `check`, which no cell above them imports."""
    for cell in cells:
        if cell.kind == "code" and IMPORTS_CHECK.search(cell.source):
            return
        if "test" in cell.marks:
            wanted = f"from course.checks import {package_of(unit)} as check"
            yield f'no cell before its first grade cell, such as # %% locked="setup", says {wanted}'
            return


def forbidden(unit: str) -> dict[str, tuple[str, ...]]:
    """{exercise: dotted names that its answer may not use} of the checks of `unit`."""
    return {exercise.name: exercise.forbids for exercise in exercises(unit)}


def lint_marks(number: int, marks: Mapping[str, Any]) -> list[str]:
    """The faults of the marks on the line of cell `number`."""
    known = {*FLAGS, "points", "tags"}
    listed = ", ".join(sorted(known))
    faults = []
    for name in marks.keys() - known - {"lines_to_next_cell"}:  # jupytext's own
        faults.append(f"cell {number}: unknown mark {name!r}; there are {listed}")
    for role in marks.keys() & FLAGS.keys():
        if not (isinstance(marks[role], str) and re.fullmatch(r"[\w-]+", marks[role])):
            faults.append(
                f"cell {number}: {role}={marks[role]!r} must be a name in quotes, "
                "of letters, digits, _ and -"
            )
    if not isinstance(marks.get("points", 1), int):
        faults.append(f"cell {number}: points={marks['points']!r} must be a whole number")
    return faults


def lint_cells(cells: list[Cell], forbids: Forbids) -> list[str]:
    """The faults of the cells of a source notebook and of the texts of its tasks."""
    if not cells:
        return ["there is no cell in it"]
    faults = []
    times = Counter(cell.grade_id for cell in cells)
    for name in sorted(times.keys() - {None}):
        if times[name] > 1:
            faults.append(f"{name}: more than one cell has this id")
    for number, cell in enumerate(cells):
        faults += _cell(number, cell)
        if cell.role == "answer":
            before = cells[number - 1] if number else None
            text = before.source if before and before.kind == "markdown" else ""
            name = cell.exercise
            faults += _tests(name, cells[number + 1 : number + 3], text)
            faults += [f"{name}: {fault}" for fault in _task(text)]
            faults += _not_allowed(name, text, forbids.get(name, ()))
    return faults


def _cell(number: int, cell: Cell) -> Iterator[str]:
    name = cell.grade_id
    source = cell.source
    if cell.is_graded and not cell.points > 0:
        yield f"{name}: a graded cell needs points above 0"
    if cell.takes_answer and not ("BEGIN SOLUTION" in source and "END SOLUTION" in source):
        yield (
            f"{name}: no ### BEGIN SOLUTION ... ### END SOLUTION, "
            "so the learner would get the answer"
        )
    if "test" in cell.marks:
        yield from _grade_cell(name, source)
    if "BEGIN HIDDEN TESTS" in source and not (name or "").endswith(HIDDEN):
        yield f"cell {number}: a hidden test is outside a grade cell called <exercise>-hidden"
    if "BEGIN SOLUTION" in source and not cell.takes_answer:
        yield f"cell {number}: a solution is in a cell without the mark solution or answer"


def _grade_cell(name: str, source: str) -> Iterator[str]:
    """The first fault of a grade cell, if it has one."""
    lines = source.strip().splitlines()
    starts = lines[:1] == ["### BEGIN HIDDEN TESTS"]
    is_hidden_test = starts and lines[-1] == "### END HIDDEN TESTS"
    if not _is_one_check(source):
        yield (
            f"{name}: a grade cell is one call, check.<exercise>(<answer>), "
            "and ends in no other expression"
        )
    elif name.endswith(HIDDEN) and not (is_hidden_test and "seed=" in source):
        yield (
            f"{name}: needs ### BEGIN HIDDEN TESTS, a call with seed=..., "
            "### END HIDDEN TESTS, and nothing else"
        )
    elif not name.endswith(HIDDEN) and "seed=" in source:
        yield f"{name}: a seed in a visible cell is known to learners; leave it out"


def _is_one_check(source):
    """Whether a cell is one call of a check, and nothing else."""
    body = ast.parse(source).body
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        return False
    return isinstance(body[0].value, ast.Call) and ast.unparse(body[0]).startswith("check.")


def _tests(name: str, after: list[Cell], text: str) -> Iterator[str]:
    """Faults of the grade cells of exercise `name`, and of the points that its text promises."""
    if [cell.grade_id for cell in after] != [name + VISIBLE, name + HIDDEN]:
        yield f"{name}: the next two cells must be the tests {name}-visible and {name}-hidden"
    points = sum(cell.points for cell in after)
    facts = task_facts(text)
    if facts and facts[0].points != points:
        yield f"{name}: the text says {facts[0].points} points, its grade cells give {points}"


def _task(text: str) -> Iterator[str]:
    """Faults of the form of a task's text."""
    if not task_facts(text):
        yield "the text before it needs the line " + FACTS_EXAMPLE
    if not EXERCISE_TITLE.search(text):
        yield "the text before it needs a heading like ### Exercise 1 · What to write"
    if "**Convention**" not in text and "**Must**" not in text:
        yield "the text before it needs a paragraph that starts with **Must** or **Convention**"
    if "**Source**" not in text:
        yield "the text before it needs a paragraph that starts with **Source**"
    if text.count("<details>") < HINTS_MIN:
        yield "needs at least two hints in <details>, the first a question"


def _not_allowed(name: str, text: str, forbids: tuple[str, ...]) -> Iterator[str]:
    """Differences between what a task says is not allowed and what its check forbids."""
    found = re.search(r"^\*\*Not allowed\*\* .*?(?=\n\n|\Z)", text, re.M | re.S)
    paragraph = found[0] if found else ""
    says_any_collective = "Any collective" in paragraph
    enforced = set()
    for path in forbids:
        if not (says_any_collective and path.startswith("torch.distributed.")):
            enforced.add(_last(path))
    stated = {*map(_last, re.findall(r"`([\w.]+)`", paragraph))}
    for missing in sorted(enforced - stated):
        yield (
            f"{name}: its check forbids {missing}; "
            f"the paragraph **Not allowed** must say `{missing}`"
        )
    for idle in sorted(stated - enforced):
        yield (
            f"{name}: the paragraph **Not allowed** says `{idle}`, which its check does not forbid"
        )


def _last(dotted):
    return dotted.rpartition(".")[2]


def _header(part: str, text: str) -> Iterator[str]:
    """Faults of the first cell of a part."""
    for what, pattern in HEADER:
        if not pattern.search(text):
            yield f"its first cell needs {what}"
    number = part_header(text).number
    if number is not None and str(number) != part.partition("_")[0]:
        yield f"its title says part {number}, its file is called {part}.py"


def _facts_of(cells: list[Cell]) -> list[TaskFacts]:
    """The first facts in each text that has any."""
    facts = []
    for cell in cells:
        if cell.kind == "markdown":
            facts += task_facts(cell.source)[:1]
    return facts


def _minutes(header: str, facts: list[TaskFacts]) -> Iterator[str]:
    """Faults of the minutes of a part.

    They are too many, or fewer than its core and its exercises take.
    """
    stated = part_header(header)
    if stated.core_minutes is None or stated.all_minutes is None:
        return
    core = 0
    extra = 0
    for task in facts:
        if task.is_core:
            core += task.minutes
        else:
            extra += task.minutes
    in_all = max(stated.core_minutes, core) + extra
    if stated.core_minutes < core:
        yield (
            f"its header says {stated.core_minutes} minutes for the core, "
            f"its core exercises take {core}"
        )
    if stated.all_minutes < in_all:
        yield (
            f"its header says {stated.all_minutes} minutes in all, "
            f"its core and its extra exercises take {in_all}"
        )
    if stated.all_minutes > PART_MINUTES_MAX:
        yield (
            f"it takes {stated.all_minutes} minutes, more than {PART_MINUTES_MAX}: "
            "cut it into two parts"
        )


def _names(unit: str, parts: tuple[Part, ...]) -> Iterator[str]:
    """Faults of names: one twice in a unit, an exercise without a check, a check of no exercise."""
    parts_of_id = {}
    for part in parts:
        for cell in read_cells(part.path):
            if cell.is_graded or cell.takes_answer:
                parts_of_id.setdefault(cell.grade_id, []).append(part.name)
    for name, places in parts_of_id.items():
        if len(places) > 1:
            yield f"{name}: this id is in {' and '.join(places)}; a unit has every name once"
    folder = f"course/checks/{package_of(unit)}"
    checked = {exercise.name for exercise in exercises(unit)}
    asked = _exercise_names(parts)
    for name in sorted(checked - asked):
        yield f"{name}: {folder}/{name}.py holds its check, but no part asks it"
    for name in sorted(asked - checked):
        yield (
            f"{name}: no check; it belongs in {folder}/{name}.py, in a function of that name, "
            f"which {folder}/__init__.py imports"
        )


def _files(unit: str, parts: tuple[Part, ...]) -> Iterator[str]:
    """Faults of the files of a unit: known mistakes that are not there, a TODO that is left."""
    names = sorted(_exercise_names(parts))
    answers = solutions_folder() / unit / "answers"
    for name in names:
        if not (answers / f"{name}.py").is_file():
            yield f"{name}: no known mistakes; they belong in solutions/{unit}/answers/{name}.py"
    for part in parts:
        yield from _todos(part.path)
    for name in names:
        yield from _todos(ROOT / "course" / "checks" / package_of(unit) / f"{name}.py")
        yield from _todos(answers / f"{name}.py")


def _todos(path: Path) -> Iterator[str]:
    """A fault for each TODO in the file at `path`, which need not exist."""
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            if "TODO:" in line:
                yield f"{path.parent.name}/{path.name}: {line.strip('#> ')}"


def _exercise_names(parts):
    names = set()
    for part in parts:
        names |= {exercise.name for exercise in part.exercises}
    return names
