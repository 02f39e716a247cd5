"""What the course knows of an exercise: wrong answers with the idea that is wrong, right answers in
other styles.

Both are in solutions/<unit>/answers/<exercise>.py. A mistake is one idea, so most are edits of the
reference:

    MISTAKES = {
        "summed_loss": ("The loss is the sum over the batch. Take the mean.", (".mean()",
        ".sum()")),
    }

A name, the sentence that names the idea, and pairs (old, new): each `old` is exactly once in the
solution cell of the master. Where the algorithm is another one the answer is written out, and so
are all right answers:

    @mistake("The batch is sorted. Keep its order.")          @alternative
    def sorted_first(rows): ...                               def by_hand(rows): ...
"""

import functools
import linecache
import re
from typing import Any, NamedTuple

from course.errors import CourseError
from course.notebook.registry import solutions_folder
from course.notebook.solutions import exercise_parts, load_answers, load_part, solution_source


class Mistake(NamedTuple):
    """A known wrong answer, and the sentence that says what is wrong with it."""

    name: str
    advice: str
    answer: Any


def fault_and_fix(advice: str) -> tuple[str, str]:
    """The first sentence of an advice, which names the fault, and the others, which say what to do;
    "" if none.
    """
    fault, *fix = re.split(r"(?<=[.!?]) (?=[A-Z0-9`'\"*])", advice, maxsplit=1)
    return fault, " ".join(fix)


def mistake(advice):
    """A decorator: a wrong answer, and the sentence that names its idea."""

    def mark(answer):
        answer.advice = advice
        return answer

    return mark


def alternative(answer):
    """A decorator: a right answer in another style."""
    answer.is_alternative = True
    return answer


@functools.cache
def load_mistakes(unit, exercise):
    """The Mistakes of an exercise, in the order of their file.

    Raises: CourseError where there are no solutions, or if an edit does not fit the reference.
    """
    known = []
    for name, value in vars(load_answers(unit, exercise)).items():
        if name == "MISTAKES":
            known += [
                Mistake(n, advice, edited(unit, exercise, n, edits))
                for n, (advice, *edits) in value.items()
            ]
        elif hasattr(value, "advice"):
            known.append(Mistake(name, value.advice, value))
    return known


def load_alternatives(unit, exercise):
    """The right answers in other styles, in the order of their file."""
    return [
        answer
        for answer in vars(load_answers(unit, exercise)).values()
        if hasattr(answer, "is_alternative")
    ]


def edited(unit, exercise, name, edits):
    """The reference answer with `edits` made in the source of its solution cell.

    Raises: CourseError, naming the file and the mistake, if an `old` is not there exactly once, or
    nothing changes.
    """
    part = exercise_parts(unit)[exercise]
    place = f"{solutions_folder() / unit / 'answers' / exercise}.py, {name}"
    source = solution_source(unit, exercise)
    for old, new in edits:
        if (times := source.count(old)) != 1:
            raise CourseError(
                f"{place}: {old!r} must be in the solution cell once, found it {times} times."
            )
        if old == new:
            raise CourseError(f"{place}: replaces {old!r} by itself; write what is wrong instead.")
        source = source.replace(old, new)
    if not edits:
        raise CourseError(f"{place}: has no edit; write (old, new) after the sentence.")
    file = f"{part}:{name}"
    namespace = dict(vars(load_part(part)), __file__=file)
    # tracebacks and rules read the lines
    linecache.cache[file] = (
        len(source),
        None,
        source.splitlines(True),
        file,
    )
    try:
        exec(compile(source, file, "exec"), namespace)
    except SyntaxError as error:
        raise CourseError(
            f"{place}: the edited cell is not Python ({error}); correct the edit."
        ) from None
    return namespace[exercise]
