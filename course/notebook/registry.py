"""Which units, parts and exercises there are, with their points, minutes and needs.

Everything is read from the texts that learners see, so that nothing is written twice: from the
masters where they are, else (in a class's folder) from the notebooks. Standard library only, so
that `course progress` starts in a moment. Sizes of the experiments are in experiment_sizes/, checks
in checks/, whose `exercise(unit, name)` gives the check of an exercise.
"""

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from course.errors import CourseError
from course.notebook.cells import Cell, read_cells
from course.notebook.statements import EXERCISE_TITLE, part_header, task_facts
from course.system.folders import ROOT

NAMES_LISTED_MAX = 12  # in a sentence about a wrong name
_BUILT_FROM = re.compile(r'"built_from": "([^"]*)"')


def solutions_folder() -> Path:
    """The folder of masters: COURSE_SOLUTIONS, else `solutions/` next to the package."""
    return Path(os.environ.get("COURSE_SOLUTIONS") or ROOT / "solutions")


def has_solutions() -> bool:
    """Whether expected facts come from reference answers: masters are here, or COURSE_SOLUTIONS."""
    if os.environ.get("COURSE_SOLUTIONS"):
        return True
    return any(solutions_folder().glob("[0-9][0-9]_*/[0-9]_*.py"))


def is_grading() -> bool:
    """Whether this process is a grader's, whose cells call checks that are graded elsewhere."""
    return bool(os.environ.get("COURSE_GRADING"))


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
    difficulty: int = 0  # filled dots, of three


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
    session: int  # of the unit, in which its core is done
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
        exercises = []
        for part in self.parts:
            exercises += part.exercises
        return tuple(exercises)

    @property
    def points(self) -> int:
        return sum(part.points for part in self.parts)

    @property
    def core_minutes(self) -> int:
        return sum(part.core_minutes for part in self.parts)

    @property
    def session_minutes(self) -> dict[int, int]:
        """The core minutes of each session, by its number."""
        minutes = {}
        for part in self.parts:
            if part.core_minutes:
                minutes[part.session] = minutes.get(part.session, 0) + part.core_minutes
        return minutes

    @property
    def all_minutes(self) -> int:
        return sum(part.all_minutes for part in self.parts)


class PartName(NamedTuple):
    """Which part: its unit and its name in that."""

    unit: str
    part: str


def package_of(unit: str) -> str:
    """The name of the package in course/checks of `unit`: "fast_loading" of "04_fast_loading"."""
    return unit.partition("_")[2]


def unit_of(package: str) -> str | None:
    """The unit whose checks are in course/checks/<package>; None if there is none."""
    for unit in units():
        if package_of(unit) == package:
            return unit
    return None


def units() -> list[str]:
    """The names of all units, in order.  Raises: CourseError if there are none."""
    folder, pattern = _folder_and_pattern()
    names = set()
    for path in folder.glob(f"[0-9][0-9]_*/{pattern}"):
        if _is_part(path):
            names.add(path.parent.name)
    if not names:
        raise CourseError(
            f"looked for units in {folder}, found none; "
            "set COURSE_SOLUTIONS to a folder of masters."
        )
    return sorted(names)


def parts(unit: str) -> list[str]:
    """The names of the parts of `unit`, in order.  Raises: CourseError if there is no such unit."""
    folder, pattern = _folder_and_pattern()
    names = []
    for path in (folder / unit).glob(pattern):
        if _is_part(path):
            names.append(path.stem)
    if not names:
        raise CourseError(f"no unit is called {unit!r}; the units are {', '.join(units())}.")
    return sorted(names)


def all_parts() -> list[PartName]:
    """Every part of every unit, in order."""
    places = []
    for unit in units():
        places += [PartName(unit, part) for part in parts(unit)]
    return places


def all_units() -> list[Unit]:
    """Every unit with all that is known about it, in order.

    Raises: CourseError if a file cannot be read.
    """
    return [*map(load_unit, units())]


def load_unit(unit: str) -> Unit:
    """All that is known about `unit`.  Raises: CourseError if there is no such unit."""
    loaded = tuple(load_part(unit, part) for part in parts(unit))
    header = part_header(read_cells(loaded[0].path)[0].source)
    return Unit(unit, header.unit_title or unit, loaded)


