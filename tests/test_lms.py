"""An archive of a learning platform becomes an inbox, whoever made it and whatever it holds."""

import os
import zipfile
from datetime import UTC, datetime

import pytest
from submissions import UNIT, part_of

from course.errors import CourseError
from course.notebook.registry import parts
from instructor.grading import lms
from instructor.grading.inbox import read_inbox
from instructor.grading.lms import unpacked

PART = part_of("scaled_lr")
FILE = f"{PART}.ipynb"
WANTED = {UNIT: parts(UNIT)}


@pytest.fixture
def archive(tmp_path):
    """A function: {path: text} -> a zip archive that holds them."""

    def write(members, name="Unit 3 (submissions).zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as made:
            for path, text in members.items():
                made.writestr(path if isinstance(path, zipfile.ZipInfo) else zipfile.ZipInfo(path), text)
        return tmp_path / name

    return write


def handed_in(archive, tmp_path):
    """{learner: the text of PART}, and what was left out."""
    found, left_out = read_inbox(unpacked(archive, tmp_path / "build").inbox, WANTED)
    return {one.learner: one.files[PART].read_text() for one in found if one.files[PART].exists()}, left_out


ATTEMPT = "hw3_leeann_attempt_2026-11-21-10-00-00"
PLATFORMS = {
    "moodle": (
        [f"Ann Lee_4711_assignsubmission_file_/{FILE}", f"Bo_12_assignsubmission_file_{FILE}"],
        ["Ann Lee", "Bo"],
    ),
    "one name": (
        [f"Ann_1_assignsubmission_file_/{UNIT}/{FILE}", f"Ann_2_assignsubmission_file_/{FILE}"],
        ["Ann 1", "Ann 2"],
    ),
    "odd name": ([f"O'Brien, Zoë_7_assignsubmission_file_/{FILE}"], ["O-Brien, Zoë"]),
    "canvas": ([f"leeann_4711_815_{FILE}", f"bo_LATE_4712_816_{PART}-1.ipynb"], ["leeann", "bo"]),
    "blackboard": ([f"{ATTEMPT}_{FILE}", f"{ATTEMPT}.txt"], ["leeann"]),
    "folders": ([f"ann/{UNIT}/{FILE}", f"bo/{FILE}"], ["ann", "bo"]),
    "one folder": ([f"all/ann/{UNIT}/{FILE}", f"all/bo/{FILE}"], ["ann", "bo"]),
}


@pytest.mark.parametrize(("paths", "learners"), PLATFORMS.values(), ids=PLATFORMS)
def test_learners_are_found_as_platforms_name_them(paths, learners, archive, tmp_path):
    found, _ = handed_in(archive(dict(zip(paths, "ab", strict=False))), tmp_path)
    assert found == dict(zip(learners, "ab", strict=False))


def test_the_time_is_that_of_the_archive(archive, tmp_path):
    info = zipfile.ZipInfo(f"ann/{UNIT}/{FILE}", (2026, 3, 1, 12, 0, 0))
    inbox, _ = unpacked(archive({info: "a"}), tmp_path / "build")
    (one,), _ = read_inbox(inbox, WANTED)
    assert one.received == datetime(2026, 3, 1, 12).astimezone(UTC)


def test_what_is_left_out_has_a_line_and_nothing_leads_out(archive, tmp_path):
    link = zipfile.ZipInfo("ann/link.ipynb")
    link.external_attr = 0o120777 << 16
    members = {
        f"ann/{FILE}": "a",
        "../out.ipynb": "x",
        "/abs.ipynb": "x",
        link: "/etc/passwd",
        FILE: "x",
        "ann/big.ipynb": "x" * 99,
    }
    _, left_out = unpacked(archive(members), tmp_path / "build", bytes_max=50)
    assert len(left_out) == 5
    said = " ".join(left_out)
    for reason in ("leads out", "a link", "says whose it is", "99 bytes"):
        assert reason in said
    files = [path for path in (tmp_path / "build").rglob("*") if path.is_file()]
    assert [path.name for path in files] == [FILE] and not (tmp_path / "out.ipynb").exists()


def test_a_newer_archive_replaces_the_inbox_and_a_broken_one_leaves_it(archive, tmp_path):
    unpacked(archive({f"ann/{FILE}": "a"}), tmp_path / "build")
    newer = archive({f"ann/{FILE}": "b"})
    assert handed_in(newer, tmp_path)[0] == {"ann": "b"}
    os.truncate(newer, 10)
    with pytest.raises(CourseError, match="cannot be unpacked .*download it again"):
        unpacked(newer, tmp_path / "build")
    inbox = next((tmp_path / "build").iterdir())
    assert (inbox / "ann" / FILE).read_text() == "b"


def test_an_archive_of_more_than_anybody_hands_in_is_refused(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(lms, "BYTES_MAX", 10)
    with pytest.raises(CourseError, match="holds 1 files of 11 bytes; at most"):
        unpacked(archive({f"ann/{FILE}": "x" * 11}), tmp_path / "build")
    assert not (tmp_path / "build").exists() or not list((tmp_path / "build").iterdir())
