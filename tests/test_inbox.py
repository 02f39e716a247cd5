"""What lies in an inbox: what is found, in which layout, and what is said about all that is left out."""

import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from submissions import UNIT, part_of

from course.errors import CourseError
from course.notebook.registry import parts
from course.system.files import write_text
from instructor.grading import inbox
from instructor.grading.inbox import check_learner, read_inbox

PART = part_of("scaled_lr")
WANTED = {UNIT: parts(UNIT)}


@pytest.fixture
def folder(tmp_path):
    """Three learners: in the folder of the unit, of another part, and flat."""
    write_text(tmp_path / "ann" / UNIT / f"{PART}.ipynb", "{}")
    write_text(tmp_path / "bob" / UNIT / f"{part_of('polynomial_decay')}.ipynb", "{}")
    write_text(tmp_path / "eve" / f"{PART}.ipynb", "{}")
    return tmp_path


def test_every_part_has_its_place_and_flat_ones_are_found(folder):
    handed_in, left_out = read_inbox(folder, WANTED)
    assert [submission.learner for submission in handed_in] == ["ann", "bob", "eve"] and not left_out
    assert all(list(submission.files) == parts(UNIT) for submission in handed_in)
    assert handed_in[0].files[PART] == folder / "ann" / UNIT / f"{PART}.ipynb"
    assert handed_in[2].files[PART] == folder / "eve" / f"{PART}.ipynb"


def test_a_flat_file_whose_name_two_units_have_is_no_submission(folder, monkeypatch):
    monkeypatch.setattr(inbox, "units", lambda: [UNIT, "other"])
    monkeypatch.setattr(inbox, "parts", lambda unit: [PART])
    handed_in, left_out = read_inbox(folder, WANTED)
    assert [submission.learner for submission in handed_in] == ["ann", "bob"]
    assert left_out == [f"eve: ignored {PART}.ipynb, outside the folder of a unit."]


def test_loose_notebooks_next_to_a_units_folder_are_read_too(folder):
    other = part_of("polynomial_decay")
    write_text(folder / "ann" / f"{other}.ipynb", "{}")
    write_text(folder / "ann" / f"{PART}.ipynb", "{}")
    write_text(folder / "ann" / "2_orders.ipynb", "{}")
    write_text(folder / "ann" / "notes.ipynb", "{}")
    handed_in, left_out = read_inbox(folder, WANTED)
    assert handed_in[0].files[other] == folder / "ann" / f"{other}.ipynb"
    assert handed_in[0].files[PART] == folder / "ann" / UNIT / f"{PART}.ipynb"
    assert [line for line in left_out if "counts for" in line] == [
        f"ann: {UNIT}/{PART}.ipynb counts for {PART}, not {PART}.ipynb."
    ]
    assert "notes.ipynb" in left_out[-1] and "outside the folder of a unit" in left_out[-1]


@pytest.mark.parametrize("ending", [" (1)", "(2)", "-Copy1", " (old)", " copy", " - Copy", "_1"])
def test_a_renamed_notebook_is_read_with_a_line(folder, ending):
    own = folder / "ann" / UNIT / f"{PART}.ipynb"
    own.rename(own.with_stem(PART + ending))
    handed_in, left_out = read_inbox(folder, WANTED)
    assert handed_in[0].files[PART] == own.with_stem(PART + ending)
    assert left_out == [f"ann: {UNIT}/{PART}{ending}.ipynb is read as {PART}."]
    write_text(own, "{}")
    handed_in, left_out = read_inbox(folder, WANTED)
    assert handed_in[0].files[PART] == own
    assert left_out == [f"ann: {UNIT}/{PART}.ipynb counts for {PART}, not {UNIT}/{PART}{ending}.ipynb."]


def test_the_latest_of_several_copies_counts_and_another_parts_name_is_none(folder):
    own = folder / "ann" / UNIT / f"{PART}.ipynb"
    own.rename(own.with_stem(f"{PART} (2)"))
    write_text(own.with_stem(f"{PART} (10)"), "{}")
    write_text(own.with_stem(f"{PART} (old)"), "{}")
    write_text(own.with_stem(f"{PART}_more"), "{}")
    handed_in, left_out = read_inbox(folder, WANTED)
    assert handed_in[0].files[PART] == own.with_stem(f"{PART} (10)")
    assert len(left_out) == 2 and f"{PART}_more.ipynb" in left_out[1]


