"""Prepare MovieLens: its archives -> *<data>/movielens/NAME.npz* -> course.datasets.movielens.

    python data_scripts/movielens.py ml-100k ml-1m --download
    python data_scripts/movielens.py --from FOLDER_OR_ARCHIVE

It reads GroupLens' archives, as published, and also ml-1m.ratings.npz (columns in time order) and,
for ml-1m, the three files of the leave-one-out split of He et al. 2017
(github.com/hexiangnan/neural_collaborative_filtering, folder Data).
"""

import argparse
import gzip
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import download as fetch
import numpy as np
from tqdm import tqdm

from course.datasets import check_name
from course.datasets.arrays import save_arrays
from course.datasets.movielens import SIZES, SPLIT, prepared_folder
from course.errors import CourseError, command

HOME = "https://files.grouplens.org/datasets/movielens"
MD5 = {  # published by GroupLens as NAME.zip.md5
    "ml-100k": "0e33842e24a9c977be4e0107933c0723",
    "ml-1m": "c4d9eecfca2ab87c1945afe126590906",
    "ml-20m": "cd245b17a1ae2cc31bb14903e1204af3",
}
RAW = {"ml-100k": "u.data", "ml-1m": "ratings.dat", "ml-20m": "ratings.csv"}
SEPARATOR = {"ml-100k": "\t", "ml-1m": "::", "ml-20m": ","}
CSV_HEADER = b"userId,movieId,rating,timestamp"
ORDERED = "ml-1m.ratings.npz"
NCF = ("ml-1m.train.rating", "ml-1m.test.rating", "ml-1m.test.negative")
NEGATIVES = 99
DAMAGE = (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, NotImplementedError)

ID = r"[1-9]\d{0,8}"
INDEX = r"\d{1,9}"
STARS = r"(?:0\.5|[1-4](?:\.[05])?|5(?:\.0)?)"
SECONDS = r"\d{1,10}"
TO_SPACES = bytes.maketrans(b"\t,:()\r\n", b" " * 7)
CHUNK_BYTES = 1 << 24  # parsed at a time
LINE_BYTES_MAX = 10_000
BLOCK_BYTES = 1 << 16  # downloaded at a time

LICENCE = (
    "MovieLens is for research; "
    "do not pass it on, no commercial use without permission (see its README).\n"
    "Cite: Harper and Konstan, The MovieLens Datasets: History and Context, ACM TiiS 5(4), 2015."
)


class Place(NamedTuple):
    """Where a file is: `path`, or a member of the archive `path`."""

    path: Path
    member: str | None = None

    @property
    def label(self) -> str | Path:
        """What messages call it."""
        return self.member or self.path


class Columns(NamedTuple):
    """Ratings with their published ids, an array (n,) each."""

    users: np.ndarray
    items: np.ndarray
    ratings: np.ndarray
    timestamps: np.ndarray  # seconds


@command
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line `argv`."""
    args = parse(argv)
    folder = prepared_folder(args.data)
    print(LICENCE)
    for name in args.names:
        source = download(name, folder, args.mirror) if args.download else args.path
        prepare(name, source, folder)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The flags, with at least one name of a set.

    Raises: CourseError if a name is unknown, or nothing of MovieLens is at --from.
    """
    parser = argparse.ArgumentParser(
        description="Prepare MovieLens ratings for the course.", epilog=LICENCE
    )
    names = f"of {', '.join(SIZES)}; with --from, default all found"
    network = f"get NAME.zip from {HOME}; an interrupted one resumes"
    local = "an archive as published, or a folder"
    data = "the data folder (default: COURSE_DATA, else data/)"
    mirror = "where --download finds NAME.zip instead"
    source = parser.add_mutually_exclusive_group(required=True)
    parser.add_argument("names", nargs="*", metavar="NAME", help=names)
    source.add_argument("--download", action="store_true", help=network)
    source.add_argument("--from", dest="path", type=Path, help=local)
    parser.add_argument("--data", type=Path, help=data)
    parser.add_argument("--mirror", default=HOME, metavar="URL", help=mirror)
    args = parser.parse_args(argv)
    for name in args.names:
        check_name("MovieLens", name, SIZES)
    if args.download:
        if not args.names:
            raise CourseError(
                f"--download needs the names of the sets to get, of {', '.join(SIZES)}."
            )
        return args
    if not os.path.exists(args.path):
        raise CourseError(
            f"--from {args.path}: there is no such file or folder, or it may not be entered."
        )
    if not args.names:
        args.names = names_at(args.path)
    if not args.names:
        wanted = ", ".join([*RAW.values(), ORDERED, NCF[0]])
        raise CourseError(
            f"found nothing of MovieLens in {args.path}; looked for {wanted}, and for NAME.zip."
        )
    return args


