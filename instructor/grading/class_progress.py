"""How far a class is, without running anything: an inbox -> an ExerciseState of each learner and
exercise -> text.

    INBOX/<learner>/<unit>/<part>.ipynb        a notebook with the outputs of its visible checks
    INBOX/<learner>/<unit>/<exercise>.json     a progress file, as data/answers/<user> holds them
    INBOX/<learner>/<unit>/predictions.json    what the learner predicted, from the same folder

Nothing of it is verified: an output can be edited.  `course grade` decides about points; this says
where to help.
"""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from course.engine import report
from course.engine.known_answers import fault_and_fix, load_mistakes
from course.errors import CourseError
from course.learner import kept_predictions
from course.learner.kept_predictions import Prediction
from course.notebook.registry import ExerciseFacts, all_units
from instructor.grading.analysis import WIDTH, wrapped
from instructor.grading.limits import PROGRESS_FILE_BYTES
from instructor.grading.sanitize import safe_text

STUCK_LISTED = 5  # exercises
MISTAKES_LISTED = 2  # of each
FAILED_LISTED = 5  # measurements that learners predicted wrongly
SAID_LISTED = 6  # predictions of each
NAME_COLUMNS = 24
ANSI = re.compile(r"\x1b\[[0-9;]*m")
FAULTS = (  # of a file that anybody may have written
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    OverflowError,
)

Key = tuple[str, str]  # unit, exercise
Measured = tuple[str, str, str]  # unit, part, what is measured


@dataclass(frozen=True)
class ExerciseState:
    """How far one learner is with one exercise."""

    solved: bool
    tries: int = 1  # as far as known
    mistake: str = ""  # what to say about the known mistake of the latest try, "" if there is none


@dataclass
class Learner:
    """What a learner has done."""

    name: str
    states: dict[Key, ExerciseState]
    predictions: dict[Measured, Prediction] = field(default_factory=dict)


class ClassState(NamedTuple):
    """What an inbox says of a class."""

    learners: list[Learner]  # by name
    faults: list[str]  # a sentence about each file that could not be read


def read_class(inbox: Path) -> ClassState:
    """What the folder `inbox` says of a class.

    No link is followed. Raises: CourseError if there is no such folder, or nothing of this course
    in it.
    """
    if not inbox.is_dir():
        raise CourseError(f"{inbox} is no folder; name one with a folder per learner.")
    known: set[Key] = set()
    for unit in all_units():
        known.update((unit.name, exercise.name) for exercise in unit.exercises)
    learners = []
    faults: list[str] = []
    for folder in sorted(inbox.iterdir()):
        if folder.is_dir() and not folder.is_symlink():
            learner = _read_learner(folder, known, faults)
            if learner.states or learner.predictions:
                learners.append(learner)
    if not learners:
        raise CourseError(
            f"looked in {inbox} for <learner>/<unit>/<part>.ipynb that were worked in and "
            "<learner>/<unit>/<exercise>.json, found none."
        )
    return ClassState(learners, faults)


def _read_learner(folder: Path, known: set[Key], faults: list[str]) -> Learner:
    """What a learner's folder says.

    Args:
        faults: gets a sentence about each file that cannot be read.
    """
    learner = Learner(safe_text(folder.name), {})
    for path in sorted(folder.rglob("*")):
        if _is_read(path):
            try:
                _add(learner, path, known)
            except FAULTS:
                name = path.relative_to(folder.parent)
                faults.append(safe_text(f"{name} cannot be read; it is left out."))
    return learner


def _is_read(path: Path) -> bool:
    """Whether it is a notebook or a kept file, no link, and no copy that JupyterLab keeps."""
    if path.suffix not in (".ipynb", ".json") or path.is_symlink():
        return False
    return ".ipynb_checkpoints" not in path.parts


