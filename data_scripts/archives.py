"""Read files from a folder or an archive: path -> *names and bytes* -> a data script. Unpacks
nothing to disk.
"""

import gzip
import lzma
import os
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path

from course.errors import CourseError

PACKED = (".tgz", ".tar.gz", ".tar", ".zip")
DAMAGE = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError,
          UnicodeDecodeError)  # fmt: skip


def read_files(path, wanted, largest, origin):
    """Yield (name with slashes, bytes) of all files at `path`, at any depth, whose full name
    matches `wanted`.

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
        packed = sorted(
            entry for entry in path.iterdir() if entry.name.endswith(PACKED) and entry.is_file()
        )
        if found or not packed:
            return
        if len(packed) > 1:
            names = ", ".join(entry.name for entry in packed)
            raise CourseError(f"{path} holds several archives ({names}); name one of them.")
        path = packed[0]
    with _damage_explained(path):
        for name, regular, read in (
            _members_of_zip if zipfile.is_zipfile(path) else _members_of_tar
        )(path):
            if not wanted.fullmatch(name):
                continue
            if name.startswith("/") or ".." in name.split("/") or not regular:
                found = f"{path} holds {name}, a link or a way out of its folder"
                raise CourseError(f"{found}; it is not an archive of {origin}.")
            yield name, read(largest + 1)


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
    """Triples (name, whether a regular file, function (at most so many bytes) -> bytes)."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():

            def read(n, member=member):
                with archive.open(member) as stream:
                    return stream.read(n)

            # no mode, or a regular file
            yield (
                member.filename,
                (member.external_attr >> 28) in (0, 8),
                read,
            )


def _members_of_tar(path):
    """As _members_of_zip."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with (
        (gzip.open if packed else open)(path, "rb") as stream,
        tarfile.open(fileobj=stream, mode="r:") as archive,
    ):
        for member in archive:
            yield (
                member.name,
                member.isreg(),
                lambda n, member=member: archive.extractfile(member).read(n),
            )
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
