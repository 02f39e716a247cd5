"""What is special about MovieLens: invented ratings, three formats, a split; the rest is in test_data_scripts.py."""

import gzip
import hashlib

import movielens as script  # data_scripts/movielens.py
import numpy as np
import pytest
import torch
from raw_archives import ROWS, pack, ratings, stored, text

from course.datasets import movielens
from course.datasets.arrays import read_arrays
from course.errors import CourseError

BY_TIME = {"users": [0, 0, 0, 1, 1], "items": [0, 2, 1, 1, 0], "ratings": [5, 3, 4, 2, 1]}
BY_TIME["timestamps"] = [100, 100, 300, 40, 50]


@pytest.fixture(autouse=True)
def raw(monkeypatch, tmp_path):
    """Raw sets of 5 made-up rows count as whole, and the data folder is empty."""
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))
    made = ratings(monkeypatch)
    made.arguments = []
    monkeypatch.setitem(movielens.STANDINS, "ml-100k", (943, 1682, 100_000))
    return made


def split_files(folder, train_columns=4):
    """`folder`, with a published split of 2 users and 3 items; the last negative of user 1 is its positive."""
    train = [(0, 0, 5, 100), (0, 2, 3, 100), (1, 1, 2, 40)]
    files = {
        "ml-1m.train.rating": "".join("\t".join(map(str, row[:train_columns])) + "\n" for row in train),
        "ml-1m.test.rating": "0\t1\t4\t300\n1\t0\t1\t50\n",
        "ml-1m.test.negative": "(0,1)" + "\t2" * 99 + "\n(1,0)" + "\t2" * 98 + "\t0\n",
    }
    return pack(folder, {name: content.encode() for name, content in files.items()})


def check_columns(ratings):
    for column, expected in BY_TIME.items():
        assert getattr(ratings, column).tolist() == expected, column
    assert (ratings.n_users, ratings.n_items, ratings.real) == (2, 3, True)
    assert [getattr(ratings, c).dtype for c in BY_TIME] == [torch.int64, torch.int64, torch.float32, torch.int64]


# ---- the stand-in


@pytest.mark.parametrize("name", ["tiny", "ml-100k"])
def test_stand_in_has_the_stated_size_and_the_laws_of_ratings(name):
    ratings = movielens.load(name)
    users, items = ratings.users, ratings.items
    assert (ratings.n_users, ratings.n_items, len(users), ratings.real) == (*movielens.STANDINS[name], False)
    assert len(torch.unique(users * ratings.n_items + items)) == len(users)
    assert users.unique().tolist() == list(range(ratings.n_users))
    assert items.unique().tolist() == list(range(ratings.n_items))
    counts = users.bincount().float()
    assert counts.min() >= 20 and counts.mean() > 1.2 * counts.median()
    same_user = users.diff() == 0
    assert (users.diff() >= 0).all() and (ratings.timestamps.diff()[same_user] >= 0).all()
    assert 0.005 < (ratings.timestamps.diff()[same_user] == 0).float().mean() < 0.1, "ties"
    assert ratings.ratings.unique().tolist() == [1, 2, 3, 4, 5]


def test_stand_in_is_the_same_on_every_machine():
    tiny = movielens.load("tiny")
    digest = hashlib.sha256(tiny.items.numpy().tobytes() + tiny.timestamps.numpy().tobytes()).hexdigest()
    assert digest == DIGEST, "the generator makes other data: rename STANDIN and write the new digest here"


DIGEST = "ecd8b98734dd6aa7270c0ce999066e5aeef72d193c45c19d41e265bf189ad9a4"  # of items and timestamps of tiny


# ---- raw -> prepared -> tensors


@pytest.mark.parametrize("name", ["ml-100k", "ml-1m", "ml-20m"])
@pytest.mark.parametrize("layout", ["archive", "folder of archives", "unpacked", "folder of unpacked", "packed file"])
def test_each_published_format_in_each_layout(raw, tmp_path, name, layout):
    (tmp_path / "raw").mkdir()
    folder = tmp_path / "raw" / name
    file = script.RAW[name]
    if "archive" in layout:
        pack(folder.with_suffix(".zip"), {f"{name}/{file}": text(name)})
    elif layout == "packed file":
        pack(folder, {f"{file}.gz": gzip.compress(text(name))})
    else:
        pack(folder, {file: text(name)})
    raw.run(name, "--from", {"archive": folder.with_suffix(".zip"), "unpacked": folder}.get(layout, folder.parent))
    check_columns(movielens.load(name))
    assert list(stored(tmp_path / "data")) == [f"movielens/{name}.npz"]


