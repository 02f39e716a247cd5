"""Prepare MovieLens: GroupLens' archives or local copies -> *<data>/movielens/NAME.npz* ->
course.datasets.movielens.

    python data_scripts/movielens.py ml-100k ml-1m --download
    python data_scripts/movielens.py --from FOLDER_OR_ARCHIVE

Beside the published archives it reads ml-1m.ratings.npz (columns in time order) and, for ml-1m, the
three files of the leave-one-out split of He et al. 2017
(github.com/hexiangnan/neural_collaborative_filtering, folder Data).
"""

import argparse
import gzip
import os
import re
import sys
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path

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

ID = r"[1-9]\d{0,8}"
INDEX = r"\d{1,9}"
STARS = r"(?:0\.5|[1-4](?:\.[05])?|5(?:\.0)?)"
SECONDS = r"\d{1,10}"
TO_SPACES = bytes.maketrans(b"\t,:()\r\n", b" " * 7)
CHUNK = 1 << 24  # bytes parsed at a time
LONGEST_LINE = 10_000
BLOCK = 1 << 16  # bytes downloaded at a time

LICENCE = (
    "MovieLens is for research; do not pass it on, no commercial use without permission (see its README).\n"
    "Cite: Harper and Konstan, The MovieLens Datasets: History and Context, ACM TiiS 5(4), 2015."
)


@command
def main(argv=None):
    parser = argparse.ArgumentParser(
        description="Prepare MovieLens ratings for the course.", epilog=LICENCE
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(SIZES)}; with --from, default all found",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--download",
        action="store_true",
        help=f"get NAME.zip from {HOME}; an interrupted one resumes",
    )
    source.add_argument(
        "--from", dest="path", type=Path, help="an archive as published, or a folder"
    )
    parser.add_argument(
        "--data", type=Path, help="the data folder (default: COURSE_DATA, else data/)"
    )
    parser.add_argument(
        "--mirror", default=HOME, metavar="URL", help="where --download finds NAME.zip instead"
    )
    args = parser.parse_args(argv)
    for name in args.names:
        check_name("MovieLens", name, SIZES)
    folder = prepared_folder(args.data)
    if args.download:
        if not args.names:
            raise CourseError(
                f"--download needs the names of the sets to get, of {', '.join(SIZES)}."
            )
        print(LICENCE)
        for name in args.names:
            prepare(name, download(name, folder, args.mirror), folder)
        return
    if not os.path.exists(args.path):
        raise CourseError(
            f"--from {args.path}: there is no such file or folder, or it may not be entered."
        )
    names = args.names or [
        name for name in SIZES if has_ratings(name, args.path) or has_split(name, args.path)
    ]
    if not names:
        wanted = ", ".join([*RAW.values(), ORDERED, NCF[0]])
        raise CourseError(
            f"found nothing of MovieLens in {args.path}; looked for {wanted}, and for NAME.zip."
        )
    print(LICENCE)
    for name in names:
        prepare(name, args.path, folder)


def prepare(name, path, folder):
    """Write NAME.npz, and for ml-1m the published split, from the files found at `path` into
    `folder`.

    Raises: CourseError if there is neither, or what is there is damaged or not `name`.
    """
    ratings, split = has_ratings(name, path), has_split(name, path)
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


def has_ratings(name, path):
    """True if `path` has ratings of set `name`."""
    return bool(locate(name, path, RAW[name]) or (name == "ml-1m" and locate(name, path, ORDERED)))


def has_split(name, path):
    """True if `path` has files of the published split, which exists for ml-1m only."""
    return name == "ml-1m" and any(locate(name, path, file) for file in NCF)


def locate(name, path, file):
    """Where `file` of set `name` is: (path, None), or (archive, member) for one in a zip archive,
    or None.

    Args:
        path: an archive, or a folder that holds the file (plain or .gz) or NAME.zip, or a
            sub-folder NAME that does.
    """
    if os.path.isfile(path):
        with damage_explained(path), zipfile.ZipFile(path) as archive:
            members = [
                member for member in (f"{name}/{file}", file) if member in archive.namelist()
            ]
        return (path, members[0]) if members else None
    for folder in (path, path / name):
        for candidate in (folder / file, folder / f"{file}.gz"):
            if os.path.isfile(candidate):
                return candidate, None
        if os.path.isfile(folder / f"{name}.zip"):
            return locate(name, folder / f"{name}.zip", file)
    return None


