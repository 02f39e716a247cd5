"""How far a class is, without running anything: an inbox -> *Stand of each learner and exercise* ->
text.

    INBOX/<learner>/<unit>/<part>.ipynb         a notebook with its outputs: what the visible checks
    printed INBOX/<learner>/<unit>/<exercise>.json      a progress file, as data/answers/<user>
    holds them

Nothing of it is verified: an output can be edited.  `course grade` decides about points; this says
where to help.
"""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from course.engine import report
from course.engine.known_answers import fault_and_fix, load_mistakes
from course.errors import CourseError
from course.notebook.registry import ExerciseFacts, all_units
from instructor.grading.sanitize import safe_text

WIDTH = 100  # columns of a text
LARGEST = 50_000_000  # bytes of a file that is read
STUCK = 5  # exercises that are listed
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Stand:
    """How far one learner is with one exercise."""

    solved: bool
    tries: int = 1  # as far as known
    mistake: str = ""  # what to say about the known mistake of the latest try, "" if there is none


@dataclass
class Learner:
    """What a learner has done: {(unit, exercise): Stand}."""

    name: str
    stands: dict[tuple[str, str], Stand]


def read_class(inbox: Path) -> tuple[list[Learner], list[str]]:
    """([Learner, ...] by name, [a sentence about each file that could not be read, ...]) of the
    folder `inbox`.

    No link is followed. Raises: CourseError if there is no such folder, or nothing of this course
    in it.
    """
    if not inbox.is_dir():
        raise CourseError(f"{inbox} is no folder; name one with a folder per learner.")
    known = {(unit.name, e.name): e for unit in all_units() for e in unit.exercises}
    learners, faults = [], []
    for folder in sorted(
        path for path in inbox.iterdir() if path.is_dir() and not path.is_symlink()
    ):
        learner = Learner(safe_text(folder.name), {})
        for path in sorted(folder.rglob("*")):
            if (
                path.suffix not in (".ipynb", ".json")
                or path.is_symlink()
                or ".ipynb_checkpoints" in path.parts
            ):
                continue
            try:
                _add(learner.stands, path, known)
            except (
                OSError,
                ValueError,
                KeyError,
                TypeError,
                AttributeError,
                RecursionError,
                OverflowError,
            ):
                faults.append(
                    safe_text(f"{path.relative_to(inbox)} cannot be read; it is left out.")
                )
        if learner.stands:
            learners.append(learner)
    if not learners:
        raise CourseError(
            f"looked in {inbox} for <learner>/<unit>/<part>.ipynb that were worked in and <learner>/<unit>/<exercise>"
            ".json, found none."
        )
    return learners, faults


