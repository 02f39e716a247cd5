"""course update and course notebooks: a newer version of the course, and nothing of the learner's is lost."""

import json

import pytest

from course.errors import CourseError
from course.learner.copies import bring, copy_notebooks, digest, is_edited

PART = "notebooks/03_large_batch/2_part.ipynb"


def notebook(text, of=None):
    """The text of a notebook that was built with `of` in its only cell, and in which somebody wrote `text`."""
    nb = {"cells": [{"cell_type": "code", "metadata": {}, "source": [of or text], "outputs": []}]}
    sources = digest(nb)
    nb["cells"][0]["source"] = [text]
    return json.dumps(nb | {"metadata": {"course": {"sources": sources}}})


@pytest.fixture
def folders(tmp_path):
    """(old, new), two folders of the course: one that was worked in, one of a newer version."""

    def write(folder, files):
        for name, text in files.items():
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text(text)
        return tmp_path / folder

    other = PART.replace("2_part", "{}_part").format
    old = write("old", {PART: notebook("mine", of="task"), other(3): notebook("mine 3", of="task 3"),
                        other(4): notebook("task 4"), "notebooks/own.ipynb": "{}",
                        "data/answers/me/03_large_batch/LARS.json": "my answer", "data/lfw/a.jpg": "old"})  # fmt: skip
    return old, write("new", {PART: notebook("task"), other(3): notebook("another task 3"),
                              other(4): notebook("another task 4"), "data/lfw/a.jpg": "new"})  # fmt: skip


def texts(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_an_update_brings_edits_answers_and_data_and_can_be_called_twice(folders):
    old, new = folders
    before, others = texts(old), texts(new)
    said = [*bring(old, new, new / "data")]
    after = texts(new)
    assert texts(old) == before
    changed = {name: text for name, text in after.items() if others.get(name) != text}
    moved = {PART: before[PART], PART.replace("2_part", "3_part (old)"): notebook("mine 3", of="task 3")}
    answer = "data/answers/me/03_large_batch/LARS.json"
    assert changed == moved | {"notebooks/own.ipynb": "{}", answer: "my answer"}
    assert said[-1].endswith("data: 1 file of data and answers") and len(said) == 4
    assert [*bring(old, new, new / "data")][-1].endswith(": 0 files of data and answers") and texts(new) == after


def test_an_update_touches_no_work_in_the_newer_version(folders):
    old, new = folders
    (new / PART).write_text(notebook("newer work", of="task"))
    (new / PART).with_stem("3_part (old)").write_text("{}")
    before = texts(new)
    assert "notebooks/03_large_batch/3_part (old).ipynb: kept, it was there" in [*bring(old, new, new / "data")]
    after = texts(new)
    assert before.items() <= after.items() and after[PART.replace("2_part", "2_part (old)")] == texts(old)[PART]


@pytest.mark.parametrize("place", ["", "new", "old/data"])
def test_no_older_version_is_one_sentence(place, folders):
    old, new = folders
    with pytest.raises(CourseError, match="looked for the notebooks of an older version in .*, found none; name its"):
        [*bring(old.parent / place, new, new / "data")]


def test_notebooks_are_copied_and_work_in_them_is_kept(folders, tmp_path):
    dest = tmp_path / "mine"
    assert [line.rpartition(": ")[2] for line in copy_notebooks(folders[1], dest)] == ["written"] * 3
    mine = dest / PART.removeprefix("notebooks/")
    mine.write_text(notebook("mine", of="task"))
    assert is_edited(mine)
    said = [*copy_notebooks(folders[1], dest)]
    assert said[0].startswith(f"{mine}: kept (") and {line.rpartition(": ")[2] for line in said[1:]} == {"unchanged"}
    assert mine.read_text() == notebook("mine", of="task")