def test_files_beside_the_learners_and_rows_of_nobody_have_a_line(folder):
    write_text(folder / "loose.ipynb", "{}")
    rows = [("ann", UNIT), ("Ann", UNIT), ("bob", "unit 3"), ("ann", "04_fast_loading")]
    lines = [f"{learner},{unit},2026-11-21T18:00" for learner, unit in rows]
    (folder / "received.csv").write_text("\n".join(["learner,unit,received", *lines]))
    _, left_out = read_inbox(folder, WANTED)
    assert left_out == [
        "loose.ipynb: a file beside the folders of learners.",
        f"received.csv: the row of Ann, {UNIT} tells of no submission in this inbox.",
        "received.csv: the row of bob, unit 3 tells of no submission in this inbox.",
    ]


def test_unknown_files_are_ignored_with_a_line(folder):
    nbgraders = ("timestamp.txt", "submission_secret.txt")
    for name in ("copy.ipynb", "torch.so", "a\x1b[31m.txt", *nbgraders, ".DS_Store", "z1", "z2"):
        write_text(folder / "ann" / UNIT / name, "")
    _, (line,) = read_inbox(folder, WANTED)
    assert line.startswith(f"ann: {UNIT}: ignored a\\x1b[31m.txt, copy.ipynb, torch.so and 2 more; its parts are")


def test_what_is_left_out_is_named_and_times_come_from_the_table_or_the_folder(folder):
    (folder / "[x]").mkdir()
    (folder / "nobody").mkdir()
    (folder / "link").symlink_to(folder / "ann")
    (folder / "bob" / UNIT / f"{part_of('polynomial_decay')}.ipynb").unlink()
    os.utime(folder / "bob" / UNIT, (1000, 1000))
    (folder / "received.csv").write_text(f"learner,unit,received\nann,{UNIT},2026-11-21T18:00+01:00\n", "utf-8-sig")
    handed_in, left_out = read_inbox(folder, WANTED)
    times = {submission.learner: submission.received for submission in handed_in}
    assert times["ann"] == datetime(2026, 11, 21, 17, tzinfo=UTC) and times["bob"] == datetime.fromtimestamp(1000, UTC)
    assert set(times) == {"ann", "bob", "eve"}, "a folder without a notebook is a submission of which all is missing"
    assert [text[:12] for text in left_out] == ["the learner'", "link: a link", "nobody: no n"]


def test_a_folder_that_is_closed_or_of_no_year_or_named_like_the_table_stops_nobody(folder, monkeypatch):
    iterdir, closed = Path.iterdir, folder / "bob" / UNIT

    def refuse(path):
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refuse)  # a superuser can read what is closed
    stat, far = Path.stat, SimpleNamespace(st_mtime=3e12, st_mode=0o40755)  # not every file system keeps such a time
    monkeypatch.setattr(Path, "stat", lambda path, **way: far if path == folder / "ann" / UNIT else stat(path, **way))
    (folder / "eve").rename(folder / "received.csv")
    handed_in, left_out = read_inbox(folder, WANTED)
    assert [submission.learner for submission in handed_in] == ["ann", "received.csv"]
    assert abs((handed_in[0].received - datetime.now(UTC)).total_seconds()) < 1000
    assert left_out == [
        f"ann: {UNIT}: its folder has no time that there is; it counts as received now.",
        "bob: its folder cannot be read (Permission denied).",
    ]


@pytest.mark.parametrize(
    "text", ["", "learner,unit\nann,3\n", "learner,unit,received\nann,3,yesterday\n", "a\0b", "\xff"]
)
def test_a_table_of_times_that_is_none_is_one_sentence(text, folder):
    (folder / "received.csv").write_text(text, "latin-1")
    with pytest.raises(CourseError, match="received.csv should be a CSV table with the columns"):
        read_inbox(folder, WANTED)


def test_an_inbox_without_submissions_says_what_was_left_out(tmp_path):
    with pytest.raises(CourseError, match="is no folder; name the inbox"):
        read_inbox(tmp_path / "missing", WANTED)
    write_text(tmp_path / "old" / f"{UNIT}.ipynb", "{}")
    with pytest.raises(CourseError, match=f"found none(.|\n)*left out: old: ignored {UNIT}"):
        read_inbox(tmp_path, WANTED)


@pytest.mark.parametrize(
    "name",
    ["", ".x", " x", "x ", "a*", "a?", "a[1]", "a/b", "a\nb", "\x1b[31m", "\udcff", "x" * 129, "<img src=x onerror=y>"]
    + ["a&amp;b", 'a"b', "a'b", "a`b", "a{{b}}", "-x", "=1+1", "a;b", "a\u202eb"],
)
def test_a_name_that_is_no_plain_one_is_refused_in_a_sentence(name):
    with pytest.raises(CourseError, match="^the learner's folder [ -~]* is left out: .* Rename it.$"):
        check_learner(name)


def test_plain_names_are_taken():
    for name in ("Zoë", "Zoe\u0308", "a+b", "学生 1", "x.y@example.org", "Müller, Anna_1234_assignsubmission_file"):
        check_learner(name)
