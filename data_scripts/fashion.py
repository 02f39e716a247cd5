"""Prepare Fashion-MNIST: its four files -> *<data>/fashion/* -> course.datasets.fashion.

    python data_scripts/fashion.py --download
    python data_scripts/fashion.py --from FOLDER_OR_ARCHIVE

Takes the files packed, as published and as in github.com/zalandoresearch/fashion-mnist (folder
data/fashion), or unpacked, as in Kaggle's archive. MNIST and others have files of the same names
and sizes, so the content is compared with what was published.
"""

import argparse
import gzip
import hashlib
import io
import os
import re
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from archives import read_files
from download import download

from course.datasets.fashion import FILES, SIZES, prepared_folder
from course.errors import CourseError, command
from course.system.files import atomic_folder

# no https there; the checksums protect instead
HOME = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
MD5 = {  # as in torchvision (torchvision/datasets/mnist.py)
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
SHA256 = (  # of what is in these files, however it is packed
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)
UNPACKED = dict(zip(FILES, SHA256, strict=True))
ANY_FILE = "|".join(file.removesuffix(".gz") for file in FILES)
FILE = re.compile(rf"(?P<root>(?:.*/)?)(?P<file>{ANY_FILE})(?P<packed>\.gz)?")
FILE_BYTES_MAX = 1 << 26  # the training images have 47 MB unpacked
BLOCK_BYTES = 1 << 18  # downloaded at a time
ADVICE = (
    "Make room or get write permission there, or choose another folder with --data; "
    "what was there is unchanged."
)

LICENCE = (
    "Fashion-MNIST: MIT licence, copyright 2017 Zalando SE; keep this notice with copies.\n"
    "Cite: Xiao, Rasul and Vollgraf, Fashion-MNIST: a Novel Image Dataset for Benchmarking "
    "Machine Learning Algorithms, arXiv:1708.07747, 2017."
)


class Found(NamedTuple):
    """One of the four files, as it was found."""

    label: str  # where
    is_packed: bool
    content: bytes


@command
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line `argv`."""
    args = parse(argv)
    target = prepared_folder(args.data)
    print(LICENCE)
    prepare(args.path or get_files(target.with_name("raw"), args.mirror or HOME), target)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The flags.  Raises: CourseError if they contradict each other, or name a missing path."""
    parser = argparse.ArgumentParser(
        description="Prepare Fashion-MNIST for the course.", epilog=LICENCE
    )
    source = parser.add_mutually_exclusive_group(required=True)
    network = f"get four files, 31 MB, from {HOME}; resumes"
    local = "a folder, or a .tgz, .tar or .zip archive, with them"
    data = "the data folder (default: COURSE_DATA, else data/)"
    mirror = "where --download finds the four files instead"
    source.add_argument("--download", action="store_true", help=network)
    source.add_argument("--from", dest="path", type=Path, help=local)
    parser.add_argument("--data", type=Path, help=data)
    parser.add_argument("--mirror", metavar="URL", help=mirror)
    args = parser.parse_args(argv)
    if args.path and args.mirror:
        raise CourseError("--mirror belongs to --download; --from takes what it finds.")
    if args.path and not os.path.exists(args.path):
        raise CourseError(
            f"--from {args.path}: there is no such file or folder, or it may not be entered."
        )
    return args


def get_files(folder: Path, home: str = HOME) -> Path:
    """Download the four files from `home` unless they are in `folder` already; return `folder`.

    Raises: CourseError as download.download.
    """
    for file in FILES:
        download(f"{home.rstrip('/')}/{file}", folder / file, f"md5:{MD5[file]}", BLOCK_BYTES)
    return folder


def prepare(path: Path, target: Path) -> None:
    """Replace the folder `target` by the four files found at `path`, once all of them are complete.

    Raises: CourseError if one is missing, damaged or of another set, or if there are several sets
        of them.
    """
    found = find(path)
    missing = [file for file in FILES if file not in found]
    if missing:
        what = "nothing" if len(missing) == len(FILES) else "not all"
        lacks = f"it lacks {', '.join(missing)}, packed or not"
        raise CourseError(f"found {what} of Fashion-MNIST in {path}; {lacks}.")
    contents = {file: checked(file, found[file]) for file in FILES}
    with atomic_folder(target, ADVICE) as new:
        for file, content in contents.items():
            (new / file).write_bytes(content)
    print("{:,} training and {:,} test images -> {}".format(*SIZES["fashion"], target))


def find(path: Path) -> dict[str, Found]:
    """{one of FILES: Found} of the files at `path`.

    Raises: CourseError if there are several sets, or one file twice.
    """
    found = {}
    roots = set()
    for label, content in read_files(path, FILE, FILE_BYTES_MAX, "Fashion-MNIST"):
        match = FILE.fullmatch(label)
        file = f"{match['file']}.gz"
        is_packed = bool(match["packed"])
        roots.add(match["root"])
        if len(roots) > 1:
            sets = ", ".join(sorted(roots))
            raise CourseError(f"{path} holds several sets ({sets}); name one of them.")
        if file in found and found[file].is_packed == is_packed:
            raise CourseError(f"{path} holds {label} twice; get it again.")
        if file not in found or is_packed:  # torchvision leaves both, packed and unpacked
            found[file] = Found(f"{path}: {label}", is_packed, content)
    return found


def checked(file: str, found: Found) -> bytes:
    """The bytes of `file`, one of FILES: what was `found`, packed if it is not packed yet.

    Raises: CourseError with its label if it is damaged or of another set.
    """
    unpacked = found.content
    if found.is_packed:
        try:
            unpacked = gzip.GzipFile(fileobj=io.BytesIO(unpacked)).read(FILE_BYTES_MAX + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            damage = f"{found.label} is not a whole .gz file ({error})"
            raise CourseError(f"{damage}; get it again.") from None
    if hashlib.sha256(unpacked).hexdigest() != UNPACKED[file]:
        raise CourseError(
            f"{found.label} has other content than Fashion-MNIST as published "
            f"({len(unpacked):,} bytes unpacked): it is damaged, or from MNIST, whose files have "
            "the same names. Get it again."
        )
    if found.is_packed:
        return found.content
    return gzip.compress(found.content, compresslevel=1, mtime=0)


if __name__ == "__main__":
    main(sys.argv[1:])