def test_without_names_everything_found_is_prepared(raw, tmp_path):
    pack(tmp_path / "ml-20m.zip", {"ml-20m/ratings.csv": text("ml-20m")})
    pack(tmp_path / "ml-100k", {"u.data": text("ml-100k")})
    split_files(tmp_path / "ml-1m")
    raw.run("--from", tmp_path, "--data", tmp_path / "data")
    assert {path.name for path in (tmp_path / "data").rglob("*.*")} == {"ml-100k.npz", "ml-1m-ncf.npz", "ml-20m.npz"}


def test_ordered_columns_keep_their_order_where_timestamps_are_unknown(raw, tmp_path):
    columns = {"user_id": [7, 7, 7, 9, 9], "movie_id": [20, 90, 50, 50, 20], "rating": [5, 3, 4, 2, 1]}
    np.savez(tmp_path / script.ORDERED, **columns, timestamp=[100, 0, 300, 0, 50])
    raw.run("--from", tmp_path)
    ratings = movielens.load("ml-1m")
    assert ratings.items.tolist() == BY_TIME["items"]
    assert ratings.timestamps.tolist() == [100, 0, 300, 0, 50]


def test_later_duplicates_of_a_pair_are_left_out(raw, tmp_path):
    rows = [*ROWS[:4], (9, 20, 2, 60), (9, 50, 2, 40)]
    movielens.SIZES["ml-100k"] = (2, 3, 6)
    pack(tmp_path, {"u.data": text("ml-100k", rows)})
    raw.run("ml-100k", "--from", tmp_path)
    check_columns(movielens.load("ml-100k"))


def test_blocks_and_their_line_numbers_join(raw, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "CHUNK_BYTES", 5)  # every line is a block of its own
    (tmp_path / "ratings.csv").write_bytes(text("ml-20m"))
    raw.run("ml-20m", "--from", tmp_path)
    check_columns(movielens.load("ml-20m"))
    (tmp_path / "ratings.csv").write_bytes(text("ml-20m").replace(b"9,20,", b"9;20,"))
    assert "ratings.csv, line 5:" in raw.refused(capsys, "ml-20m", "--from", tmp_path)


def test_half_stars_are_kept(raw, tmp_path):
    (tmp_path / "ratings.csv").write_bytes(text("ml-20m").replace(b"20,5", b"20,0.5").replace(b"50,4", b"50,4.0"))
    raw.run("ml-20m", "--from", tmp_path)
    assert movielens.load("ml-20m").ratings.tolist() == [0.5, 3, 4, 2, 1]


@pytest.mark.parametrize("train_columns", [3, 4])
def test_published_split_is_read_as_it_is(raw, tmp_path, train_columns):
    raw.run("ml-1m", "--from", split_files(tmp_path / "raw", train_columns))
    split = movielens.load_ncf_split()
    assert (split.train_users.tolist(), split.train_items.tolist()) == ([0, 0, 1], [0, 2, 1])
    assert split.test_items.tolist() == [1, 0]
    assert split.test_negatives.tolist() == [[2] * 99, [2] * 98 + [0]]  # the positive among them is published
    assert (split.n_users, split.n_items) == (2, 3)
    assert {split.train_users.dtype, split.test_items.dtype, split.test_negatives.dtype} == {torch.int64}


def test_missing_split_names_the_command():
    with pytest.raises(CourseError, match="python data_scripts/movielens.py ml-1m --from"):
        movielens.load_ncf_split()


# ---- bad input


LINE = "7\t20\t5\t100"  # the second


