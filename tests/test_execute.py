"""Solved notebooks are run as a learner would run them: part after part, answers kept in between, nothing on stderr."""

import os

import nbformat
import pytest

from course.errors import CourseError
from course.publish import execute

CODE = {  # keeps an answer as the checks do, and reads what an earlier part kept
    "1_a": ["import os\nopen(os.environ['COURSE_ANSWERS'] + '/one', 'w').close()"],
    "2_b": ["import os\nprint(os.listdir(os.environ['COURSE_ANSWERS']))"],
}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A unit of two small parts; what is executed is written to the folder that is given."""

    def source(unit, part):
        cells = [nbformat.v4.new_code_cell(code) for code in CODE[part]]
        cells.append(nbformat.v4.new_code_cell("print('measured')", metadata={"tags": ["experiment"]}))
        nb = nbformat.v4.new_notebook(cells=cells)
        nb.metadata.course = {"built_from": f"solutions/{unit}/{part}.py"}
        return nb

    monkeypatch.setattr(execute, "source_notebook", source)
    monkeypatch.setattr(execute, "parts", lambda unit: [*CODE])
    monkeypatch.setattr(execute, "warm_up", lambda: None)  # imports, in a process of its own
    monkeypatch.setattr(execute, "solutions_folder", lambda: tmp_path)
    return tmp_path


def outputs(path):
    return [output.text for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", [])]


@pytest.mark.parametrize("wanted", [["1_a", "2_b"], ["2_b"]])
def test_answers_of_earlier_parts_are_there_also_if_one_part_is_executed_alone(wanted, small, capfd):
    seen = []
    execute.execute("00_a", wanted, progress=seen.append)
    assert capfd.readouterr().err == "", "a kernel that starts says nothing"
    assert outputs(small / "00_a" / "2_b.ipynb") == ["['one']\n", "measured\n"]
    assert [path.stem for path in sorted(small.rglob("*.ipynb"))] == wanted
    assert seen[0] == ("  cell 1 of 2" if len(wanted) == 2 else "  cell 1 of 1"), "no experiment of an earlier part"


def test_a_cell_that_fails_is_named_and_nothing_is_written(small, monkeypatch):
    monkeypatch.setitem(CODE, "1_a", ["1 / 0"])
    with pytest.raises(CourseError, match=r"a cell of solutions/00_a/1_a.py failed:\n(.|\n)*1 / 0"):
        execute.execute("00_a", ["1_a"], progress=lambda text: None)
    assert os.listdir(small) == []


def test_a_notebook_that_gets_too_large_is_refused(small, monkeypatch):
    monkeypatch.setattr(execute, "NOTEBOOK_LIMIT", 100)
    with pytest.raises(CourseError, match="the executed 1_a has .* bytes, over 100: draw smaller figures"):
        execute.execute("00_a", ["1_a"], progress=lambda text: None)