def _add(learner: Learner, path: Path, known: set[Key]) -> None:
    """Add to `learner` what the file at `path` says; a solved exercise stays solved."""
    if not path.is_file() or path.stat().st_size > PROGRESS_FILE_BYTES:
        raise ValueError("too large, or a pipe, which would be waited for")
    text = path.read_text(encoding="utf-8")
    units = {unit for unit, _ in known}
    if path.name == kept_predictions.FILE:
        unit = _unit_of(path, units)
        for one in kept_predictions.parsed(text) if unit else ():
            learner.predictions[unit, one.part, one.what] = one
        return
    content = json.loads(text)
    if path.suffix == ".ipynb":
        here = _of_notebook(content, _unit_of(path, units))
    else:
        here = _of_progress_file(content)
    states = learner.states
    for key, state in here:
        was_solved = key in states and states[key].solved
        if key in known and (state.solved or not was_solved):
            states[key] = state


def _unit_of(path: Path, units: set[str]) -> str:
    """The unit whose folder holds the file at `path`, or ""."""
    return next((folder for folder in reversed(path.parts) if folder in units), "")


def _of_progress_file(content: Mapping[str, Any]) -> Iterator[tuple[Key, ExerciseState]]:
    """What a progress file says; the fields are those of course.learner.answers.Kept."""
    unit = str(content["unit"])
    name = str(content["exercise"])
    solved = bool(content["passed"])
    mistake = ""
    if content.get("mistake") and not solved:
        mistake = _advice(unit, name).get(str(content["mistake"]), "")
    yield (unit, name), ExerciseState(solved, int(content["tries"]), mistake)


def _advice(unit: str, name: str) -> dict[str, str]:
    """{name of a known mistake: what to say}; none for an exercise that there is not."""
    try:
        return {known.name: fault_and_fix(known.advice)[0] for known in load_mistakes(unit, name)}
    except (CourseError, ImportError, OSError, ValueError, KeyError):
        return {}


def _of_notebook(content: Mapping[str, Any], unit: str) -> Iterator[tuple[Key, ExerciseState]]:
    """What the outputs of the visible checks in a notebook of `unit` say."""
    for cell in content["cells"]:
        grade_id = str(cell.get("metadata", {}).get("nbgrader", {}).get("grade_id", ""))
        name = grade_id.removesuffix("-visible").partition("-visible-")[0]
        if "-visible" not in grade_id or cell["cell_type"] != "code":
            continue
        text = "\n".join(_text(output) for output in cell.get("outputs", []))
        said = report.read(name, text)
        if said:
            state = ExerciseState(said.correct, mistake=safe_text(said.mistake))
            yield (unit, name), state


def _text(output: Mapping[str, Any]) -> str:
    """The text of an output, without colours."""
    if output.get("text"):
        text = "".join(output["text"])
    else:
        text = "\n".join(output.get("traceback") or [])
    return ANSI.sub("", text)


@dataclass
class Stuck:
    """An exercise that was tried and not solved by some learners."""

    exercise: ExerciseFacts
    tried: int
    solved: int
    mistakes: list[tuple[str, int]]  # (what to say, number of learners), most frequent first

    @property
    def stuck(self) -> int:
        """Learners who have not solved it."""
        return self.tried - self.solved


def stuck_at(learners: Iterable[Learner]) -> list[Stuck]:
    """A Stuck for each exercise that was tried, by how many have not solved it."""
    learners = list(learners)
    rows = []
    for unit in all_units():
        for exercise in unit.exercises:
            key = (unit.name, exercise.name)
            states = [learner.states[key] for learner in learners if key in learner.states]
            if states:
                rows.append(_stuck(exercise, states))
    return sorted(rows, key=lambda item: -item.stuck)


def _stuck(exercise: ExerciseFacts, states: list[ExerciseState]) -> Stuck:
    solved = 0
    made: Counter[str] = Counter()
    for state in states:
        if state.solved:
            solved += 1
        elif state.mistake:
            made[state.mistake] += 1
    return Stuck(exercise, len(states), solved, made.most_common())


@dataclass
class Failed:
    """A measurement that some learners predicted wrongly."""

    measured: Measured
    predictions: list[Prediction]  # those that were made before the measurement was shown

    @property
    def wrong_way(self) -> int:
        """Learners who said faster where it was slower, or another name."""
        return sum(one.direction is False or one.right is False for one in self.predictions)

    @property
    def off(self) -> int:
        """Learners who were wrong in that way, or by more than a factor of two."""
        return sum(_is_off(one) for one in self.predictions)


def _is_off(one: Prediction) -> bool:
    return False in (one.direction, one.near, one.right)