@pytest.mark.parametrize(
    "line",
    ["0\t20\t5\t100", "7\t-20\t5\t100", "7\tnan\t5\t100", "7\t20\t6\t100", "7\t20\t0\t100", "7\t20\t5\t-100",
     "7\t20\t5", LINE + "\t1", "7 20 5 100", "", "x" * 500, "\xff\x00"],
)  # fmt: skip
def test_broken_line_is_named_and_shown_short(raw, tmp_path, capsys, line):
    content = text("ml-100k").replace(LINE.encode(), line.encode("latin-1"), 1)
    path = pack(tmp_path / "ml-100k.zip", {"u.data": content})
    message = raw.refused(capsys, "ml-100k", "--from", path)
    assert "u.data, line 2:" in message and "user\titem\tstars\tseconds" in message
    assert len(message) < 300 and stored(tmp_path / "data") == {}


@pytest.mark.parametrize(
    "name, file, content, words",
    [
        ("ml-100k", "u.data", text("ml-100k")[:-2], "line 5:"),
        ("ml-100k", "u.data", text("ml-100k", ROWS[:4]), "4 ratings, but ml-100k has 2 users, 3 items and 5"),
        ("ml-100k", "u.data", b"", "u.data holds no ratings"),
        ("ml-100k", "u.data.gz", gzip.compress(text("ml-100k"), mtime=0)[:-12], "u.data.gz is not a whole archive"),
        ("ml-20m", "ratings.csv", text("ml-20m", ROWS + ROWS), "more than the 5 ratings of ml-20m"),
        ("ml-20m", "ratings.csv", b"title,year\n", "line 1: expected userId,movieId,rating,timestamp"),
        ("ml-1m", script.ORDERED, b"text", "ml-1m.ratings.npz is not"),
    ],
)
def test_file_that_is_cut_or_of_another_set(raw, tmp_path, capsys, name, file, content, words):
    (tmp_path / file).write_bytes(content)
    assert words in raw.refused(capsys, name, "--from", tmp_path)
    assert stored(tmp_path / "data") == {}


@pytest.mark.parametrize("stars, words", [([3, 9], "row 2"), ([3], "must have the same shape")])
def test_ordered_columns_that_are_not(raw, tmp_path, capsys, stars, words):
    np.savez(tmp_path / script.ORDERED, user_id=[1, 1], movie_id=[1, 2], rating=stars, timestamp=[1, 1])
    assert words in raw.refused(capsys, "ml-1m", "--from", tmp_path)


def test_split_that_is_not_whole(raw, tmp_path, capsys):
    folder = split_files(tmp_path / "raw")
    test = folder / "ml-1m.test.rating"
    test.write_text("0\t1\t4\t300\n1\t2\t1\t50\n")  # another item than in the file of negatives
    assert "is not whole" in raw.refused(capsys, "ml-1m", "--from", folder)
    test.unlink()
    assert "lacks ml-1m.test.rating" in raw.refused(capsys, "ml-1m", "--from", folder)
    split_files(folder)
    negative = folder / "ml-1m.test.negative"
    negative.write_text(negative.read_text().replace("\t2\n", "\n"))  # 98 negatives
    assert "ml-1m.test.negative, line 1" in raw.refused(capsys, "ml-1m", "--from", folder)
    assert stored(tmp_path / "data") == {}


def test_wrong_arguments(raw, tmp_path, capsys):
    assert "did you mean ml-1m" in raw.refused(capsys, "ml1m", "--download")
    assert "needs the names" in raw.refused(capsys, "--download")
    assert "found nothing of MovieLens" in raw.refused(capsys, "--from", tmp_path)
    assert "holds no ratings.dat" in raw.refused(capsys, "ml-1m", "--from", tmp_path)


@pytest.mark.parametrize("damage", [b"", b"user,item", {"items": [0]}, {"n_items": 2}])
def test_damaged_prepared_file_says_how_to_make_it_again(raw, tmp_path, damage):
    raw.run("ml-100k", "--from", pack(tmp_path / "ml-100k.zip", raw.files))
    path = tmp_path / "data" / "movielens" / "ml-100k.npz"
    if isinstance(damage, bytes):
        path.write_bytes(damage)
    else:
        np.savez(path, **read_arrays(path, movielens.FIELDS, "") | damage)
    with pytest.raises(CourseError, match="delete it, or make it again: python data_scripts/movielens.py ml-100k"):
        movielens.load("ml-100k")
