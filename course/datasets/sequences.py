"""Sequences of very different lengths: name -> *tokens, lengths, labels* -> batches, models.

A set is stored flat: the tokens of all its sequences in a row, and the length of each sequence.
There are four sets:

- "demo": the set of asym's demonstration, with lengths 1, 4, 16 and 64. Length n occurs in
  proportion to 1 / n.
- "lognormal": lengths whose logarithm is normal, so many are short and a few are long.
- "text": lengths of the same distribution with a larger mean; each token depends on the one before.
- "histories": the films that each MovieLens user has rated, in the order of time.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from course.datasets import check_name, data_folder, movielens
from course.datasets.arrays import damaged, read_arrays, save_arrays
from course.errors import CourseError

NAMES = ("demo", "lognormal", "text", "histories")
ROWS = {"demo": 1024, "lognormal": 4096, "text": 4096}  # sequences, where nobody says how many
VOCABULARY = 8  # of the drawn sets
MARKER = 0  # a drawn sequence has label 1 if this token is in it
LENGTH_MAX = 256  # tokens of a sequence of "lognormal" and "text"
TEXT_VOCABULARY = 32
KIND_FOLLOWS_LENGTH = 1.5  # log odds of the longer kind per standard deviation of the log length
FIELDS = ("values", "lengths", "labels", "vocabulary", "real")  # of a file
REMEDY = "make it again with data_scripts/sequences.py, or remove it."


@dataclass(frozen=True)
class Sequences:
    """A set of `len(lengths)` sequences; `data[i]` is (tokens of sequence i, its label)."""

    name: str
    values: Tensor  # int64 (total,), the tokens of all sequences, one sequence after the other
    lengths: Tensor  # int64 (n,), each at least 1; their sum is total
    labels: Tensor  # float32 (n,), 0 or 1
    vocabulary: int  # tokens are 0 <= token < vocabulary
    real: bool  # False for drawn sets and stand-ins

    def __post_init__(self):
        object.__setattr__(self, "_starts", [0, *self.lengths.cumsum(0).tolist()])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.values[self._starts[i] : self._starts[i + 1]], self.labels[i]

    def longest_over_mean(self) -> float:
        """The longest length over the mean length: no batch can waste more cells per token."""
        return float(self.lengths.max() / self.lengths.float().mean())

    def summary(self) -> str:
        """A line such as "1,024 sequences with 1 to 64 tokens, 3.6 on average"."""
        low = int(self.lengths.min())
        high = int(self.lengths.max())
        mean = self.lengths.float().mean()
        invented = ", invented" if self.name == "histories" and not self.real else ""
        counted = f"{len(self):>6,} sequences with {low} to {high} tokens"
        return f"{counted}, {mean:.1f} on average{invented}"


def collate(
    samples: Sequence[tuple[Tensor, Tensor]], device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor, Tensor]:
    """One ragged batch of `samples` on `device`: all tokens in a row, the lengths, the labels.

    Args:
        samples: (tokens, label) each.

    Returns: (values int64 (total,), lengths int64 (n,), labels float32 (n,)).
    Raises: CourseError if there is no sample, or one without a token.
    """
    if not samples:
        raise CourseError(
            "a batch was asked for, but there is no sample in it; leave empty batches out."
        )
    tokens, labels = zip(*samples, strict=True)
    lengths = torch.tensor([len(of_sample) for of_sample in tokens])
    if not lengths.all():
        first_empty = int((lengths == 0).nonzero()[0])
        raise CourseError(
            f"sample {first_empty} of a batch has no token; a sequence needs at least one."
        )
    return torch.cat(tokens).to(device), lengths.to(device), torch.stack(labels).to(device)


def load(
    name: str = "demo", rows: int | None = None, folder: str | Path | None = None
) -> Sequences:
    """The set `name`, read from its file if there is one, else drawn.

    The file is <folder>/sequences/<name>.npz, which data_scripts/sequences.py writes.

    Args:
        name: one of NAMES, or the name of such a file.
        rows: how many sequences to draw, or the first how many of a file or of the users to take
            (default: ROWS, or all of them).
        folder: the data folder; default COURSE_DATA, else `data/` next to the package.

    Raises: CourseError for an unknown name, a damaged file, or fewer than one row.
    """
    file = data_folder(folder) / "sequences" / f"{name}.npz"
    if not file.exists():
        return draw(name, rows, folder=folder)
    return _head(_read(file, name), rows)


def draw(
    name: str = "demo", rows: int | None = None, seed: int = 0, folder: str | Path | None = None
) -> Sequences:
    """The set `name` as `load` gives it where there is no file.

    It is drawn, but "histories" is made of MovieLens's ratings.
    """
    check_name("sequence", name, NAMES)
    if rows is not None and rows < 1:
        raise CourseError(f"{rows} sequences were asked for; ask for at least 1.")
    if name == "histories":
        return _head(_histories(folder), rows)
    rng = torch.Generator().manual_seed(seed)
    if name == "text":
        return text(rows or ROWS[name], rng)
    draw_lengths = _demo_lengths if name == "demo" else lognormal_lengths
    return with_lengths(name, draw_lengths(rows or ROWS[name], rng), rng)


def save(data: Sequences, file: Path) -> None:
    """Write a set as the .npz file that `load` reads.

    Raises: CourseError if it cannot be written.
    """
    save_arrays(file, **{field: getattr(data, field) for field in FIELDS})


def lognormal_lengths(
    rows: int, rng: torch.Generator, mean: float = 2.5, std: float = 1.0, longest: int = LENGTH_MAX
) -> Tensor:
    """int64 (rows,): lengths whose logarithm is normal, rounded up, from 1 to `longest`."""
    drawn = torch.exp(mean + std * torch.randn(rows, generator=rng)).ceil().long()
    return drawn.clamp(1, longest)


def _demo_lengths(rows, rng):
    sizes = torch.tensor([1, 4, 16, 64])
    return sizes[torch.multinomial(1 / sizes, rows, replacement=True, generator=rng)]


def with_lengths(name: str, lengths: Tensor, rng: torch.Generator | int) -> Sequences:
    """A drawn set with these lengths.

    Half of the sequences hold the marker at one place, the others not at all.

    Args:
        rng: a generator, or the seed of a new one.
    """
    if not isinstance(rng, torch.Generator):
        rng = torch.Generator().manual_seed(rng)
    total = int(lengths.sum())
    values = torch.randint(MARKER + 1, VOCABULARY, (total,), generator=rng)
    labels = torch.rand(len(lengths), generator=rng) < 0.5
    starts = lengths.cumsum(0) - lengths
    offsets = (torch.rand(len(lengths), generator=rng) * lengths).long().clamp(max=lengths - 1)
    positions = starts + offsets
    values[positions[labels]] = MARKER
    return Sequences(name, values, lengths, labels.float(), VOCABULARY, real=False)


def from_lengths(name: str, lengths: Sequence[int] | str | Path) -> Sequences:
    """A drawn set with the given lengths; see `with_lengths`.

    Args:
        lengths: numbers, or a text file with one number per line.
    """
    if isinstance(lengths, (str, Path)):
        lengths = Path(lengths).read_text().split()
    return with_lengths(name, torch.tensor([int(length) for length in lengths]), 0)


def text(rows: int, rng: torch.Generator | int, kinds_keep: str | None = None) -> Sequences:
    """Drawn texts of two kinds; a token depends on the kind of its text and on the token before.

    Long texts are mostly of kind 1 and short ones of kind 0, like articles and chats in a real
    corpus. The label is the kind. Each kind is a Markov chain, with one table for all sets.

    Args:
        rng: a generator, or the seed of a new one.
        kinds_keep: "tokens" or "texts" for texts whose kind is independent of their length. The
            lengths stay, and each kind keeps its expected share of the tokens, or of the texts.
    """
    if not isinstance(rng, torch.Generator):
        rng = torch.Generator().manual_seed(rng)
    lengths = lognormal_lengths(rows, rng, mean=3.0)
    logarithms = lengths.float().log()
    standard = (logarithms - logarithms.mean()) / logarithms.std().clamp(min=1e-6)
    chances = torch.sigmoid(KIND_FOLLOWS_LENGTH * standard)
    if kinds_keep is not None:
        weights = lengths if kinds_keep == "tokens" else torch.ones(rows)
        share = (chances * weights).sum() / weights.sum()
        chances = share.expand(rows)
    kinds = torch.rand(rows, generator=rng) < chances
    kinds = kinds.long()
    fixed = torch.Generator().manual_seed(0)
    tables = torch.randn(2, TEXT_VOCABULARY, TEXT_VOCABULARY, generator=fixed)
    tables = (2 * tables).softmax(-1)
    tokens = torch.randint(TEXT_VOCABULARY, (rows,), generator=rng)
    columns = [tokens]
    for _ in range(int(lengths.max()) - 1):
        tokens = torch.multinomial(tables[kinds, tokens], 1, generator=rng).squeeze(1)
        columns.append(tokens)
    is_token = torch.arange(len(columns)) < lengths[:, None]
    values = torch.stack(columns, 1)[is_token]
    return Sequences("text", values, lengths, kinds.float(), TEXT_VOCABULARY, real=False)


def _histories(folder):
    """Each user's films in the order of time.

    The label is whether a user's mean of stars is above the median user's.
    """
    ratings = movielens.load("ml-100k", folder)
    lengths = torch.bincount(ratings.users, minlength=ratings.n_users)
    lengths = lengths[lengths > 0]
    stars = torch.zeros(ratings.n_users).index_add_(0, ratings.users, ratings.ratings)
    means = stars[ratings.users.unique()] / lengths
    labels = (means > means.median()).float()
    return Sequences("histories", ratings.items, lengths, labels, ratings.n_items, ratings.real)


def _head(example, rows):
    """The first `rows` sequences of a set; all of them if `rows` is None."""
    if rows is None or rows >= len(example):
        return example
    lengths = example.lengths[:rows]
    values = example.values[: int(lengths.sum())]
    return dataclasses.replace(
        example, values=values, lengths=lengths, labels=example.labels[:rows]
    )


def _read(file, name):
    """The set of the .npz file `file`.  Raises: CourseError if it is damaged."""
    stored = read_arrays(file, FIELDS, REMEDY)
    values = torch.from_numpy(stored["values"])
    lengths = torch.from_numpy(stored["lengths"])
    labels = torch.from_numpy(stored["labels"])
    vocabulary = int(stored["vocabulary"])
    if not _belong_together(values, lengths, labels, vocabulary):
        raise damaged(file, "lengths, labels and tokens that do not belong together", REMEDY)
    return Sequences(name, values, lengths, labels.float(), vocabulary, bool(stored["real"]))


def _belong_together(values, lengths, labels, vocabulary):
    """True if there are as many labels as lengths, and as many tokens as these say."""
    if not len(lengths) == len(labels) > 0 or not (lengths > 0).all():
        return False
    if int(lengths.sum()) != len(values):
        return False
    return 0 <= int(values.min()) and int(values.max()) < vocabulary
