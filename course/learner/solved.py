"""Which answer later cells use: the learner's, of this kernel or kept from another one, else the
reference.

    LFWDataset_now = course.solved(check.LFWDataset)

A check that is called tells this module its result; answers.py keeps it, carry.py extracts the
script.
"""

import contextlib
import sys
import textwrap

import course.learner.answers as store
from course.errors import CourseError
from course.learner.carry import NotCarried, cells_of_kernel, load_script, script_of
from course.learner.given import load_given
from course.notebook.registry import has_solutions, load_unit

WIDTH = 80
solved_answers = {}  # (unit, exercise) -> the answer whose latest check in this process passed
failed_here = set()  # (unit, exercise) whose latest check in this process failed
_said = set()  # sentences to print once per session


def note(exercise, answer, verdict, is_visible):
    """Remember the Verdict of a check; keep it for other notebooks if it is a visible one of a
    notebook.
    """
    key = exercise.unit, exercise.name
    if verdict.correct:
        solved_answers[key] = answer
        failed_here.discard(key)
    else:
        solved_answers.pop(key, None)
        failed_here.add(key)
    if is_visible and verdict.begun and store.is_recording():
        _keep(exercise, answer, verdict)


def solved(exercise):
    """The learner's answer to `exercise`, else the reference; prints which, unless the check passed
    here.

    An answer that was kept, by another notebook or before a restart, is used if its visible check
    passes once more. Where there is neither an answer nor a solution, it says so and returns an
    Unsolved.
    """
    key = exercise.unit, exercise.name
    if key in solved_answers:
        return solved_answers[key]
    given = load_given(exercise, solved)
    if given is not None:
        return given
    try:
        record = store.read(*key)
    except CourseError as error:
        return _fallback(exercise, str(error).rstrip("."))
    if not (record and record.passed):
        return _fallback(exercise, "not solved yet")
    if not record.script:
        return _fallback(
            exercise, f"your answer of {store.when(record.passed)} works only in its own notebook"
        )
    try:
        answer = _load(exercise, record)
    except NotCarried as error:
        return _fallback(
            exercise,
            f"your answer of {store.when(record.passed)} no longer passes its check: {error}",
        )
    whose = f"your answer of {store.when(record.passed)}{_part_of(exercise)}"
    _say(
        f"{exercise.name}: "
        + (f"the latest check failed; using {whose}." if key in failed_here else whose)
    )
    if key not in failed_here:
        solved_answers[key] = answer
    return answer


def _load(exercise, record):
    """The answer of a Kept, after its visible check has passed once more.

    Raises: NotCarried with the reason if it does not load or does not pass.
    """
    try:
        answer = load_script(
            record.script,
            record.name,
            f"<your answer to {exercise.name}, {store.when(record.passed)}>",
        )
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
    print(
        "\n".join(textwrap.wrap(sentence, WIDTH, subsequent_indent="     ", break_on_hyphens=False))
    )


def _part_of(exercise):
    """The text ", from part 1" if the part of an exercise is known, else ""."""
    with contextlib.suppress(CourseError, ValueError):
        for part in load_unit(exercise.unit).parts:
            if exercise.name in [other.name for other in part.exercises]:
                return f", from part {part.number}"
    return ""


def _keep(exercise, answer, verdict):
    script = name = None
    if verdict.correct:
        try:
            script, name = script_of(
                answer, exercise.name, vars(sys.modules["__main__"]), cells_of_kernel()
            )
        except NotCarried as error:
            _say(f"{exercise.name}: counts in this notebook only; it {error}.")
    try:
        store.record(exercise.unit, exercise.name, verdict.correct, verdict.mistake, script, name)
    except CourseError as error:
        if str(error) not in _said:
            _said.add(str(error))
            _say(f"(answers count in this kernel only: {str(error).rstrip('.')})")


class Unsolved:
    """Stands for an answer that is not there: calling it or asking for an attribute raises
    CourseError.
    """

    def __init__(self, exercise):
        self.exercise = exercise

    def __call__(self, *args, **kwargs):
        raise CourseError(
            f"this needs your answer to {self.exercise}, whose check has not passed yet; solve it, run its check, then "
            "the cell with course.solved."
        )

    def __getattr__(self, name):
        if name.startswith("__"):  # Python's own questions, of pickle and copy for one
            raise AttributeError(name)
        self()
