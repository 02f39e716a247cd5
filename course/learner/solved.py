"""Which answer later cells use: the learner's, else the reference.

    LFWDataset_now = course.solved(check.LFWDataset)

The learner's answer is one of this kernel, or kept from another one. A check that is called tells
this module its result; answers.py keeps it, carry.py extracts the script.
"""

import contextlib
import sys
import textwrap
from typing import Any, NoReturn

import course.learner.answers as store
from course.errors import CourseError
from course.learner.carry import NotCarried, cells_of_kernel, load_script, script_of
from course.learner.given import load_given
from course.learner.protocols import Exercise, Verdict
from course.notebook.registry import has_solutions, is_grading, load_unit

WIDTH = 80  # characters of a printed line
solved_answers = {}  # (unit, exercise) -> the answer whose latest check in this process passed
failed_here = set()  # (unit, exercise) whose latest check in this process failed
_said = set()  # sentences to print once per session


def note(exercise: Exercise, answer: Any, verdict: Verdict, is_visible: bool) -> None:
    """Remember the Verdict of a check; keep it for other notebooks if it is visible in its own."""
    key = (exercise.unit, exercise.name)
    if verdict.correct:
        solved_answers[key] = answer
        failed_here.discard(key)
    else:
        solved_answers.pop(key, None)
        failed_here.add(key)
    if is_visible and verdict.begun and store.is_recording():
        _keep(exercise, answer, verdict)


def solved(exercise: Exercise) -> Any:
    """The learner's answer to `exercise`, else the reference.

    Prints which, unless the check passed here. An answer that was kept, by another notebook or
    before a restart, is used if its visible check passes once more. Where there is neither an
    answer nor a solution, it says so and returns an Unsolved. In a grader it is what the notebook
    has written so far.
    """
    key = (exercise.unit, exercise.name)
    if key in solved_answers:
        return solved_answers[key]
    if is_grading():
        return _written(exercise)
    given = load_given(exercise, solved)
    return _kept(exercise, key) if given is None else given


def _kept(exercise, key):
    """The learner's answer of another notebook or kernel, else what stands for it."""
    try:
        record = store.read(*key)
    except CourseError as error:
        return _fallback(exercise, str(error).rstrip("."))
    if not (record and record.passed):
        return _fallback(exercise, "not solved yet")
    yours = f"your answer of {store.when(record.passed)}"
    if not record.script:
        return _fallback(exercise, f"{yours} works only in its own notebook")
    try:
        answer = _load(exercise, record)
    except NotCarried as error:
        check = f"run check.{exercise.name} again"
        return _fallback(exercise, f"{yours} no longer passes its check: {error}; {check}")
    yours += _part_of(exercise)
    if key in failed_here:
        _say(f"{exercise.name}: the latest check failed; using {yours}.")
    else:
        _say(f"{exercise.name}: {yours}")
        solved_answers[key] = answer
    return answer


def _written(exercise):
    """What the main module holds under the name of an exercise, else an Unsolved."""
    written = vars(sys.modules["__main__"]).get(exercise.name)
    return written if callable(written) else Unsolved(exercise.name)


def _load(exercise, record):
    """The answer of a Kept, after its visible check has passed once more.

    Raises: NotCarried with the reason if it does not load or does not pass.
    """
    try:
        file = f"<your answer to {exercise.name}, {store.when(record.passed)}>"
        answer = load_script(record.script, record.name, file)
    except Exception as error:
        raise NotCarried(f"{type(error).__name__}: {error}") from None
    for _ in range(2):  # on a busy machine a time limit may strike
        verdict = exercise.judge(answer, diagnose=False)
        if verdict.correct:
            return answer
    raise NotCarried(verdict.reason)


def _fallback(exercise, reason):
    if has_solutions():
        _say(f"{exercise.name}: {reason}; using the reference answer from here.")
        return exercise.reference()
    given = load_given(exercise, solved, asked=True)
    if given is not None:
        _say(f"{exercise.name}: {reason}; using the answer that this folder gives.")
        return given
    _say(f"{exercise.name}: {reason}, and this folder holds no reference answer.")
    return Unsolved(exercise.name)


def _say(sentence):
    lines = textwrap.wrap(sentence, WIDTH, subsequent_indent="     ", break_on_hyphens=False)
    print("\n".join(lines))


def _part_of(exercise):
    """The text ", from part 1" if the part of an exercise is known, else ""."""
    with contextlib.suppress(CourseError, ValueError):
        for part in load_unit(exercise.unit).parts:
            if exercise.name in [other.name for other in part.exercises]:
                return f", from part {part.number}"
    return ""


def _keep(exercise, answer, verdict):
    """Record a try; keep the answer for other notebooks if it is right and can be carried."""
    script = None
    name = None
    if verdict.correct:
        notebook = vars(sys.modules["__main__"])
        try:
            script, name = script_of(answer, exercise.name, notebook, cells_of_kernel())
        except NotCarried as error:
            _say(f"{exercise.name}: counts in this notebook only; it {error}.")
    try:
        store.record(exercise.unit, exercise.name, verdict.correct, verdict.mistake, script, name)
    except CourseError as error:
        if str(error) not in _said:
            _said.add(str(error))
            _say(f"(answers count in this kernel only: {str(error).rstrip('.')})")


class Unsolved:
    """Stands for an answer that is not there: to call it or ask for an attribute is an error."""

    def __init__(self, exercise: str):
        self.exercise = exercise

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise CourseError(
            f"this needs your answer to {self.exercise}, whose check has not passed yet; "
            "solve it, run its check, then the cell with course.solved and those below it."
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python's own questions, of pickle and copy for one
            raise AttributeError(name)
        self()
