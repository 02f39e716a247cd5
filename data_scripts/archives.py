"""Read files from a folder or an archive: path -> *names and bytes* -> a data script.

Nothing is unpacked to disk.
"""

import gzip
import lzma
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from course.errors import CourseError

PACKED = (".tgz", ".tar.gz", ".tar", ".zip")
DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
    UnicodeDecodeError,
)


class _Member(NamedTuple):
    """A member of an archive."""

    name: str
    is_regular: bool  # a file, not a link or a device
    read: Callable[[int], bytes]  # at most so many bytes


def read_files(
    path: Path, wanted: re.Pattern[str], largest: int, origin: str
) -> Iterator[tuple[str, bytes]]:
    """Yield (name with slashes, bytes) of the files at `path` whose full name matches `wanted`.

    They may be at any depth.

    Args:
        path: an archive, or a folder with such files, or a folder with one archive.
        wanted: compiled regular expression.
        largest: of a longer file, only this many bytes and one more are read.
        origin: name of the data set, for messages.

    Raises: CourseError for a damaged or unsafe archive, or several of them.
    """
    if os.path.isdir(path):
        found = False
        for file in _read_folder(path, wanted, largest):
            found = True
            yield file
        archive = _only_archive(path)
        if found or archive is None:
            return
        path = archive
    with _damage_explained(path):
        members = _members_of_zip if zipfile.is_zipfile(path) else _members_of_tar
        for member in members(path):
            name = member.name
            if not wanted.fullmatch(name):
                continue
            if name.startswith("/") or ".." in name.split("/") or not member.is_regular:
                unsafe = f"{path} holds {name}, a link or a way out of its folder"
                raise CourseError(f"{unsafe}; it is not an archive of {origin}.")
            yield name, member.read(largest + 1)


def _only_archive(folder):
    """The archive in `folder`, None if there is none.  Raises: CourseError if there are several."""
    entries = [entry for entry in folder.iterdir() if entry.name.endswith(PACKED)]
    archives = sorted(entry for entry in entries if entry.is_file())
    if len(archives) > 1:
        names = ", ".join(archive.name for archive in archives)
        raise CourseError(f"{folder} holds several archives ({names}); name one of them.")
    return archives[0] if archives else None


def _read_folder(folder, wanted, largest):
    for place, folders, files in os.walk(folder):
        folders.sort()
        for file in sorted(files):
            path = Path(place) / file
            name = path.relative_to(folder).as_posix()
            if wanted.fullmatch(name) and not path.is_symlink():
                with _damage_explained(path), open(path, "rb") as stream:
                    content = stream.read(largest + 1)
                yield name, content


def _members_of_zip(path):
    """The _Members of a .zip archive."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():

            def read(n, member=member):
                with archive.open(member) as stream:
                    return stream.read(n)

            file_type = member.external_attr >> 28
            is_regular = file_type in (0, 8)  # no mode, or a regular file
            yield _Member(member.filename, is_regular, read)


def _members_of_tar(path):
    """The _Members of a .tar archive, packed with gzip or not."""
    with open(path, "rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    open_stream = gzip.open if is_packed else open
    with (
        open_stream(path, "rb") as stream,
        tarfile.open(fileobj=stream, mode="r:") as archive,
    ):
        for member in archive:

            def read(n, member=member):
                return archive.extractfile(member).read(n)

            yield _Member(member.name, member.isreg(), read)
        # tarfile accepts any end; a complete archive ends with two empty blocks
        if len(stream.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
            raise EOFError("it ends early")
        while stream.read(1 << 20):  # to the checksum at the very end
            pass


@contextmanager
def _damage_explained(path):
    """Turn a failure to read `path` inside the block into a CourseError."""
    try:
        yield
    except DAMAGE as error:
        raise CourseError(
            f"{path} is not a whole .tgz, .tar or .zip archive ({error}); get it again."
        ) from None
    except OSError as error:
        raise CourseError(f"could not read {path}: {error.strerror or error}.") from None