def load_part(unit: str, part: str) -> Part:
    """All that is known about a part.

    Raises: CourseError if there is no such part, or its file cannot be read.
    """
    if part not in parts(unit):
        raise CourseError(f"{unit} has no part {part!r}; its parts are {', '.join(parts(unit))}.")
    folder, pattern = _folder_and_pattern()
    path = folder / unit / f"{part}{Path(pattern).suffix}"
    cells = read_cells(path)
    header = part_header(cells[0].source if cells else "")
    exercises = tuple(_exercises(unit, part, cells))
    core_minutes = header.core_minutes
    if core_minutes is None:
        core_minutes = sum(exercise.minutes for exercise in exercises if exercise.core)
    all_minutes = header.all_minutes
    if all_minutes is None:
        all_minutes = sum(exercise.minutes for exercise in exercises)
    number, _, name = part.partition("_")
    return Part(
        unit=unit,
        name=part,
        number=int(number),
        title=header.title or name.replace("_", " "),
        question=header.question,
        goals=header.goals,
        core_minutes=core_minutes,
        all_minutes=all_minutes,
        session=header.session,
        needs=header.needs or "nothing",
        exercises=exercises,
        path=path,
    )


def exercise_facts(unit: str, name: str) -> ExerciseFacts:
    """What the text of an exercise says about it.  Raises: CourseError if no part asks it."""
    known = {exercise.name: exercise for exercise in load_unit(unit).exercises}
    if name not in known:
        raise CourseError(f"{unit} asks no exercise {name!r}; {near(name, [*known])}")
    return known[name]


def find_parts(wanted: str) -> list[PartName]:
    """The parts that a user means by "04_fast_loading", "04", "fast_loading" or "04/2".

    Raises: CourseError with the near misses if there is no such unit or part.
    """
    unit_asked, _, part_asked = wanted.strip("/").partition("/")
    unit = _pick(unit_asked, units(), "unit")
    names = parts(unit)
    if part_asked:
        names = [_pick(part_asked, names, f"part of {unit}")]
    return [PartName(unit, part) for part in names]


def near(wanted: str, known: list[str]) -> str:
    """The sentence that follows "no such name; ": the names in `known` that are most like it.

    Args:
        known: all right names, which are listed if they are few and none is close.
    """
    close = _most_like(wanted, known, 0.7)
    if close:
        return f"did you mean {' or '.join(close)}?"
    if len(set(known)) <= NAMES_LISTED_MAX:
        return f"there are {', '.join(sorted(set(known)))}."
    return f"the nearest of {len(set(known))} are {', '.join(_most_like(wanted, known, 0))}."


def _most_like(wanted, known, cutoff):
    """At most three names of `known`, whatever their case, the best first."""
    in_small_letters = {name.lower(): name for name in known}
    found = difflib.get_close_matches(wanted.lower(), in_small_letters, 3, cutoff)
    return [in_small_letters[name] for name in found]


def _folder_and_pattern():
    """Where parts lie, and how their files are called."""
    if has_solutions():
        return solutions_folder(), "[0-9]_*.py"
    return ROOT / "notebooks", "[0-9]_*.ipynb"


def _is_part(path):
    """False for a user's copy of a notebook, whose master has another name."""
    if path.suffix == ".py":
        return True
    built_from = _BUILT_FROM.search(path.read_text(encoding="utf-8", errors="replace"))
    return not built_from or built_from[1].endswith(f"/{path.stem}.py")


def _exercises(unit: str, part: str, cells: list[Cell]) -> Iterator[ExerciseFacts]:
    text = ""
    for cell in cells:
        if cell.kind == "markdown":
            text = cell.source
        is_asked = cell.role == "answer"
        if not is_asked and "given" not in cell.marks:
            continue
        title = EXERCISE_TITLE.search(text)
        facts = next(iter(task_facts(text)), None)
        yield ExerciseFacts(
            unit=unit,
            part=part,
            name=cell.exercise,
            number=int(title["number"]) if title else 0,
            title=title["title"] if title else cell.exercise,
            points=facts.points if facts else 0,
            core=facts.is_core if facts else True,
            minutes=facts.minutes if facts else 0,
            lines=facts.lines if facts else 0,
            asked=is_asked,
            difficulty=facts.difficulty if facts else 0,
        )


def _names(full):
    """The names that a user may type for "04_fast_loading": that, "04", "4", "fast_loading"."""
    number, _, name = full.partition("_")
    return {full, number, number.lstrip("0"), name}


def _pick(wanted, known, kind):
    for name in known:
        if wanted in _names(name):
            return name
    raise CourseError(f"no {kind} is called {wanted!r}; {near(wanted, known)}")
