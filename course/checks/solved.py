"""Which answer goes on from a check: the learner's, of this kernel or kept from another one, else the reference.

    sweep_now = course.solved(check.sweep)

The engine tells this module the result of every visible check; answers.py keeps it, carry.py finds the script.
"""

import contextlib
import io
import textwrap

import course.learner.answers as store
from course.checks.expected import has_solutions
from course.checks.given import load_given
from course.errors import CourseError
from course.learner.carry import NotCarried, load_script, script_of
from course.units import load_unit

WIDTH = 80
solved_answers = {}  # (unit, exercise) -> the answer whose latest check in this process passed
failed_here = set()  # (unit, exercise) whose latest check in this process failed
_said = set()  # sentences that stand once in a session


def forget(exercise):
    """Hand on no earlier answer to `exercise` of this kernel: its check runs anew."""
    solved_answers.pop((exercise.unit, exercise.name), None)
    failed_here.discard((exercise.unit, exercise.name))


def note(exercise, answer, verdict, is_visible):
    """Remember the Verdict of a check and, for a visible one in a notebook, keep it for others; print what hinders."""
    key = exercise.unit, exercise.name
    if verdict.correct:
        solved_answers[key] = answer
    else:
        failed_here.add(key)
    if is_visible and verdict.begun and store.is_recording():
        _keep(exercise, answer, verdict)


def solved(asked):
    """The learner's answer to exercise `asked`, else the reference; it says which, unless the check passed here.

    An answer that was kept, by another notebook or before a restart, goes on if its visible check passes once more.
    Where there is neither an answer nor a solution, it says so and hands on an Unsolved.
    """
    key = asked.unit, asked.name
    if key in solved_answers:
        return solved_answers[key]
    given = load_given(asked, solved)
    if given is not None:
        return given
    try:
        kept = store.read(*key)
    except CourseError as error:
        return _fallback(asked, str(error).rstrip("."))
    if not (kept and kept.passed):
        return _fallback(asked, "not solved yet")
    if not kept.script:
        return _fallback(asked, f"your answer of {store.when(kept.passed)} works only in its own notebook")
    try:
        answer = _load(asked, kept)
    except NotCarried as error:
        return _fallback(asked, f"your answer of {store.when(kept.passed)} no longer passes its check: {error}")
    whose = f"your answer of {store.when(kept.passed)}{_part_of(asked)}"
    _say(f"{asked.name}: " + (f"the latest check failed; {whose}, goes on." if key in failed_here else whose))
    if key not in failed_here:
        solved_answers[key] = answer
    return answer


def _load(asked, kept):
    """The answer of a Kept, whose visible check passed just now in silence.

    Raises: NotCarried with the reason if it does not load or does not pass.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            answer = load_script(kept.script, kept.name, f"<your answer to {asked.name}, {store.when(kept.passed)}>")
    except Exception as error:
        raise NotCarried(f"{type(error).__name__}: {error}") from None
    for _ in range(2):  # on a busy machine a time limit may strike
        verdict = asked.judge(answer, diagnose=False)
        if verdict.correct:
            return answer
    wrong = [number for number, line in enumerate(verdict.report) if line.startswith(" NO  ")]
    raise NotCarried(" ".join(line[5:] for line in verdict.report[wrong[0] :][:2]) if wrong else verdict.report[-1])


def _fallback(asked, reason):
    if has_solutions():
        _say(f"{asked.name}: {reason}; the reference answer goes on from here.")
        return asked.reference()
    _say(f"{asked.name}: {reason}, and this folder holds no reference answer.")
    return Unsolved(asked.name)


def _say(sentence):
    print("\n".join(textwrap.wrap(sentence, WIDTH, subsequent_indent="     ", break_on_hyphens=False)))


def _part_of(asked):
    """ ", from part 1" of an exercise whose part is known, else nothing."""
    with contextlib.suppress(CourseError, ValueError):
        for part in load_unit(asked.unit).parts:
            if asked.name in [exercise.name for exercise in part.exercises]:
                return f", from part {part.number}"
    return ""


def _keep(exercise, answer, verdict):
    script = name = None
    if verdict.correct:
        try:
            script, name = script_of(answer, exercise.name)
        except NotCarried as error:
            _say(f"{exercise.name}: counts in this notebook only; it {error}.")
        except RecursionError:
            _say(f"{exercise.name}: counts in this notebook only; its source is nested too deeply.")
    try:
        store.record(exercise.unit, exercise.name, verdict.correct, verdict.mistake, script, name)
    except CourseError as error:
        if str(error) not in _said:
            _said.add(str(error))
            _say(f"(answers count in this kernel only: {str(error).rstrip('.')})")


class Unsolved:
    """Stands for an answer that is not there: calling it or asking for an attribute raises CourseError."""

    def __init__(self, exercise):
        self.exercise = exercise

    def __call__(self, *args, **kwargs):
        raise CourseError(
            f"this needs your answer to {self.exercise}, whose check has not passed yet; solve it, run its check, then "
            f"the cell with course.solved."
        )

    def __getattr__(self, name):
        if name.startswith("__"):  # Python's own questions, of pickle and copy for one
            raise AttributeError(name)
        self()
