"""Which units, parts and exercises there are, with their points, minutes and needs.

Everything is read from the texts that learners see, so that nothing is written twice: from the
masters where they are, else (in a class's folder) from the notebooks. Standard library only, so
that `course progress` starts at once. Sizes of the experiments are in device.py, answers and checks
in checks/.
"""

import difflib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from course.errors import CourseError
from course.system.folders import ROOT

TITLE_LINE = re.compile(r"^# (?P<unit>.+?), part (?P<number>\d+): (?P<part>.+)$", re.M)
ANY_TITLE = re.compile(r"^# (?P<unit>.+)$", re.M)
QUESTION = re.compile(r"^\*\*(?P<question>[^*]+\?)\*\*$", re.M)
GOALS = re.compile(
    r"^\*\*You will be able to\*\*\n\n?(?P<goals>[-*] .*?)(?=\n\n\S|\Z)", re.M | re.S
)
MINUTES_LINE = re.compile(r"^\*\*Minutes\*\* (?P<core>\d+) core · (?P<all>\d+) in all$", re.M)
NEEDS = re.compile(r"^\*\*Needs\*\* (?P<needs>.+?)(?=\n\n|\Z)", re.M | re.S)
EXERCISE_TITLE = re.compile(r"^#{2,3} Exercise (?P<number>\d+)[a-z]? · (?P<title>.+)$", re.M)
FACTS_LINE = re.compile(
    r"^\*\*Points\*\* (?P<points>\d+) · (\*\*(?P<kind>Core|Extra)\*\* · )?\*\*Difficulty\*\* (?P<difficulty>[●○]{3})"
    r" · \*\*Minutes\*\* (?P<minutes>\d+) · \*\*Lines\*\* (?P<lines>\d+)$",
    re.M,
)
MOST_NAMES = 12  # that a sentence about a wrong one lists
_CELL = re.compile(r"^# %%(?P<head>.*)$", re.M)
_MARK = re.compile(r'(\w+)="([^"]*)"')


def solutions_folder():
    """The folder of masters: COURSE_SOLUTIONS, else `solutions/` beside the package."""
    return Path(os.environ.get("COURSE_SOLUTIONS") or ROOT / "solutions")


def has_solutions():
    """True if expected facts come from reference answers: masters are here, or COURSE_SOLUTIONS
    says where.
    """
    return bool(os.environ.get("COURSE_SOLUTIONS")) or any(
        solutions_folder().glob("[0-9][0-9]_*/[0-9]_*.py")
    )


@dataclass(frozen=True)
class ExerciseFacts:
    """What the text of a task says about it."""

    unit: str
    part: str
    # also of its probe, course/checks/<unit>/<name>.py, and of solutions/<unit>/answers/<name>.py
    name: str
    number: int  # within its part, from 1
    title: str
    points: int
    core: bool  # else it is extra
    minutes: int  # for somebody new to the topic
    lines: int  # of the reference answer
    asked: bool = True  # False where a class's release gives it solved


@dataclass(frozen=True)
class Part:
    """One notebook: a question, what it takes, and its exercises in order."""

    unit: str
    name: str  # e.g. "1_a_file_and_a_fast_batch", of the master and of the notebook
    number: int
    title: str
    question: str
    goals: tuple[str, ...]
    core_minutes: int  # reading, core exercises and experiments
    all_minutes: int
    needs: str
    exercises: tuple[ExerciseFacts, ...]
    path: Path  # what this was read from: the master or the learner's notebook

    @property
    def points(self) -> int:
        return sum(exercise.points for exercise in self.exercises)


@dataclass(frozen=True)
class Unit:
    """One question of the course, in parts."""

    name: str  # e.g. "04_fast_loading"
    title: str
    parts: tuple[Part, ...]

    @property
    def exercises(self) -> tuple[ExerciseFacts, ...]:
        return tuple(exercise for part in self.parts for exercise in part.exercises)

    @property
    def points(self) -> int:
        return sum(part.points for part in self.parts)

    @property
    def core_minutes(self) -> int:
        return sum(part.core_minutes for part in self.parts)

    @property
    def all_minutes(self) -> int:
        return sum(part.all_minutes for part in self.parts)