@contextmanager
def open_raw(path, member):
    """Open the file `path` (unpacked if .gz), or one member of the archive `path`, as a binary
    stream.
    """
    with damage_explained(path):
        if member is None:
            with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as stream:
                yield stream
        else:
            with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
                yield stream


@contextmanager
def damage_explained(path):
    """Turn a failure to read `path` inside the block into a CourseError."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        gzip.BadGzipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
    ) as error:
        raise CourseError(
            f"{path} is not a whole archive of its kind ({error}); get it again."
        ) from None
    except OSError as error:
        raise CourseError(f"could not read {path}: {error.strerror or error}.") from None


def read_ratings(name, path):
    """A dict of the arrays that course.datasets.movielens.load expects, for the ratings of set
    `name` at `path`.

    Rows by user, then time, rows of the same second as they stand in the file; ids from 0 in the
    order of the published ids; a pair's later duplicates are left out.
    Raises: CourseError for a broken line or another number of users, items or ratings than
    published.
    """
    if place := locate(name, path, RAW[name]):
        users, items, ratings, timestamps = read_text(name, *place)
        order = np.lexsort((timestamps, users))
    else:
        place = locate(name, path, ORDERED)
        users, items, ratings, timestamps = read_ordered(*place)
        # its order in time is complete, its timestamps are not
        order = np.argsort(users, kind="stable")
    user_ids, users = np.unique(users[order], return_inverse=True)
    item_ids, items = np.unique(items[order], return_inverse=True)
    found, published = (len(user_ids), len(item_ids), len(users)), SIZES[name]
    if found != published:
        raise CourseError(
            f"{place[1] or place[0]} holds {describe(found)}, but {name} has {describe(published)}; "
            "it is cut short or another set: get it again."
        )
    _, first = np.unique(users * len(item_ids) + items, return_index=True)
    keep = np.sort(first)
    return {
        "users": users[keep].astype(np.int32),
        "items": items[keep].astype(np.int32),
        "ratings": ratings[order][keep].astype(np.float32),
        "timestamps": timestamps[order][keep].astype(np.int64),
        "n_users": len(user_ids),
        "n_items": len(item_ids),
    }


def describe(size):
    return "{:,} users, {:,} items and {:,} ratings".format(*size)


def read_text(name, path, member):
    """[users, items, ratings, timestamps], numpy (n,), of a published ratings file, in its order
    and with its ids.
    """
    label, separator, n = member or path, SEPARATOR[name], SIZES[name][2]
    line, expected = (
        separator.join([ID, ID, STARS, SECONDS]),
        separator.join(["user", "item", "stars", "seconds"]),
    )
    header, read, blocks = name == "ml-20m", 0, []
    with (
        open_raw(path, member) as stream,
        tqdm(total=n, desc=name, unit=" rows", unit_scale=True, disable=None) as bar,
    ):
        if header and (first := stream.readline(LONGEST_LINE).rstrip()) != CSV_HEADER:
            raise broken_line(label, 1, first, CSV_HEADER.decode())
        for block in read_rows(stream, label, line, expected, skip=int(header)):
            users, items, stars, seconds = block.T
            blocks.append(
                [
                    users.astype(np.int32),
                    items.astype(np.int32),
                    stars.astype("f4"),
                    seconds.astype(int),
                ]
            )
            bar.update(len(block))
            read += len(block)
            if read > n:  # stop before a larger set fills the memory
                raise CourseError(
                    f"{label} holds more than the {n:,} ratings of {name}; it is another set."
                )
    if not read:
        raise CourseError(f"{label} holds no ratings; get it again.")
    return [np.concatenate(column) for column in zip(*blocks, strict=True)]


def read_rows(stream, label, line, expected, skip=0):
    """Yield the numbers in `stream` in blocks, float64 (rows, numbers per line), a few MB of text
    at a time.

    Args:
        line: regular expression that every line must match, without its end.
        expected: the same in words, for messages.
        skip: lines already read, for the line number.

    Raises: CourseError that names the first line that does not match.
    """
    ending = r"\r?\n"
    good = re.compile(f"(?:{line}{ending})*+".encode())
    while block := stream.read(CHUNK):
        block += stream.readline(LONGEST_LINE)
        if not good.fullmatch(block):
            whole = good.match(block).end()
            n = skip + block.count(b"\n", 0, whole) + 1
            raise broken_line(label, n, block[whole:].split(b"\n", 1)[0], expected)
        rows = block.count(b"\n")
        yield np.fromstring(block.translate(TO_SPACES), sep=" ").reshape(rows, -1)
        skip += rows


def broken_line(label, n, line, expected):
    shown = line[:60].decode("utf-8", "backslashreplace")
    return CourseError(
        f"{label}, line {n}: expected {expected}, found {shown!r}; get the file again."
    )


def read_ordered(path, member):
    """[users, items, ratings, timestamps], numpy (n,), of ml-1m.ratings.npz: rows in time order, 0
    for no timestamp.
    """
    names = ("user_id", "movie_id", "rating", "timestamp")
    try:
        with open_raw(path, member) as stream, np.load(stream, allow_pickle=False) as stored:
            columns = np.stack([stored[name].astype(np.int64) for name in names])
    except (ValueError, LookupError, AttributeError) as error:
        raise CourseError(f"{path} is not the file it should be ({error}); get it again.") from None
    users, items, ratings, timestamps = columns
    bad = (users < 1) | (items < 1) | (ratings < 1) | (ratings > 5) | (timestamps < 0)
    if bad.any():
        raise CourseError(
            f"{path}, row {bad.argmax() + 1}: ids from 1 and ratings 1 to 5 expected; get it again."
        )
    return columns


def read_split(path):
    """A dict of the arrays that course.datasets.movielens.load_ncf_split expects: ids, rows,
    negatives as published.

    Raises: CourseError for a missing file, a broken line, or files that do not belong together.
    """
    places = [locate("ml-1m", path, file) for file in NCF]
    if None in places:
        raise CourseError(
            f"the NCF split in {path} lacks {NCF[places.index(None)]}; it needs {', '.join(NCF)}."
        )
    n_users, n_items, n = SIZES["ml-1m"]
    pairs = rf"{INDEX}\t{INDEX}\t{STARS}"
    train = read_table(places[0], rf"{pairs}(?:\t{SECONDS})?", "user\titem\tstars\tseconds")[:, :2]
    test = read_table(places[1], rf"{pairs}(?:\t{SECONDS})?", "user\titem\tstars\tseconds")[:, :2]
    negatives = read_table(
        places[2],
        rf"\({INDEX},{INDEX}\)(?:\t{INDEX}){{{NEGATIVES}}}",
        f"(user,item) and {NEGATIVES} items",
    )
    whole = (
        len(train) == n - n_users
        and np.array_equal(test[:, 0], np.arange(n_users))
        and np.array_equal(test, negatives[:, :2])
        and train[:, 0].max() < n_users
        and max(train[:, 1].max(), negatives[:, 1:].max()) < n_items
    )
    if not whole:
        raise CourseError(
            f"the NCF split in {path} is not whole: expected {n - n_users:,} training rows of {n_users:,} users and "
            f"{n_items:,} items, and the same test item of each user in both test files; get its three files again."
        )
    return {
        "train_users": train[:, 0],
        "train_items": train[:, 1],
        "test_items": test[:, 1],
        "test_negatives": negatives[:, 2:],
        "n_users": n_users,
        "n_items": n_items,
    }


def read_table(place, line, expected):
    """int32 (rows, columns): all numbers of a file whose lines match `line`."""
    path, member = place
    with open_raw(path, member) as stream:
        blocks = [
            block.astype(np.int32) for block in read_rows(stream, member or path, line, expected)
        ]
    return np.concatenate(blocks) if blocks else np.empty((0, 2), np.int32)


def download(name, folder, home=HOME):
    """Download NAME.zip from `home` into `folder`, unless it is already complete there, and return
    its Path.

    Raises: CourseError as download.download.
    """
    archive = folder / f"{name}.zip"
    fetch.download(f"{home.rstrip('/')}/{name}.zip", archive, f"md5:{MD5[name]}", BLOCK)
    return archive


if __name__ == "__main__":
    main(sys.argv[1:])
