"""Of a submitted notebook all that the learner wrote comes through, in order; nothing else does."""

import json
import os
from itertools import takewhile

import nbformat
import pytest
from submissions import answered, part_of, release

from course.notebook.cells import grade_id
from instructor.grading.limits import DEFAULTS, CourseGrading
from instructor.grading.rebuild import (
    EXTRA,
    GIVEN_EDITED,
    OWN_TEXT,
    Missing,
    Unreadable,
    learners_cells,
    read_submission,
    rebuild,
)
from instructor.release.wheel import with_install_cell

PART = part_of("scaled_lr")
TEXT_PART = part_of("accumulated_step")  # it asks the free text what_else, too


def submitted(*names):
    """A submission as JSON has it."""
    return json.loads(nbformat.writes(answered(PART, names)))


def by_id(notebook):
    return {c["metadata"]["nbgrader"]["grade_id"]: c for c in notebook["cells"] if "nbgrader" in c["metadata"]}


def rebuilt(notebook, limits=DEFAULTS):
    return rebuild(release(PART), learners_cells(json.dumps(notebook).encode()), limits)


def own(source, **fields):
    return {"cell_type": "code", "id": "mine", "metadata": {}, "source": source, "outputs": []} | fields


def sources(notebook):
    return [cell.source for cell in notebook.cells]


def test_an_untouched_submission_gives_the_release_and_answers_come_through():
    assert sources(rebuilt(submitted())) == sources(release(PART))
    theirs = submitted("scaled_lr")
    right = by_id(theirs)["scaled_lr"]["source"]
    (cell,) = [cell for cell in rebuilt(theirs).cells if grade_id(cell) == "scaled_lr"]
    assert cell.source == "".join(right) and cell.source != by_id(release(PART))["scaled_lr"].source


def test_the_cell_that_installs_the_course_on_a_service_is_not_the_learners():
    theirs = with_install_cell(answered(PART, ("scaled_lr",)), "https://example.org/class.whl")
    assert sources(rebuilt(json.loads(nbformat.writes(theirs)))) == sources(rebuilt(submitted("scaled_lr")))


def test_edits_of_tests_and_metadata_have_no_effect():
    theirs = submitted("scaled_lr")
    for name, cell in by_id(theirs).items():
        cell["metadata"] |= {"tags": ["skip-execution"], "nbgrader": cell["metadata"]["nbgrader"] | {"points": 99}}
        if not name.isidentifier():
            cell["source"] = "pass"
    theirs["cells"].reverse()
    assert sources(rebuilt(theirs)) == sources(rebuilt(submitted("scaled_lr")))
    assert [cell.metadata for cell in rebuilt(theirs).cells] == [cell.metadata for cell in release(PART).cells]


def after(notebook, name):
    """The sources of the cell `name` and of those of the learner's own below it."""
    cells = list(notebook.cells)
    place = [grade_id(cell) or cell.id for cell in cells].index(name)
    below = takewhile(lambda cell: cell.id.startswith(EXTRA), cells[place + 1 :])
    return [cells[place].source, *(cell.source for cell in below)]


def with_copies(theirs, name, *texts):
    """The submission with a copy of the cell `name` below it for each text, its metadata too."""
    cell = by_id(theirs)[name]
    at = theirs["cells"].index(cell)
    theirs["cells"][at + 1 : at + 1] = [{**cell, "source": text} for text in texts]
    return theirs


def test_both_halves_and_all_copies_of_an_answer_come_through_in_order():
    theirs = with_copies(submitted(), "scaled_lr", "first = 1", "second = 2", by_id(submitted())["scaled_lr"]["source"])
    assert after(rebuilt(theirs), "scaled_lr") == ["first = 1", "second = 2"]
    theirs = with_copies(submitted("scaled_lr"), "scaled_lr", "second = 2")
    theirs["cells"].insert(theirs["cells"].index(by_id(theirs)["scaled_lr"]), own("between = 1"))
    right = "".join(by_id(submitted("scaled_lr"))["scaled_lr"]["source"])
    assert after(rebuilt(theirs), "scaled_lr") == [right, "between = 1", "second = 2"]


def test_without_metadata_the_ids_of_cells_tell():
    theirs = submitted("scaled_lr")
    for cell in theirs["cells"]:
        cell["metadata"] = {}
    assert sources(rebuilt(theirs)) == sources(rebuilt(submitted("scaled_lr")))


def test_what_was_written_into_given_cells_runs():
    theirs = submitted("scaled_lr")
    setup = by_id(theirs)["setup"]
    setup["source"] = "".join(setup["source"]) + "\nfrom functools import partial"
    mine = after(rebuilt(theirs), "setup")
    assert mine == [by_id(release(PART))["setup"].source, GIVEN_EDITED + setup["source"]]
    theirs = submitted("scaled_lr")
    unlocked = [cell for cell in theirs["cells"] if "nbgrader" not in cell["metadata"] and cell["cell_type"] == "code"]
    unlocked[0]["source"] = "def helper(): return 1"
    assert sources(rebuilt(theirs)).count("def helper(): return 1") == 1


