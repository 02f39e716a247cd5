"""The zip archive in which a learning platform gives a class's submissions -> an inbox.

    inbox = unpacked(Path("submissions.zip"), Path("build/grading"))

Moodle names a folder or a file per learner ("Ann Lee_4711_assignsubmission_file_/..."), Canvas a
file ("leeann_4711_815_1_size_matters.ipynb"), Blackboard one with the attempt. Any other archive
holds folders of learners, as an inbox does. Nothing of an archive is trusted: links, paths that
lead out and files that are too large are left out with a sentence.
"""

import os
import re
import stat
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from course.errors import CourseError
from course.system.files import atomic_folder
from instructor.grading.limits import DEFAULTS
from instructor.grading.sanitize import safe_text

MEMBERS_MAX = 100_000
BYTES_MAX = 8 * 2**30  # of all members together
# of a member's path: the learner, the number that tells two of one name apart, and what follows
PLATFORMS = (
    re.compile(r"(?P<learner>[^/]+?)_(?P<number>\d+)_assignsubmission_file_?/?(?P<rest>.+)"),
    re.compile(r"(?P<learner>[^/_]+)(?:_LATE)?_(?P<number>\d+)_\d+_(?P<rest>[^/]+)"),
    re.compile(
        r"[^/]+?_(?P<learner>[^/_]+)_(?P<number>)attempt_[\d-]{10,19}(?:_(?P<rest>[^/]+)|\.txt)"
    ),
)
NOT_PLAIN = re.compile(r"[^\w .+@,-]")  # in a learner's name, see inbox.PLAIN


class Member(NamedTuple):
    """A file of the archive that is read."""

    info: zipfile.ZipInfo
    learner: str
    number: str  # "" where the platform gives none
    rest: PurePosixPath  # its path in the learner's folder


class Unpacked(NamedTuple):
    """The inbox that an archive became, and a sentence about each file that is not in it."""

    inbox: Path
    left_out: list[str]


def unpacked(archive: Path, folder: Path, bytes_max: int = DEFAULTS.notebook_bytes) -> Unpacked:
    """Unpack `archive` to a new inbox in `folder`, which replaces an earlier one.

    The time of a learner's folder is that of the latest file in it, as the archive gives it.

    Args:
        bytes_max: a larger file is left out.

    Raises: CourseError if it cannot be read, or holds more than anybody hands in.
    """
    inbox = folder / f"inbox-{NOT_PLAIN.sub('-', archive.stem)}"
    try:
        with zipfile.ZipFile(archive) as opened, atomic_folder(inbox) as new:
            members, left_out = _members(opened, archive, bytes_max)
            for learner, of_learner in _by_learner(members).items():
                _unpack(opened, of_learner, new / learner)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise CourseError(
            f"{archive} cannot be unpacked ({error}); download it again, or unpack it and name the "
            "folder."
        ) from None
    return Unpacked(inbox, left_out)


def _members(
    opened: zipfile.ZipFile, archive: Path, bytes_max: int
) -> tuple[list[Member], list[str]]:
    """The files of the archive that are read, and a sentence about each other one."""
    infos = [info for info in opened.infolist() if not info.is_dir()]
    size = sum(info.file_size for info in infos)
    if len(infos) > MEMBERS_MAX or size > BYTES_MAX:
        raise CourseError(
            f"{archive} holds {len(infos):,} files of {size:,} bytes; at most {MEMBERS_MAX:,} of "
            f"{BYTES_MAX:,} are unpacked. Name a folder with one folder per learner."
        )
    top = _common_folder(infos)
    members = []
    left_out = []
    for info in infos:
        member = _member(info, info.filename.removeprefix(top))
        reason = _reason_against(info, bytes_max)
        if not reason and not member.learner:
            reason = "neither its name nor a folder says whose it is"
        if reason:
            left_out.append(safe_text(f"{archive.name}: {info.filename}: {reason}."))
        else:
            members.append(member)
    return members, left_out


def _common_folder(infos: Iterable[zipfile.ZipInfo]) -> str:
    """The folder that holds all folders of learners, with its slash; "" if there is none."""
    paths = [info.filename for info in infos]
    first = {path.partition("/")[0] for path in paths}
    is_deep = all(path.count("/") >= 2 for path in paths)
    return f"{first.pop()}/" if paths and len(first) == 1 and is_deep else ""


def _reason_against(info: zipfile.ZipInfo, bytes_max: int) -> str:
    """Why a file is not unpacked; "" if it is."""
    path = PurePosixPath(info.filename)
    if stat.S_ISLNK(info.external_attr >> 16):
        return "a link, which is not followed"
    if path.is_absolute() or ".." in path.parts or "\\" in info.filename:
        return "its path leads out of the archive"
    if info.file_size > bytes_max:
        return f"{info.file_size:,} bytes, more than {bytes_max:,}"
    if info.flag_bits & 1:
        return "it is encrypted"
    return ""


def _member(info: zipfile.ZipInfo, path: str) -> Member:
    for platform in PLATFORMS:
        found = platform.fullmatch(path)
        if found and found["rest"]:
            return Member(info, found["learner"], found["number"], PurePosixPath(found["rest"]))
    learner, _, rest = path.partition("/")
    return Member(info, learner if rest else "", "", PurePosixPath(rest or learner))


def _by_learner(members: Iterable[Member]) -> dict[str, list[Member]]:
    """{name of a learner's folder: members}; the number tells two learners of one name apart."""
    numbers = defaultdict(set)
    for member in members:
        numbers[member.learner].add(member.number)
    of_learner = defaultdict(list)
    for member in members:
        is_shared = len(numbers[member.learner]) > 1
        name = f"{member.learner} {member.number}" if is_shared else member.learner
        of_learner[NOT_PLAIN.sub("-", name).strip(" .+@,-_")].append(member)
    return of_learner


def _unpack(opened: zipfile.ZipFile, members: list[Member], folder: Path) -> None:
    for member in members:
        path = folder / member.rest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(opened.read(member.info))
    latest = max(member.info.date_time for member in members)
    seconds = time.mktime((*latest, 0, 0, -1))
    for place in {folder, *(folder / member.rest.parent for member in members)}:
        if place.is_dir():
            os.utime(place, (seconds, seconds))