def names_at(path: Path) -> list[str]:
    """The names of the sets of which something is found at `path`."""
    return [name for name in SIZES if has_ratings(name, path) or has_split(name, path)]


def prepare(name: str, path: Path, folder: Path) -> None:
    """Write NAME.npz into `folder`, and for ml-1m the published split, from the files at `path`.

    Raises: CourseError if there is neither, or what is there is damaged or not `name`.
    """
    ratings = has_ratings(name, path)
    split = has_split(name, path)
    if not ratings and not split:
        raise CourseError(
            f"asked for {name}, but {path} holds no {RAW[name]}; is it another archive or folder?"
        )
    if ratings:
        columns = read_ratings(name, path)
        save_arrays(folder / f"{name}.npz", **columns)
        print(f"{name}: {len(columns['users']):,} ratings -> {folder / name}.npz")
    if split:
        columns = read_split(path)
        save_arrays(folder / f"{SPLIT}.npz", **columns)
        print(f"{SPLIT}: {len(columns['train_users']):,} training rows -> {folder / SPLIT}.npz")


def has_ratings(name: str, path: Path) -> bool:
    """True if `path` has ratings of set `name`."""
    if locate(name, path, RAW[name]):
        return True
    return name == "ml-1m" and locate(name, path, ORDERED) is not None


def has_split(name: str, path: Path) -> bool:
    """True if `path` has files of the published split, which exists for ml-1m only."""
    return name == "ml-1m" and any(locate(name, path, file) for file in NCF)


def locate(name: str, path: Path, file: str) -> Place | None:
    """The Place of `file` of set `name`, None if it is not found.

    Args:
        path: an archive, or a folder that holds the file (plain or .gz) or NAME.zip, or a
            sub-folder NAME that does.
    """
    if os.path.isfile(path):
        with damage_explained(path), zipfile.ZipFile(path) as archive:
            members = archive.namelist()
        for member in (f"{name}/{file}", file):
            if member in members:
                return Place(path, member)
        return None
    for folder in (path, path / name):
        for candidate in (folder / file, folder / f"{file}.gz"):
            if os.path.isfile(candidate):
                return Place(candidate)
        if os.path.isfile(folder / f"{name}.zip"):
            return locate(name, folder / f"{name}.zip", file)
    return None


@contextmanager
def open_raw(place: Place) -> Iterator[IO[bytes]]:
    """Open the file at `place` as a binary stream, unpacked if it is a .gz or in an archive."""
    with damage_explained(place.path):
        if place.member is not None:
            with zipfile.ZipFile(place.path) as archive, archive.open(place.member) as stream:
                yield stream
        else:
            open_file = gzip.open if place.path.suffix == ".gz" else open
            with open_file(place.path, "rb") as stream:
                yield stream


@contextmanager
def damage_explained(path: Path) -> Iterator[None]:
    """Turn a failure to read `path` inside the block into a CourseError."""
    try:
        yield
    except DAMAGE as error:
        raise CourseError(
            f"{path} is not a whole archive of its kind ({error}); get it again."
        ) from None
    except OSError as error:
        raise CourseError(f"could not read {path}: {error.strerror or error}.") from None


