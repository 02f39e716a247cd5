"""What is left of the outputs of executed notebooks."""

import nbformat
import pytest

from instructor.authoring.execute import drop_cleared_bars

pytestmark = pytest.mark.check


def _left(*texts):
    """The texts that are left of a cell that printed `texts`."""
    cell = nbformat.v4.new_code_cell("train()")
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text) for text in texts]
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("words"), cell])
    drop_cleared_bars(nb)
    return [output.text for output in nb.cells[1].outputs]


def test_a_bar_that_was_cleared_leaves_nothing():
    assert _left("          \r", "done\n") == ["done\n"]
    assert _left("  4/8\r       \rtwo workers\n\nfour\n") == ["two workers\n\nfour\n"]


def test_a_bar_that_stays_keeps_its_last_state():
    assert _left("1/2\r2/2\n") == ["2/2\n"]


def test_other_lines_stay_as_they_are():
    text = "  x  y \n\n   \n"
    assert _left(text) == [text]
