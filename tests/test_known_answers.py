"""Known mistakes that are edits of the reference: one that does not fit is an error that names its place."""

import pytest

from course.engine import known_answers
from course.errors import CourseError
from course.notebook.solutions import load_reference

pytestmark = pytest.mark.check
UNIT, NAME = "04_fast_loading", "gather"


def edit(*pieces):
    return known_answers.edited(UNIT, NAME, "wrong", pieces)


def test_an_edit_changes_the_solution_cell_alone():
    reference = load_reference(UNIT, NAME)
    wrong = edit(("def gather(", "HERE = 1\n\n\ndef gather("))
    assert wrong.__globals__["HERE"] == 1 and wrong.__code__.co_code == reference.__code__.co_code
    assert "HERE" not in reference.__globals__


def test_an_edit_fits_wherever_a_formatter_breaks_its_line():
    source = "    total = sum(\n        first, second\n    )\n    return total\n"
    edited = known_answers._replaced(source, "sum(first, second)", "first", "here")
    assert edited == "    total = first\n    return total\n"
    with pytest.raises(CourseError, match="found it 2 times"):
        known_answers._replaced(source + source, "sum(first, second)", "first", "here")


@pytest.mark.parametrize(
    "pieces, words",
    [
        ([("no such text", "x")], "'no such text' must be in the solution cell once, found it 0 times."),
        ([("e", "x")], r"'e' must be in the solution cell once, found it \d\d+ times."),
        ([("def gather", "def gather")], "replaces 'def gather' by itself"),
        ([("def gather", "def def")], "the edited cell is not Python"),
        ([], "has no edit"),
    ],
)
def test_an_edit_that_does_not_fit_is_an_error_with_its_file_and_name(pieces, words):
    with pytest.raises(CourseError, match=rf"answers/gather\.py, wrong: .*{words}") as info:
        edit(*pieces)
    assert "\n" not in str(info.value)