def text_below(name, *cells):
    theirs = json.loads(nbformat.writes(answered(TEXT_PART, ())))
    at = theirs["cells"].index(by_id(theirs)[name])
    theirs["cells"][at + 1 : at + 1] = cells
    found = rebuild(release(TEXT_PART), learners_cells(json.dumps(theirs).encode()))
    return after(found, name)


def test_a_free_text_is_kept_whatever_cell_it_stands_in():
    mine = own("My answer.", cell_type="markdown")
    assert text_below("what_else", mine) == ["My answer."]
    stub = by_id(json.loads(nbformat.writes(answered(TEXT_PART, ()))))["what_else"]
    halves = [{**stub, "source": "One half."}, {**stub, "source": "The other."}]
    assert text_below("what_else", *halves, mine) == ["One half.\n\nThe other.\n\nMy answer."]
    elsewhere = submitted()
    elsewhere["cells"].insert(0, own("A note.", cell_type="markdown"))
    assert sources(rebuilt(elsewhere))[0] == OWN_TEXT + "A note."


def test_cells_of_the_learners_own_follow_what_they_followed_and_are_marked():
    theirs = submitted()
    at = theirs["cells"].index(by_id(theirs)["scaled_lr"])
    theirs["cells"].insert(at + 1, own("helper = 1"))
    theirs["cells"].insert(0, own("first = 1"))
    theirs["cells"].append(own("skipped = 1", metadata={"tags": ["experiment"]}))
    cells = rebuilt(theirs).cells
    assert cells[0].source == "first = 1" and cells[0].id.startswith(EXTRA)
    place = [grade_id(cell) for cell in cells].index("scaled_lr")
    assert cells[place + 1].source == "helper = 1" and "skipped = 1" not in [cell.source for cell in cells]


def test_more_cells_than_anybody_reads_and_long_ones_are_dropped():
    theirs = submitted()
    theirs["cells"] += [own(f"x = {number}", id=f"c{number}") for number in range(10)]
    few = rebuilt(theirs, CourseGrading(added_cells=3))
    assert len(few.cells) == len(release(PART).cells) + 3
    longest = DEFAULTS.cell_characters
    theirs["cells"] = [own("#" * longest, id=f"c{number}") for number in range(3)]
    short = rebuilt(theirs, CourseGrading(added_characters=2 * longest))
    assert len(short.cells) == len(release(PART).cells) + 2
    theirs["cells"] = [own("#" * (longest + 1))]
    assert not [cell for cell in rebuilt(theirs).cells if cell.id.startswith(EXTRA)]


@pytest.mark.parametrize("data", [
    b"", b"print(1)", b"[]", b'{"cells": 3}', b'{"worksheets": []}', b"\xff", "{}".encode("utf-16"), b"[" * 1_000_000,
    b'{"cells": [{"metadata":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}]}",
    b'{"cells": ' + b"1" * 100_000 + b"}",
], ids=range(10))  # fmt: skip
def test_what_is_no_notebook_is_unreadable(data):
    with pytest.raises(Unreadable, match="not a notebook"):
        learners_cells(data)


@pytest.mark.parametrize(("data", "said"), [
    (b'{"cells": [\n<<<<<<< HEAD\n]}', "line 2 holds a merge marker"), (b"<!DOCTYPE html>", "web page"),
    (b"  \n", "empty"), (b"PK\x03\x04", "zip"), (b"%PDF-1.4", "PDF"), (b"print(1)", "other text"),
    (b'{"cells": [', "cut off"),
])  # fmt: skip
def test_what_is_no_notebook_is_named_for_what_it_is(data, said):
    with pytest.raises(Unreadable, match=said):
        learners_cells(data)


def test_a_mark_in_front_and_a_format_that_does_not_exist_are_no_reason_to_refuse():
    theirs = submitted("scaled_lr")
    data = b"\xef\xbb\xbf" + json.dumps(theirs | {"nbformat": 99, "nbformat_minor": -1}).encode()
    assert sources(rebuild(release(PART), learners_cells(data))) == sources(rebuilt(theirs))


def test_odd_cells_are_passed_over():
    odd = [None, 3, {}, {"source": 5}, {"source": ["a", 1]}, {"source": "x", "metadata": []}]
    assert [cell[3] for cell in learners_cells(json.dumps({"cells": odd}).encode())] == ["", "x"]


def test_files_that_are_not_ordinary_are_unreadable_and_missing_ones_missing(tmp_path):
    (tmp_path / "real.ipynb").write_text("{}")
    (tmp_path / "link.ipynb").symlink_to(tmp_path / "real.ipynb")
    (tmp_path / "folder.ipynb").mkdir()
    os.mkfifo(tmp_path / "pipe.ipynb")
    (tmp_path / "huge.ipynb").touch()
    os.truncate(tmp_path / "huge.ipynb", 60_000_000)
    assert read_submission(tmp_path / "real.ipynb") == b"{}"
    for name, said in (
        ("link", "links are not followed"),
        ("folder", "Is a directory"),
        ("pipe", "not an ordinary file"),
        ("huge", "at most"),
    ):
        with pytest.raises(Unreadable, match=said):
            read_submission(tmp_path / f"{name}.ipynb")
    with pytest.raises(Missing, match="there is no file none.ipynb"):
        read_submission(tmp_path / "none.ipynb")