@dataclass(frozen=True)
class Cell:
    """A cell of a master or a notebook: its text, its marks in the words of a master, e.g.
    {"solution": "gather"}.
    """

    kind: str  # "markdown" or "code"
    marks: dict[str, str]
    source: str


def units() -> list[str]:
    """The names of all units, in order.  Raises: CourseError if there are none."""
    folder, pattern = _folder_and_pattern()
    names = sorted(
        {path.parent.name for path in folder.glob(f"[0-9][0-9]_*/{pattern}") if _is_part(path)}
    )
    if not names:
        raise CourseError(
            f"looked for units in {folder}, found none; set COURSE_SOLUTIONS to a folder of masters."
        )
    return names


def parts(unit: str) -> list[str]:
    """The names of the parts of `unit`, in order.  Raises: CourseError if there is no such unit."""
    folder, pattern = _folder_and_pattern()
    names = sorted(path.stem for path in (folder / unit).glob(pattern) if _is_part(path))
    if not names:
        raise CourseError(f"no unit is called {unit!r}; the units are {', '.join(units())}.")
    return names


def all_units() -> list[Unit]:
    """Every unit with all that is known about it, in order. Raises: CourseError if a file cannot be
    read.
    """
    return [load_unit(name) for name in units()]


def load_unit(unit: str) -> Unit:
    """All that is known about `unit`.  Raises: CourseError if there is no such unit."""
    loaded = tuple(load_part(unit, part) for part in parts(unit))
    return Unit(unit, _unit_title(loaded[0].path), loaded)


def load_part(unit: str, part: str) -> Part:
    """All that is known about a part. Raises: CourseError if there is no such part, or its file
    cannot be read.
    """
    if part not in parts(unit):
        raise CourseError(f"{unit} has no part {part!r}; its parts are {', '.join(parts(unit))}.")
    folder, pattern = _folder_and_pattern()
    path = folder / unit / f"{part}{Path(pattern).suffix}"
    cells = read_cells(path)
    header = cells[0].source if cells else ""
    minutes, goals, needs, question = (
        _search(p, header) for p in (MINUTES_LINE, GOALS, NEEDS, QUESTION)
    )
    exercises = tuple(_exercises(unit, part, cells))
    return Part(
        unit=unit,
        name=part,
        number=int(part.partition("_")[0]),
        title=(
            _search(TITLE_LINE, header).get("part") or part.partition("_")[2].replace("_", " ")
        ).strip(),
        question=" ".join(question.get("question", "").split()),
        goals=tuple(_items(goals.get("goals", ""))),
        core_minutes=int(minutes.get("core", sum(e.minutes for e in exercises if e.core))),
        all_minutes=int(minutes.get("all", sum(e.minutes for e in exercises))),
        needs=" ".join(needs.get("needs", "nothing").split()),
        exercises=exercises,
        path=path,
    )


def find_parts(wanted: str) -> list[tuple[str, str]]:
    """The (unit, part) pairs that a user means by "04_fast_loading", "04", "fast_loading" or
    "04/2".

    Raises: CourseError with the near misses if there is no such unit or part.
    """
    unit_asked, _, part_asked = wanted.strip("/").partition("/")
    unit = _pick(unit_asked, units(), "unit")
    of_unit = parts(unit)
    return [
        (unit, part)
        for part in ([_pick(part_asked, of_unit, f"part of {unit}")] if part_asked else of_unit)
    ]


def near(wanted: str, known: list[str]) -> str:
    """The sentence that follows "no such name; ": names in `known` that are like `wanted`, else all
    if they are few.
    """
    in_small_letters = {name.lower(): name for name in known}
    close = difflib.get_close_matches(wanted.lower(), in_small_letters, 3, 0.7)
    like = [in_small_letters[name] for name in close]
    if like:
        return f"did you mean {' or '.join(like)}?"
    if len(in_small_letters) <= MOST_NAMES:
        return f"there are {', '.join(sorted(set(known)))}."
    nearest = difflib.get_close_matches(wanted.lower(), in_small_letters, 3, 0)
    return f"the nearest of {len(in_small_letters)} are {', '.join(in_small_letters[name] for name in nearest)}."


