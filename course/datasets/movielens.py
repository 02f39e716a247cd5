"""MovieLens ratings as tensors: prepared files -> *ratings* -> split, loaders, models.

Every rating counts as an interaction (implicit feedback). The split into training and test is an
exercise, except the published one, which is read as it is.  data_scripts/movielens.py prepares the
real files; where they are missing, `load` makes a stand-in of invented people: popularity follows
Zipf's law, and users and films share a few genres, so that a factor model has something to find.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from course.datasets import check_name, data_folder, note_loaded
from course.datasets.arrays import damaged, read_arrays, standin
from course.errors import CourseError

# name -> (users, items, ratings), counted by GroupLens in the README of each set
SIZES = {
    "ml-100k": (943, 1682, 100_000),
    "ml-1m": (6040, 3706, 1_000_209),
    "ml-20m": (138_493, 26_744, 20_000_263),
}
# as large as the real set where that takes seconds, smaller for ml-20m
STANDINS = {
    "tiny": (300, 400, 20_000),
    "ml-100k": SIZES["ml-100k"],
    "ml-1m": SIZES["ml-1m"],
    "ml-20m": (20_000, 6000, 3_000_000),
}
STANDIN = "standin-{}.npz"  # rename it when the generator changes, and stand-ins are made again
REMEDY = (
    "delete it, or make it again: python data_scripts/movielens.py {} --download (or --from FILE)."
)
SPLIT = "ml-1m-ncf"
FIELDS = ("users", "items", "ratings", "timestamps", "n_users", "n_items")
SPLIT_COLUMNS = ("train_users", "train_items", "test_items", "test_negatives")
SPLIT_FIELDS = (*SPLIT_COLUMNS, "n_users", "n_items")


@dataclass(frozen=True)
class Ratings:
    """Interactions of n rows, sorted by user, then time.

    No (user, item) pair is there twice; a user has at least 2 rows.
    """

    name: str
    users: Tensor  # int64 (n,), 0 <= user < n_users
    items: Tensor  # int64 (n,), 0 <= item < n_items
    ratings: Tensor  # float32 (n,), stars from 0.5 to 5
    # int64 (n,), seconds since 1970; 0 where the source has none, the order is still right
    timestamps: Tensor
    n_users: int
    n_items: int
    real: bool  # False for a stand-in


@dataclass(frozen=True)
class Split:
    """A leave-one-out split as published.

    It has training pairs, and for each user one test item and 99 negatives.

    Source: He et al. 2017, Neural Collaborative Filtering. In 156 of the rows of ML-1M the test
    item is one of its own negatives; 1,667 test items are not the last row of the user but another
    of the same second.
    """

    name: str
    train_users: Tensor  # int64 (n,)
    train_items: Tensor  # int64 (n,)
    test_items: Tensor  # int64 (n_users,)
    test_negatives: Tensor  # int64 (n_users, 99)
    n_users: int
    n_items: int


def load(name: str = "ml-100k", folder: str | os.PathLike | None = None) -> Ratings:
    """The Ratings `name`: the prepared real set if `folder` holds it, else a stand-in.

    A stand-in is made once and kept there. Prints one line if it is a stand-in.

    Args:
        name: one of STANDINS ("tiny" exists as a stand-in only).
        folder: the data folder; default COURSE_DATA, else `data/` next to the package.

    Raises: CourseError for an unknown name, a damaged prepared file, or a folder that cannot be
        written.
    """
    check_name("MovieLens", name, STANDINS)
    folder = prepared_folder(folder)
    path = folder / f"{name}.npz"
    note_loaded(name, real=path.exists())
    if path.exists():
        return _ratings(path, name, read_arrays(path, FIELDS, REMEDY.format(name)), real=True)
    notice = "{}: stand-in, {:,} users x {:,} items, {:,} rows".format(name, *STANDINS[name])
    print(notice + f"; real: make data DATA=movielens NAMES={name}" * (name in SIZES))
    path = folder / STANDIN.format(name)
    stored = standin(path, FIELDS, lambda: make_standin(*STANDINS[name]))
    return _ratings(path, name, stored, real=False)


def load_ncf_split() -> Split:
    """The published Split of ML-1M, every row and negative as in its files.

    Raises: CourseError if it is not prepared, or damaged.
    """
    path = prepared_folder() / f"{SPLIT}.npz"
    if not path.exists():
        raise CourseError(
            f"the published NCF split is not in {path.parent}; put ml-1m.train.rating, "
            "ml-1m.test.rating and ml-1m.test.negative "
            "(hexiangnan/neural_collaborative_filtering on GitHub, folder Data) in a folder F "
            "and run: python data_scripts/movielens.py ml-1m --from F"
        )
    remedy = REMEDY.format("ml-1m")
    stored = read_arrays(path, SPLIT_FIELDS, remedy)
    columns = {field: _int64(stored[field]) for field in SPLIT_COLUMNS}
    split = Split(SPLIT, **columns, n_users=int(stored["n_users"]), n_items=int(stored["n_items"]))
    if not _fits_together(split):
        raise damaged(path, "columns that do not fit together", remedy)
    return split


def _fits_together(split):
    """True if the columns of a Split have the lengths and the ids that they must have."""
    if split.train_users.shape != split.train_items.shape:
        return False
    if not split.test_items.shape == (split.n_users,) == split.test_negatives.shape[:1]:
        return False
    items = (split.train_items, split.test_items, split.test_negatives)
    return _within(split.train_users, split.n_users) and all(
        _within(ids, split.n_items) for ids in items
    )


def prepared_folder(folder: str | os.PathLike | None = None) -> Path:
    """The Path of the prepared files: movielens/ in the data folder `folder`."""
    return data_folder(folder) / "movielens"


def make_standin(n_users: int, n_items: int, n: int) -> dict[str, np.ndarray | int]:
    """Invented ratings as a dict of FIELDS, the same on every machine: arrays of `n` rows.

    The films of a user are drawn without replacement, with probability proportional to popularity
    times exp(taste of the user . genres of the film); their order in time is random.
    """
    rng = np.random.Generator(np.random.PCG64(2017))
    counts = _interactions_per_user(rng, n_users, n_items, n)
    popularity = rng.permutation((np.arange(n_items) + 0.04 * n_items) ** -1.3)  # Zipf-Mandelbrot
    taste, genres = _taste_vectors(rng, n_users, n_items)
    quality = 0.5 * rng.standard_normal(n_items)
    items = []
    stars = []
    for user, count in enumerate(counts):
        # summed by genre in a fixed order, which a matrix product does not promise
        affinity = np.zeros(n_items)
        for weight, genre in zip(taste[user], genres, strict=True):
            affinity += weight * genre
        # the `count` first arrivals of exponential clocks are a weighted draw without replacement
        arrival = rng.standard_exponential(n_items) / (popularity * np.exp(affinity))
        chosen = rng.permutation(np.sort(np.argpartition(arrival, count)[:count]))
        items.append(chosen)
        noise = 0.9 * rng.standard_normal(count)
        stars.append(2.7 + 0.3 * affinity[chosen] + quality[chosen] + noise)
    users = np.repeat(np.arange(n_users), counts)
    items = _every_item_once(rng, np.concatenate(items), n_items)
    ratings = np.clip(np.rint(np.concatenate(stars)), 1, 5)
    return {
        "users": users.astype(np.int32),
        "items": items.astype(np.int32),
        "ratings": ratings.astype(np.float32),
        "timestamps": _timestamps(rng, counts),
        "n_users": n_users,
        "n_items": n_items,
    }


def _interactions_per_user(rng, n_users, n_items, n, fewest=20):
    """int64 (n_users,), long-tailed, sum n, each from `fewest` to half of the items."""
    extra = rng.lognormal(0.0, 1.1, n_users)
    extra *= (n - fewest * n_users) / extra.sum()
    counts = np.minimum(fewest + extra.astype(np.int64), n_items // 2)
    while missing := n - counts.sum():
        able = np.flatnonzero(counts < n_items // 2)
        counts[rng.choice(able, min(missing, len(able)), replace=False)] += 1
    return counts


def _taste_vectors(rng, n_users, n_items, n_genres=8):
    """(taste (n_users, n_genres), genres (n_genres, n_items)).

    A user likes few genres, a film has one or two.
    """
    taste = 6 * rng.dirichlet(np.full(n_genres, 0.3), n_users)
    genres = 0.3 * rng.standard_normal((n_genres, n_items))
    first, second = rng.integers(n_genres, size=(2, n_items))
    genres[second, np.arange(n_items)] += 0.5
    genres[first, np.arange(n_items)] += 1.0
    return taste, genres


def _every_item_once(rng, items, n_items):
    """`items`, with some rows of popular items given to items that nobody has seen."""
    seen = np.bincount(items, minlength=n_items)
    unseen = np.flatnonzero(seen == 0)
    popular = np.flatnonzero(seen[items] > np.median(seen))
    items[rng.choice(popular, len(unseen), replace=False)] = unseen
    return items


def _timestamps(rng, counts):
    """int64 (n,), seconds, ascending within a user.

    They are seconds apart, now and then none, sometimes weeks.
    """
    n = counts.sum()
    gaps = rng.integers(0, 40, n)
    pauses = rng.random(n) < 0.01
    gaps = gaps + pauses * rng.integers(0, 30 * 86_400, n)
    start = np.repeat(rng.integers(880_000_000, 890_000_000, len(counts)), counts)
    elapsed = np.cumsum(gaps)
    before = np.repeat(elapsed[np.cumsum(counts) - counts], counts)
    return start + elapsed - before


def _ratings(path, name, stored, real):
    """The Ratings of the arrays `stored`, which were read from `path`."""
    n_users = int(stored["n_users"])
    n_items = int(stored["n_items"])
    users = _int64(stored["users"])
    items = _int64(stored["items"])
    timestamps = _int64(stored["timestamps"])
    ratings = torch.from_numpy(stored["ratings"].astype(np.float32))
    fit = users.shape == items.shape == timestamps.shape == ratings.shape
    if not (fit and _within(users, n_users) and _within(items, n_items)):
        raise damaged(path, "columns that do not fit together", REMEDY.format(name))
    return Ratings(name, users, items, ratings, timestamps, n_users, n_items, real)


def _int64(array):
    return torch.from_numpy(array.astype(np.int64))


def _within(ids, bound):
    """True if all `ids` are from 0 to below `bound`, and there is one."""
    return len(ids) > 0 and int(ids.min()) >= 0 and int(ids.max()) < bound