def read_ratings(name: str, path: Path) -> dict[str, np.ndarray | int]:
    """A dict of the arrays that course.datasets.movielens.load expects of set `name`.

    Rows by user, then time, rows of the same second as they stand in the file; ids from 0 in the
    order of the published ids; a pair's later duplicates are left out.

    Raises: CourseError for a broken line or another number of users, items or ratings than
        published.
    """
    place = locate(name, path, RAW[name])
    if place:
        columns = read_text(name, place)
        order = np.lexsort((columns.timestamps, columns.users))
    else:
        place = locate(name, path, ORDERED)
        columns = read_ordered(place)
        # its order in time is complete, its timestamps are not
        order = np.argsort(columns.users, kind="stable")
    user_ids, users = np.unique(columns.users[order], return_inverse=True)
    item_ids, items = np.unique(columns.items[order], return_inverse=True)
    found = (len(user_ids), len(item_ids), len(users))
    published = SIZES[name]
    if found != published:
        raise CourseError(
            f"{place.label} holds {describe(found)}, but {name} has {describe(published)}; "
            "it is cut short or another set: get it again."
        )
    _, first = np.unique(users * len(item_ids) + items, return_index=True)
    keep = np.sort(first)
    return {
        "users": users[keep].astype(np.int32),
        "items": items[keep].astype(np.int32),
        "ratings": columns.ratings[order][keep].astype(np.float32),
        "timestamps": columns.timestamps[order][keep].astype(np.int64),
        "n_users": len(user_ids),
        "n_items": len(item_ids),
    }


def describe(size: tuple[int, int, int]) -> str:
    """Text "943 users, 1,682 items and 100,000 ratings"."""
    return "{:,} users, {:,} items and {:,} ratings".format(*size)


def read_text(name: str, place: Place) -> Columns:
    """The Columns of a published ratings file, in its order."""
    separator = SEPARATOR[name]
    n = SIZES[name][2]
    line = separator.join([ID, ID, STARS, SECONDS])
    expected = separator.join(["user", "item", "stars", "seconds"])
    header_lines = 1 if name == "ml-20m" else 0
    n_read = 0
    blocks = []
    bar = tqdm(total=n, desc=name, unit=" rows", unit_scale=True, disable=None)
    with open_raw(place) as stream, bar:
        if header_lines:
            read_header(stream, place.label)
        for block in read_rows(stream, place.label, line, expected, header_lines):
            blocks.append(_columns(block))
            bar.update(len(block))
            n_read += len(block)
            if n_read > n:  # stop before a larger set fills the memory
                raise CourseError(
                    f"{place.label} holds more than the {n:,} ratings of {name}; it is another set."
                )
    if not n_read:
        raise CourseError(f"{place.label} holds no ratings; get it again.")
    return Columns(*[np.concatenate(column) for column in zip(*blocks, strict=True)])


def _columns(block):
    """The Columns of a block of numbers, in types that take less memory."""
    users, items, stars, seconds = block.T
    return Columns(
        users.astype(np.int32),
        items.astype(np.int32),
        stars.astype(np.float32),
        seconds.astype(np.int64),
    )


def read_header(stream: IO[bytes], label: str | Path) -> None:
    """Read the first line.  Raises: CourseError if it is not CSV_HEADER."""
    first = stream.readline(LINE_BYTES_MAX).rstrip()
    if first != CSV_HEADER:
        raise broken_line(label, 1, first, CSV_HEADER.decode())


def read_rows(
    stream: IO[bytes], label: str | Path, line: str, expected: str, skip: int = 0
) -> Iterator[np.ndarray]:
    """Yield the numbers in `stream` in blocks, float64 (rows, numbers per line).

    A few MB of text are read at a time.

    Args:
        line: regular expression that every line must match, without its end.
        expected: the same in words, for messages.
        skip: lines already read, for the line number.

    Raises: CourseError that names the first line that does not match.
    """
    ending = r"\r?\n"
    good = re.compile(f"(?:{line}{ending})*+".encode())
    while block := stream.read(CHUNK_BYTES):
        block += stream.readline(LINE_BYTES_MAX)
        if not good.fullmatch(block):
            good_bytes = good.match(block).end()
            number = skip + block.count(b"\n", 0, good_bytes) + 1
            bad_line = block[good_bytes:].split(b"\n", 1)[0]
            raise broken_line(label, number, bad_line, expected)
        rows = block.count(b"\n")
        yield np.fromstring(block.translate(TO_SPACES), sep=" ").reshape(rows, -1)
        skip += rows


def broken_line(label: str | Path, number: int, line: bytes, expected: str) -> CourseError:
    """The error that says what is wrong with line `number` of a file."""
    shown = line[:60].decode("utf-8", "backslashreplace")
    return CourseError(
        f"{label}, line {number}: expected {expected}, found {shown!r}; get the file again."
    )