def read_cells(path: Path) -> list[Cell]:
    """The cells of a master (percent script) or of a notebook. Raises: CourseError if it is
    neither.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".ipynb":
            return _script_cells(text)
        cells = json.loads(text)["cells"]
        return [
            Cell(c["cell_type"], _marks(c.get("metadata", {})), "".join(c["source"])) for c in cells
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CourseError(
            f"{path} is not a notebook of the course that can be read ({error})."
        ) from None


def _folder_and_pattern():
    """Where parts lie, and how their files are called."""
    return (
        (solutions_folder(), "[0-9]_*.py")
        if has_solutions()
        else (ROOT / "notebooks", "[0-9]_*.ipynb")
    )


def _is_part(path):
    """False for a user's copy of a notebook, whose master has another name."""
    if path.suffix == ".py":
        return True
    built_from = re.search(
        r'"built_from": "([^"]*)"', path.read_text(encoding="utf-8", errors="replace")
    )
    return not built_from or built_from[1].endswith(f"/{path.stem}.py")


def _script_cells(text):
    heads = list(_CELL.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    cells = []
    for head, end in zip(heads, ends, strict=True):
        body = text[head.end() : end].strip("\n")
        is_text = "[markdown]" in head["head"]
        if is_text:
            body = "\n".join(re.sub("^# ?", "", line) for line in body.splitlines())
        cells.append(
            Cell("markdown" if is_text else "code", dict(_MARK.findall(head["head"])), body)
        )
    return cells


def _marks(metadata):
    """The marks of a notebook's cell, in the words of a master; "given" names an exercise that is
    given solved.
    """
    marks, given = metadata.get("nbgrader", {}), metadata.get("course", {}).get("given")
    if given:
        return {"given": given}
    roles = {
        (False, True): "solution",
        (True, False): "test",
        (True, True): "answer",
        (False, False): "locked",
    }
    role = roles[bool(marks.get("grade")), bool(marks.get("solution"))]
    return {role: marks["grade_id"]} if "grade_id" in marks else {}


def _exercises(unit, part, cells):
    text = ""
    for cell in cells:
        if cell.kind == "markdown":
            text = cell.source
        name = cell.marks.get("solution") or cell.marks.get("given")
        if name:
            facts, title = _search(FACTS_LINE, text), _search(EXERCISE_TITLE, text)
            yield ExerciseFacts(
                unit=unit,
                part=part,
                name=name,
                number=int(title.get("number", 0)),
                title=title.get("title", name),
                points=int(facts.get("points", 0)),
                core=facts.get("kind") != "Extra",
                minutes=int(facts.get("minutes", 0)),
                lines=int(facts.get("lines", 0)),
                asked="solution" in cell.marks,
            )


def _search(pattern, text):
    """The named groups of the first match that there are, or an empty dict."""
    match = pattern.search(text)
    return {name: value for name, value in match.groupdict().items() if value} if match else {}


def _unit_title(path):
    header = read_cells(path)[0].source
    return (_search(TITLE_LINE, header) or _search(ANY_TITLE, header)).get("unit", path.parent.name)


def _items(listed):
    """The items of a Markdown list, each in one line."""
    return [
        " ".join(item.split()) for item in re.split(r"^[-*] ", listed, flags=re.M) if item.strip()
    ]


def _names(full):
    """The names that a user may type for "04_fast_loading": that, "04", "4", "fast_loading"."""
    number, _, name = full.partition("_")
    return {full, number, number.lstrip("0"), name}


def _pick(wanted, known, kind):
    matching = [name for name in known if wanted in _names(name)]
    if not matching:
        raise CourseError(f"no {kind} is called {wanted!r}; {near(wanted, known)}")
    return matching[0]
