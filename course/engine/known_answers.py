"""What the course knows of an exercise: wrong answers with their idea, right ones in other styles.

Both are in solutions/<unit>/answers/<exercise>.py. A mistake is one idea, so most are edits of the
reference:

    MISTAKES = {
        "summed_loss": (
            "The loss is the sum over the batch. Take the mean.",
            (".mean()", ".sum()"),
        ),
    }

A name, the sentence that names the idea, and pairs (old, new): each `old` is exactly once in the
solution cell of the master. Where the algorithm is another one the answer is written out, and so
are all right answers:

    @mistake("The batch is sorted. Keep its order.")
    def sorted_first(rows): ...

    @alternative
    def by_hand(rows): ...
"""

import functools
import linecache
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from course.errors import CourseError
from course.notebook.registry import solutions_folder
from course.notebook.solutions import exercise_parts, load_answers, load_part, solution_source

Answer = TypeVar("Answer", bound=Callable[..., Any])

_WORDS = re.compile(r"\w+|[^\w\s]")  # and signs


class Mistake(NamedTuple):
    """A known wrong answer, and the sentence that says what is wrong with it."""

    name: str
    advice: str
    answer: Any


def fault_and_fix(advice: str) -> tuple[str, str]:
    """Return the first sentence of an advice, which names the fault, and the rest, the fix."""
    fault, *fix = re.split(r"(?<=[.!?]) (?=[A-Z0-9`'\"*])", advice, maxsplit=1)
    return fault, " ".join(fix)


def mistake(advice: str) -> Callable[[Answer], Answer]:
    """A decorator: a wrong answer, and the sentence that names its idea."""

    def mark(answer: Answer) -> Answer:
        answer.advice = advice  # type: ignore[attr-defined]
        return answer

    return mark


def alternative(answer: Answer) -> Answer:
    """A decorator: a right answer in another style."""
    answer.is_alternative = True  # type: ignore[attr-defined]
    return answer


@functools.cache
def load_mistakes(unit: str, exercise: str) -> list[Mistake]:
    """The Mistakes of an exercise, in the order of their file.

    Raises: CourseError where there are no solutions, or if an edit does not fit the reference.
    """
    known = []
    for name, value in vars(load_answers(unit, exercise)).items():
        if name == "MISTAKES":
            for of_edits, (advice, *edits) in value.items():
                answer = edited(unit, exercise, of_edits, edits)
                known.append(Mistake(of_edits, advice, answer))
        elif hasattr(value, "advice"):
            known.append(Mistake(name, value.advice, value))
    return known


def load_alternatives(unit: str, exercise: str) -> list[Callable[..., Any]]:
    """The right answers in other styles, in the order of their file."""
    answers = vars(load_answers(unit, exercise)).values()
    return [answer for answer in answers if hasattr(answer, "is_alternative")]


def edited(unit: str, exercise: str, name: str, edits: Sequence[tuple[str, str]]) -> Any:
    """The reference answer with `edits` made in the source of its solution cell.

    Raises: CourseError, naming the file and the mistake, if an `old` is not there exactly once, or
        nothing changes.
    """
    part = exercise_parts(unit)[exercise]
    where = f"{solutions_folder() / unit / 'answers' / exercise}.py, {name}"
    if not edits:
        raise CourseError(f"{where}: has no edit; write (old, new) after the sentence.")
    source = solution_source(unit, exercise)
    for old, new in edits:
        source = _replaced(source, old, new, where)
    file = f"{part}:{name}"
    # tracebacks and rules read the lines
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    namespace = dict(vars(load_part(part)), __file__=file)
    try:
        exec(compile(source, file, "exec"), namespace)
    except SyntaxError as error:
        raise CourseError(
            f"{where}: the edited cell is not Python ({error}); correct the edit."
        ) from None
    return namespace[exercise]


def _replaced(source: str, old: str, new: str, where: str) -> str:
    """`source` with `old`, which is in it exactly once, replaced by `new`.

    Where a line of `old` is broken does not matter: a formatter may break it elsewhere.
    """
    if old == new:
        raise CourseError(f"{where}: replaces {old!r} by itself; write what is wrong instead.")
    if source.count(old) == 1:
        return source.replace(old, new)
    found = [match.span() for match in _pattern(old).finditer(source)]
    if len(found) != 1:
        raise CourseError(
            f"{where}: {old!r} must be in the solution cell once, found it {len(found)} times."
        )
    begin, end = found[0]
    return source[:begin] + new + source[end:]


def _pattern(code: str) -> re.Pattern[str]:
    """Matches the code with any white space between its words, and as it is at its ends."""
    head = code[: len(code) - len(code.lstrip())]
    tail = code[len(code.rstrip()) :]
    words = [re.escape(word) for word in _WORDS.findall(code.strip())]
    return re.compile(re.escape(head) + r"\s*".join(words) + re.escape(tail))