def _add(stands, path, known):
    """Add to `stands` what the file at `path` says; a solved exercise stays solved."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        raise ValueError("too large, or a pipe, which would be waited for")
    content = json.loads(path.read_text(encoding="utf-8"))
    here = _of_notebook(content, path, known) if path.suffix == ".ipynb" else _of_file(content)
    for key, stand in here:
        if key in known and not (key in stands and stands[key].solved and not stand.solved):
            stands[key] = stand


def _of_file(content) -> Iterator:
    """What a progress file says; the fields are those of course.learner.answers.Kept."""
    unit, name = str(content["unit"]), str(content["exercise"])
    advice = _advice(unit, name).get(str(content["mistake"]), "") if content.get("mistake") else ""
    yield (
        (unit, name),
        Stand(bool(content["passed"]), int(content["tries"]), "" if content["passed"] else advice),
    )


def _advice(unit, name):
    """{name of a known mistake: what to say about it}; none for an exercise that there is not."""
    try:
        return {known.name: fault_and_fix(known.advice)[0] for known in load_mistakes(unit, name)}
    except (CourseError, ImportError, OSError, ValueError, KeyError):
        return {}


def _of_notebook(content, path, known) -> Iterator:
    """What the outputs of the visible checks in a notebook say; an exercise belongs to the unit of
    the folder.
    """
    units = {unit for unit, _ in known}
    unit = next((part for part in reversed(path.parts) if part in units), None)
    for cell in content["cells"]:
        grade_id = str(cell.get("metadata", {}).get("nbgrader", {}).get("grade_id", ""))
        name = grade_id.removesuffix("-visible").partition("-visible-")[0]
        if "-visible" not in grade_id or cell["cell_type"] != "code":
            continue
        text = "\n".join(_text(output) for output in cell.get("outputs", []))
        said = report.read(name, text)
        if said:
            yield (unit, name), Stand(said.correct, mistake=safe_text(said.mistake))


def _text(output):
    """The text of an output, without colours."""
    lines = output.get("text") or output.get("traceback") or ""
    return _ANSI.sub("", "\n".join(lines) if output.get("traceback") else "".join(lines))


@dataclass
class Stuck:
    """An exercise that was tried and not solved by some learners."""

    exercise: ExerciseFacts
    tried: int
    solved: int
    mistakes: list[tuple[str, int]]  # (what to say, number of learners), most frequent first

    @property
    def stuck(self) -> int:
        return self.tried - self.solved


def stuck_at(learners: list[Learner]) -> list[Stuck]:
    """A Stuck for each exercise that was tried, by how many have not solved it."""
    rows = []
    for unit in all_units():
        for exercise in unit.exercises:
            key = (unit.name, exercise.name)
            stands = [learner.stands[key] for learner in learners if key in learner.stands]
            if stands:
                made = Counter(
                    stand.mistake for stand in stands if stand.mistake and not stand.solved
                )
                solved = sum(stand.solved for stand in stands)
                rows.append(Stuck(exercise, len(stands), solved, made.most_common()))
    return sorted(rows, key=lambda item: -item.stuck)


def place(learner: Learner) -> ExerciseFacts | None:
    """Where `learner` is: the first exercise tried and not solved in the latest unit begun, else
    its next core one.
    """
    begun = [unit for unit in all_units() if any(of == unit.name for of, _ in learner.stands)]
    exercises = begun[-1].exercises if begun else ()
    tried = [e for e in exercises if not learner.stands.get((e.unit, e.name), Stand(True)).solved]
    rest = [e for e in exercises if e.core and e.asked and (e.unit, e.name) not in learner.stands]
    return next(iter(tried + rest), None)


def class_text(learners: list[Learner], faults: list[str]) -> str:
    """Who is where, then what most are stuck at, as text of at most 100 columns."""
    lines = [f"{'learner':<24}{'solved':>7}{'tried':>7}  is at"]
    for learner in learners:
        at, solved = place(learner), sum(stand.solved for stand in learner.stands.values())
        where = f"{at.name} ({at.unit[:2]}/{at.part.partition('_')[0]})" if at else "done"
        name = learner.name if len(learner.name) < 24 else f"{learner.name[:22]}…"
        lines.append(f"{name:<24}{solved:>7}{len(learner.stands):>7}  {where}")
    lines += ["", f"{len(learners)} learners. Most are stuck at:"]
    items = [item for item in stuck_at(learners) if item.stuck][:STUCK]
    for item in items:
        e = item.exercise
        here = f"{e.unit[:2]}/{e.part.partition('_')[0]}"
        lines.append(f"  {e.name} ({here}): {item.stuck} of {item.tried} who tried it")
        for advice, count in item.mistakes[:2]:
            lines += textwrap.wrap(f"{count} x {advice}", WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 10,
                                   break_on_hyphens=False)  # fmt: skip
    lines += [] if items else ["  nothing: everybody solved what they tried"]
    lines += [
        "",
        *textwrap.wrap(
            "As their own notebooks and files say; nothing was run. course grade verifies.", WIDTH
        ),
    ]
    return "\n".join([*lines, *faults])


def class_progress(inbox: Path) -> str:
    """The text about the class in `inbox`.  Raises: CourseError if there is nothing to read."""
    return class_text(*read_class(inbox))
