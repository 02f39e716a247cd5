"""What is special about MovieLens: invented ratings, three formats, a split; the rest is in test_data_scripts.py."""

import gzip
import hashlib
import zipfile

import movielens as script  # data_scripts/movielens.py
import numpy as np
import pytest
import torch
from raw_archives import ROWS, ratings, text

from course.checks.expected import load_solutions
from course.datasets import movielens
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


def archive(path, name, content=None, member=None):
    """`path`, now a zip archive laid out as the published one, with other members beside the ratings."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr(f"{name}/README", "made up")
        out.writestr("../escaped", "must not be unpacked")
        out.writestr(member or f"{name}/{script.RAW[name]}", text(name) if content is None else content)
    return path


def split_files(folder, train_columns=4, packed=False):
    """`folder`, with a published split of 2 users and 3 items; the last negative of user 1 is its positive."""
    folder.mkdir(exist_ok=True)
    train = [(0, 0, 5, 100), (0, 2, 3, 100), (1, 1, 2, 40)]
    files = {
        "ml-1m.train.rating": "".join("\t".join(map(str, row[:train_columns])) + "\n" for row in train),
        "ml-1m.test.rating": "0\t1\t4\t300\n1\t0\t1\t50\n",
        "ml-1m.test.negative": "(0,1)" + "\t2" * 99 + "\n(1,0)" + "\t2" * 98 + "\t0\n",
    }
    for name, content in files.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
        else:
            (folder / name).write_text(content)
    return folder


def left(tmp_path):
    """Names of all files in the data folder."""
    return sorted(path.name for path in (tmp_path / "data").rglob("*") if path.is_file())


def check_columns(ratings):
    for column, expected in BY_TIME.items():
        assert getattr(ratings, column).tolist() == expected, column
    assert (ratings.n_users, ratings.n_items, ratings.real) == (2, 3, True)
    assert [getattr(ratings, c).dtype for c in BY_TIME] == [torch.int64, torch.int64, torch.float32, torch.int64]


# ---- the stand-in


@pytest.mark.parametrize("name", ["tiny", "ml-100k"])
def test_stand_in_has_the_stated_size_and_the_laws_of_ratings(name, capsys):
    ratings = movielens.load(name)
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and "stand-in" in out
    users, items = ratings.users, ratings.items
    assert (ratings.n_users, ratings.n_items, len(users)) == movielens.STANDINS[name]
    assert not ratings.real and ratings.name == name
    assert len(torch.unique(users * ratings.n_items + items)) == len(users)
    assert users.unique().tolist() == list(range(ratings.n_users))
    assert items.unique().tolist() == list(range(ratings.n_items))
    counts = users.bincount().float()
    assert counts.min() >= 20 and counts.mean() > 1.2 * counts.median()
    same_user = users.diff() == 0
    assert (users.diff() >= 0).all() and (ratings.timestamps.diff()[same_user] >= 0).all()
    ties = (ratings.timestamps.diff()[same_user] == 0).float().mean()
    assert 0.005 < ties < 0.1
    assert ratings.ratings.unique().tolist() == [1, 2, 3, 4, 5]


def test_stand_in_holds_popularity_and_more_for_a_model_of_8_factors():
    """A truncated SVD stands for the factor model: no step size or number of epochs that it hangs on."""
    solutions = load_solutions("03_large_batch")
    ratings = movielens.load("tiny")
    users, items, n_users, n_items = ratings.users, ratings.items, ratings.n_users, ratings.n_items
    last = torch.ones_like(users, dtype=torch.bool)
    last[:-1] = users[1:] != users[:-1]
    seen = torch.zeros(n_users, n_items)
    seen[users, items] = 1
    unseen = torch.rand(n_users, n_items, generator=torch.Generator().manual_seed(0)) - seen
    candidates = torch.cat([items[last][:, None], unseen.topk(99).indices], 1)  # 99 different negatives
    train = seen.clone()
    train[users[last], items[last]] = 0
    popularity = train.sum(0)
    scaled = train / train.sum(1, keepdim=True).sqrt() / popularity.clamp(min=1) ** 0.25
    left_vectors, values, right_vectors = torch.linalg.svd(scaled, full_matrices=False)
    factors = (left_vectors[:, :8] * values[:8]) @ right_vectors[:8] * popularity**0.25
    distinct = torch.zeros_like(candidates, dtype=torch.bool)
    by_popularity, _ = solutions.rank_metrics(popularity.expand(n_users, -1).gather(1, candidates), distinct)
    by_factors, _ = solutions.rank_metrics(factors.gather(1, candidates), distinct)
    assert 0.35 < by_popularity < 0.5
    assert by_factors > by_popularity + 0.1


def test_stand_in_is_the_same_every_time_and_is_reused(tmp_path, monkeypatch):
    first = movielens.load("tiny", tmp_path / "a")
    again = movielens.load("tiny", tmp_path / "b")
    assert all(torch.equal(getattr(first, c), getattr(again, c)) for c in BY_TIME)
    digest = hashlib.sha256(first.items.numpy().tobytes() + first.timestamps.numpy().tobytes()).hexdigest()
    assert digest == DIGEST, "the generator makes other data: rename STANDIN and write the new digest here"
    monkeypatch.setattr(movielens, "make_standin", None)  # calling it would fail
    assert torch.equal(movielens.load("tiny", tmp_path / "a").items, first.items)


DIGEST = "ecd8b98734dd6aa7270c0ce999066e5aeef72d193c45c19d41e265bf189ad9a4"  # of items and timestamps of tiny


# ---- raw -> prepared -> tensors


@pytest.mark.parametrize("name", ["ml-100k", "ml-1m", "ml-20m"])
@pytest.mark.parametrize("layout", ["archive", "folder of archives", "unpacked", "folder of unpacked", "packed file"])
def test_each_published_format_in_each_layout(raw, tmp_path, capsys, name, layout):
    place = tmp_path / "raw"
    folder = place / name
    folder.mkdir(parents=True)
    if "archive" in layout:
        archive(place / f"{name}.zip", name)
    elif layout == "packed file":
        (folder / f"{script.RAW[name]}.gz").write_bytes(gzip.compress(text(name)))
    else:
        (folder / script.RAW[name]).write_bytes(text(name))
    path = {"archive": place / f"{name}.zip", "unpacked": folder}.get(layout, place)
    raw.run(name, "--from", path)
    assert "Harper and Konstan" in capsys.readouterr().out
    check_columns(movielens.load(name))
    assert capsys.readouterr().out == ""  # the line about a stand-in
    assert left(tmp_path) == [f"{name}.npz"]
    assert not list(tmp_path.rglob("escaped"))


def test_without_names_everything_found_is_prepared(raw, tmp_path):
    archive(tmp_path / "ml-20m.zip", "ml-20m")
    (tmp_path / "ml-100k").mkdir()
    (tmp_path / "ml-100k" / "u.data").write_bytes(text("ml-100k"))
    split_files(tmp_path / "ml-1m")
    raw.run("--from", tmp_path, "--data", tmp_path / "data")
    assert left(tmp_path) == ["ml-100k.npz", "ml-1m-ncf.npz", "ml-20m.npz"]


def test_ordered_columns_keep_their_order_where_timestamps_are_unknown(raw, tmp_path):
    folder = tmp_path / "ml-1m"
    folder.mkdir()
    columns = np.array([(7, 20, 5, 100), (7, 90, 3, 0), (7, 50, 4, 300), (9, 50, 2, 0), (9, 20, 1, 50)]).T
    names = ("user_id", "movie_id", "rating", "timestamp")
    np.savez(folder / "ml-1m.ratings.npz", **dict(zip(names, columns, strict=True)))
    raw.run("--from", folder)
    ratings = movielens.load("ml-1m")
    assert ratings.items.tolist() == BY_TIME["items"]
    assert ratings.timestamps.tolist() == [100, 0, 300, 0, 50]


def test_later_duplicates_of_a_pair_are_left_out(raw, tmp_path):
    rows = [*ROWS[:4], (9, 20, 2, 60), (9, 50, 2, 40)]
    movielens.SIZES["ml-100k"] = (2, 3, 6)
    (tmp_path / "u.data").write_bytes(text("ml-100k", rows))
    raw.run("ml-100k", "--from", tmp_path)
    check_columns(movielens.load("ml-100k"))


def test_blocks_and_their_line_numbers_join(raw, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "CHUNK", 5)  # every line is a block of its own
    (tmp_path / "ratings.csv").write_bytes(text("ml-20m"))
    raw.run("ml-20m", "--from", tmp_path)
    check_columns(movielens.load("ml-20m"))
    (tmp_path / "ratings.csv").write_bytes(text("ml-20m").replace(b"9,20,", b"9;20,"))
    assert "ratings.csv, line 5:" in raw.refused(capsys, "ml-20m", "--from", tmp_path)


def test_half_stars_are_kept(raw, tmp_path):
    (tmp_path / "ratings.csv").write_bytes(
        text("ml-20m").replace(b"7,20,5", b"7,20,0.5").replace(b"7,50,4", b"7,50,4.0")
    )
    raw.run("ml-20m", "--from", tmp_path)
    assert movielens.load("ml-20m").ratings.tolist() == [0.5, 3, 4, 2, 1]


@pytest.mark.parametrize("train_columns", [3, 4])
@pytest.mark.parametrize("packed", [False, True])
def test_published_split_is_read_as_it_is(raw, tmp_path, train_columns, packed):
    raw.run("ml-1m", "--from", split_files(tmp_path / "raw", train_columns, packed))
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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("7\t20\t5\t100", "7\t20\t5"),  # a column less
        ("7\t20\t5\t100", "7\t20\t5\t100\t1"),  # one more
        ("7\t20\t5\t100", ""),
        ("7\t20\t5\t100", "7 20 5 100"),
        ("7\t20", "0\t20"),
        ("7\t20", "7\t-20"),
        ("7\t20", "7\tnan"),
        ("20\t5\t", "20\t6\t"),
        ("20\t5\t", "20\t0\t"),
        ("5\t100", "5\t-100"),
        ("7\t20\t5\t100", "x" * 500),
        ("7\t20\t5\t100", "\xff\x00"),
    ],
)
def test_broken_line_is_named_and_shown_short(raw, tmp_path, capsys, old, new):
    content = text("ml-100k").replace(old.encode(), new.encode("latin-1"), 1)
    assert content != text("ml-100k")
    path = archive(tmp_path / "ml-100k.zip", "ml-100k", content)
    message = raw.refused(capsys, "ml-100k", "--from", path)
    assert "u.data, line 2:" in message and "user\titem\tstars\tseconds" in message
    assert len(message) < 300
    assert left(tmp_path) == []


def test_file_cut_within_or_between_lines(raw, tmp_path, capsys):
    (tmp_path / "u.data").write_bytes(text("ml-100k")[:-2])
    assert "line 5:" in raw.refused(capsys, "ml-100k", "--from", tmp_path)
    (tmp_path / "u.data").write_bytes(text("ml-100k", ROWS[:4]))
    assert "4 ratings, but ml-100k has 2 users, 3 items and 5" in raw.refused(capsys, "ml-100k", "--from", tmp_path)
    (tmp_path / "u.data").write_bytes(b"")
    assert "u.data holds no ratings" in raw.refused(capsys, "ml-100k", "--from", tmp_path)
    assert left(tmp_path) == []


def test_larger_set_under_the_same_file_name(raw, tmp_path, capsys):
    (tmp_path / "ratings.csv").write_bytes(text("ml-20m", ROWS + ROWS))
    assert "more than the 5 ratings of ml-20m" in raw.refused(capsys, "ml-20m", "--from", tmp_path)


def test_foreign_header(raw, tmp_path, capsys):
    (tmp_path / "ratings.csv").write_bytes(b"title,year\n")
    assert "line 1: expected userId,movieId,rating,timestamp" in raw.refused(capsys, "ml-20m", "--from", tmp_path)


def test_truncated_gz(raw, tmp_path, capsys):
    (tmp_path / "u.data.gz").write_bytes(gzip.compress(text("ml-100k"))[:-12])
    assert "u.data.gz is not a whole archive" in raw.refused(capsys, "ml-100k", "--from", tmp_path)
    assert left(tmp_path) == []


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
    assert left(tmp_path) == []


def test_ordered_columns_that_are_not(raw, tmp_path, capsys):
    for content in (b"text", b""):
        (tmp_path / "ml-1m.ratings.npz").write_bytes(content)
        assert "ml-1m.ratings.npz is not" in raw.refused(capsys, "ml-1m", "--from", tmp_path)
    np.savez(tmp_path / "ml-1m.ratings.npz", user_id=np.array([1, 1]))
    assert "ml-1m.ratings.npz is not" in raw.refused(capsys, "ml-1m", "--from", tmp_path)
    columns = {"user_id": [1, 1], "movie_id": [1, 2], "rating": [3, 9], "timestamp": [1, 1]}
    np.savez(tmp_path / "ml-1m.ratings.npz", **columns)
    assert "row 2" in raw.refused(capsys, "ml-1m", "--from", tmp_path)
    columns["rating"] = [3]
    np.savez(tmp_path / "ml-1m.ratings.npz", **columns)
    assert "must have the same shape" in raw.refused(capsys, "ml-1m", "--from", tmp_path)


def test_wrong_arguments(raw, tmp_path, capsys):
    assert "did you mean ml-1m" in raw.refused(capsys, "ml1m", "--download")
    assert "needs the names" in raw.refused(capsys, "--download")
    assert "found nothing of MovieLens" in raw.refused(capsys, "--from", tmp_path)
    assert "holds no ratings.dat" in raw.refused(capsys, "ml-1m", "--from", tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "text", "other arrays", "unequal columns", "ids out of range"])
def test_damaged_prepared_file_says_how_to_make_it_again(raw, tmp_path, damage):
    raw.run("ml-100k", "--from", archive(tmp_path / "ml-100k.zip", "ml-100k"))
    path = tmp_path / "data" / "movielens" / "ml-100k.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "text":
        path.write_text("user,item")
    elif damage == "other arrays":
        np.savez(path, a=np.arange(3))
    elif damage == "unequal columns":
        np.savez(path, **arrays | {"items": arrays["items"][1:]})
    else:
        np.savez(path, **arrays | {"n_items": 2})
    with pytest.raises(CourseError, match="delete it, or make it again: python data_scripts/movielens.py ml-100k"):
        movielens.load("ml-100k")