def read_ordered(place: Place) -> Columns:
    """The Columns of ml-1m.ratings.npz: rows in time order, 0 for no timestamp."""
    names = ("user_id", "movie_id", "rating", "timestamp")
    try:
        with open_raw(place) as stream, np.load(stream, allow_pickle=False) as stored:
            # np.stack raises ValueError if they have different lengths
            columns = Columns(*np.stack([stored[name].astype(np.int64) for name in names]))
    except (ValueError, LookupError, AttributeError) as error:
        raise CourseError(
            f"{place.path} is not the file it should be ({error}); get it again."
        ) from None
    bad_ids = (columns.users < 1) | (columns.items < 1)
    bad_stars = (columns.ratings < 1) | (columns.ratings > 5)
    bad = bad_ids | bad_stars | (columns.timestamps < 0)
    if bad.any():
        wanted = "ids from 1 and ratings 1 to 5 expected"
        raise CourseError(f"{place.path}, row {bad.argmax() + 1}: {wanted}; get it again.")
    return columns


def read_split(path: Path) -> dict[str, np.ndarray | int]:
    """A dict of the arrays that course.datasets.movielens.load_ncf_split expects.

    Ids, rows and negatives are as published.

    Raises: CourseError for a missing file, a broken line, or files that do not belong together.
    """
    places = [locate("ml-1m", path, file) for file in NCF]
    if None in places:
        missing = NCF[places.index(None)]
        raise CourseError(f"the NCF split in {path} lacks {missing}; it needs {', '.join(NCF)}.")
    n_users, n_items, n = SIZES["ml-1m"]
    rating = rf"{INDEX}\t{INDEX}\t{STARS}(?:\t{SECONDS})?"
    expected = "user\titem\tstars\tseconds"
    train = read_table(places[0], rating, expected)[:, :2]
    test = read_table(places[1], rating, expected)[:, :2]
    line = rf"\({INDEX},{INDEX}\)(?:\t{INDEX}){{{NEGATIVES}}}"
    negatives = read_table(places[2], line, f"(user,item) and {NEGATIVES} items")
    if not is_whole_split(train, test, negatives):
        raise CourseError(
            f"the NCF split in {path} is not whole: expected {n - n_users:,} training rows "
            f"of {n_users:,} users and {n_items:,} items, and the same test item of each user "
            "in both test files; get its three files again."
        )
    return {
        "train_users": train[:, 0],
        "train_items": train[:, 1],
        "test_items": test[:, 1],
        "test_negatives": negatives[:, 2:],
        "n_users": n_users,
        "n_items": n_items,
    }


def is_whole_split(train: np.ndarray, test: np.ndarray, negatives: np.ndarray) -> bool:
    """True if the three files have the rows of ml-1m, and belong together.

    Args:
        train, test: (rows, 2), user and item.
        negatives: (rows, 2 + NEGATIVES), user, test item and negatives.
    """
    n_users, n_items, n = SIZES["ml-1m"]
    if len(train) != n - n_users or train[:, 0].max() >= n_users:
        return False
    every_user_once = np.array_equal(test[:, 0], np.arange(n_users))
    if not every_user_once or not np.array_equal(test, negatives[:, :2]):
        return False
    return max(train[:, 1].max(), negatives[:, 1:].max()) < n_items


def read_table(place: Place, line: str, expected: str) -> np.ndarray:
    """int32 (rows, columns): all numbers of a file whose lines match `line`."""
    with open_raw(place) as stream:
        rows = read_rows(stream, place.label, line, expected)
        blocks = [block.astype(np.int32) for block in rows]
    return np.concatenate(blocks) if blocks else np.empty((0, 2), np.int32)


def download(name: str, folder: Path, home: str = HOME) -> Path:
    """The Path of NAME.zip in `folder`, downloaded from `home` unless it is complete there.

    Raises: CourseError as download.download.
    """
    archive = folder / f"{name}.zip"
    fetch.download(f"{home.rstrip('/')}/{name}.zip", archive, f"md5:{MD5[name]}", BLOCK_BYTES)
    return archive


if __name__ == "__main__":
    main(sys.argv[1:])