def failed_at(learners: Iterable[Learner]) -> list[Failed]:
    """A Failed for each measurement that somebody predicted wrongly, where most did first."""
    of_measured: dict[Measured, list[Prediction]] = {}
    for learner in learners:
        for measured, one in learner.predictions.items():
            if one.counts:
                of_measured.setdefault(measured, []).append(one)
    rows = [Failed(measured, made) for measured, made in of_measured.items()]
    failed = [row for row in rows if row.off]
    return sorted(failed, key=lambda row: (-row.off, -row.wrong_way, row.measured))


def current_exercise(learner: Learner) -> ExerciseFacts | None:
    """Where `learner` is: an exercise of the latest unit begun; None if that is done.

    The first one tried and not solved, else the next core one.
    """
    begun = {unit for unit, _ in learner.states}
    units = [unit for unit in all_units() if unit.name in begun]
    exercises = units[-1].exercises if units else ()
    for exercise in exercises:
        state = learner.states.get((exercise.unit, exercise.name))
        if state and not state.solved:
            return exercise
    for exercise in exercises:
        is_new = (exercise.unit, exercise.name) not in learner.states
        if exercise.core and exercise.asked and is_new:
            return exercise
    return None


def class_text(state: ClassState) -> str:
    """Who is where, then what most are stuck at, as text of at most 100 columns."""
    lines = [f"{'learner':<{NAME_COLUMNS}}{'solved':>7}{'tried':>7}  is at"]
    lines += [_learner_line(learner) for learner in state.learners]
    lines += ["", f"{len(state.learners)} learners. Most are stuck at:"]
    stuck = [item for item in stuck_at(state.learners) if item.stuck][:STUCK_LISTED]
    for item in stuck:
        lines += _stuck_lines(item)
    if not stuck:
        lines.append("  nothing: everybody solved what they tried")
    failed = failed_at(state.learners)[:FAILED_LISTED]
    if failed:
        lines += ["", "Where intuition failed, before the measurement was shown:"]
    for row in failed:
        lines += _failed_lines(row)
    note = "As their own notebooks and files say; nothing was run. course grade verifies."
    return "\n".join([*lines, "", *textwrap.wrap(note, WIDTH), *state.faults])


def _learner_line(learner: Learner) -> str:
    at = current_exercise(learner)
    where = f"{at.name} ({_part(at)})" if at else "done" if learner.states else "predictions alone"
    solved = sum(state.solved for state in learner.states.values())
    name = learner.name
    if len(name) >= NAME_COLUMNS:
        name = f"{name[: NAME_COLUMNS - 2]}…"
    return f"{name:<{NAME_COLUMNS}}{solved:>7}{len(learner.states):>7}  {where}"


def _stuck_lines(item: Stuck) -> list[str]:
    where = f"{item.exercise.name} ({_part(item.exercise)})"
    lines = [f"  {where}: {item.stuck} of {item.tried} who tried it"]
    for advice, count in item.mistakes[:MISTAKES_LISTED]:
        lines += wrapped(f"{count} x {advice}")
    return lines


def _failed_lines(row: Failed) -> list[str]:
    unit, part, what = row.measured
    where = f"{what} ({_short(unit, part)})"
    of_them = f", {row.wrong_way} of them in the wrong direction" if row.wrong_way else ""
    lines = textwrap.wrap(
        safe_text(f"{where}: {row.off} of {len(row.predictions)} were wrong{of_them}"),
        WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
    )
    said = [f"{one.said} (measured {one.measured})" for one in row.predictions if _is_off(one)]
    return lines + wrapped(safe_text(f"they said {'; '.join(said[:SAID_LISTED])}"))


def _part(exercise: ExerciseFacts) -> str:
    """The part of an exercise, "05/1"."""
    return _short(exercise.unit, exercise.part)


def _short(unit: str, part: str) -> str:
    """ "05/1" for "05_batch_grouping" and "1_what_padding_costs"."""
    return f"{unit[:2]}/{part.partition('_')[0]}"


def class_progress(inbox: Path) -> str:
    """The text about the class in `inbox`.  Raises: CourseError if there is nothing to read."""
    return class_text(read_class(inbox))
