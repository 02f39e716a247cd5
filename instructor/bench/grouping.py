"""How fast grouping by length is compared with padding and asym, and what exact thresholds cost.

`epochs` trains interleaved epochs of SGD on asym's drawn set with each way to compute a batch;
outputs and trained weights must be equal. `thresholds` searches four and eight groups of 50,000
lengths. The unit's ways are the reference answers. asym (github.com/daeseoklee/asym) takes part
if --asym names a folder that holds its package; it does not belong to the course.
"""

import copy
import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from course.datasets import sequences
from course.device import device, machine
from course.errors import CourseError
from course.notebook.solutions import load_solutions
from course.training import grouping
from course.training.token_models import TokenPool
from instructor.bench import spread
from instructor.bench.tables import Table

UNIT = "05_batch_grouping"
BATCH_SIZE = 256
THRESHOLDS = [1, 4, 16, 64]
BASE = "one rectangle"  # the way that the others are compared with
Score = Callable[[TokenPool, Tensor, Tensor], Tensor]  # (model, values, lengths) -> scores


class Asym(NamedTuple):
    """The modules of asym that take part."""

    data_collection: ModuleType
    grouper: ModuleType
    thresholds: ModuleType


@dataclass(frozen=True)
class Way:
    """How one way to compute a batch trained; the tensors are (rounds,)."""

    name: str
    seconds: Tensor  # per epoch
    times_as_fast: Tensor  # as BASE in the same round
    bytes_share: float  # bytes kept for backward, over those of BASE

    def numbers(self) -> str:
        """The numbers in words, with their units."""
        ms = 1000 * self.seconds.median()
        return (
            f"{ms:.1f} ms per epoch, {spread(self.times_as_fast, '.1f')} times as fast, "
            f"{100 * self.bytes_share:.1f} % of the saved bytes"
        )


@dataclass(frozen=True)
class Epochs:
    """The ways that trained a model with embeddings of size `dim`, BASE first."""

    dim: int
    rounds: int
    sequences: int
    cells: int  # padded tokens of an epoch with BASE
    tokens: int  # real ones
    ways: list[Way]


def run(what: str, asym: Path | None, dims: Sequence[int], rounds: int) -> list[Table]:
    """Print and return the tables of `what`: epochs or thresholds."""
    package = import_asym(asym) if asym else None
    if not package:
        print("without asym: --asym FOLDER names the folder that holds its package")
    if what == "epochs":
        tables = []
        for dim in dims:
            tables.append(epochs_table(epochs(dim, rounds, package)))
            print(tables[-1])
    else:
        tables = thresholds(rounds, package)
    print(machine())
    return tables


def import_asym(folder: Path) -> Asym:
    """The modules of asym that take part.

    Raises: CourseError if `folder` does not hold its package.
    """
    if not (folder / "asym" / "grouper.py").is_file():
        raise CourseError(
            f"looked for asym/grouper.py in {folder}, found none; clone asym and name its folder."
        )
    sys.path.insert(0, str(folder))
    from asym import data_collection, grouper, precompute_grouper_thresholds

    return Asym(data_collection, grouper, precompute_grouper_thresholds)


# ---- ways to compute a batch


def ways(package: Asym | None) -> dict[str, Score]:
    """{name: how it computes scores} of all contestants, BASE first."""
    answers = load_solutions(UNIT)

    def one_rectangle(model: TokenPool, values: Tensor, lengths: Tensor) -> Tensor:
        return model(*answers.pad_batch(values, lengths))

    def grouped(model: TokenPool, values: Tensor, lengths: Tensor) -> Tensor:
        return answers.run_grouped(model, values, lengths, THRESHOLDS)

    def sample_by_sample(model: TokenPool, values: Tensor, lengths: Tensor) -> Tensor:
        samples = values.split(lengths.tolist())
        return grouping.grouped_sample_by_sample(model, samples, THRESHOLDS)

    def flat(model: TokenPool, values: Tensor, lengths: Tensor) -> Tensor:
        return model.score(answers.segment_max(model.features(values), lengths))

    contestants = {
        BASE: one_rectangle,
        "sample by sample": sample_by_sample,
        "grouped": grouped,
        "flat": flat,
    }
    if package:
        contestants["asym"] = functools.partial(_by_asym, package)
    return contestants


def _by_asym(package: Asym, model: TokenPool, values: Tensor, lengths: Tensor) -> Tensor:
    """Scores by asym's own collection, grouper and regrouping."""
    samples = list(values.split(lengths.tolist()))
    batch = package.data_collection.DataCollection("(B, L_sequence)", samples)
    by_length = package.grouper.LengthThresholdGrouper("sequence", THRESHOLDS[:-1])
    batch.group(grouper=by_length)
    scores = batch.apply(_annotated(model))
    scores.regroup(grouper=package.grouper.UniGrouper())
    return scores.data_groups[0].value


def _annotated(model: TokenPool):
    """`model` as asym wants it."""
    from asym.annotated_module import AnnotatedModule

    class Annotated(AnnotatedModule):
        def forward(self, x, mask):
            return model(x, mask)

        def get_mask_hint(self):
            return ["seq"]

        def get_input_annot(self):
            return "(b, l_seq)"

        def get_output_annot(self):
            return "(b)"

    return Annotated()


# ---- epochs


def epochs(dim: int, rounds: int, package: Asym | None) -> Epochs:
    """How fast each way trains, and the bytes that it keeps for backward.

    The ways take turns, after one epoch each that does not count.

    Raises: CourseError if a way computes something else than BASE.
    """
    data = sequences.load("demo")
    batches = _batches(data)
    torch.manual_seed(0)
    start = TokenPool(data.vocabulary, dim, dim).to(device())
    contestants = ways(package)
    models = {name: copy.deepcopy(start) for name in contestants}
    seconds = {name: [] for name in contestants}
    for _ in range(rounds + 1):
        for name, score in contestants.items():
            begin = time.perf_counter()
            train_epoch(score, models[name], batches)
            seconds[name].append(time.perf_counter() - begin)
    nbytes = {name: _bytes_kept(score, start, batches[0]) for name, score in contestants.items()}
    _check_equal(contestants, models, start, batches[0])
    base = torch.tensor(seconds[BASE][1:])
    measured = []
    for name in contestants:
        own = torch.tensor(seconds[name][1:])
        measured.append(Way(name, own, base / own, nbytes[name] / nbytes[BASE]))
    cells = 0
    tokens = 0
    for _, lengths, _ in batches:
        cells += len(lengths) * int(lengths.max())
        tokens += int(lengths.sum())
    return Epochs(dim, rounds, len(data), cells, tokens, measured)


def _batches(data: sequences.Sequences) -> list[list[Tensor]]:
    """[values, lengths, labels] of each batch of an epoch, on the device."""
    batches = []
    for first in range(0, len(data), BATCH_SIZE):
        rows = [data[i] for i in range(first, first + BATCH_SIZE)]
        batches.append([part.to(device()) for part in sequences.collate(rows)])
    return batches


def train_epoch(
    score: Score, model: TokenPool, batches: list[list[Tensor]], lr: float = 0.01
) -> None:
    """Train one epoch of SGD on the squared error."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for values, lengths, labels in batches:
        optimizer.zero_grad()
        (score(model, values, lengths) - labels).square().mean().backward()
        optimizer.step()
    if device().type == "cuda":
        torch.cuda.synchronize()


def _bytes_kept(score: Score, model: TokenPool, batch: list[Tensor]) -> int:
    """Bytes that autograd keeps for the backward pass of one batch, parameters not counted."""
    values, lengths, _ = batch
    return grouping.bytes_for_backward(
        lambda: score(model, values, lengths), known=model.parameters()
    )


def _check_equal(
    contestants: dict[str, Score],
    models: dict[str, TokenPool],
    start: TokenPool,
    batch: list[Tensor],
) -> None:
    """Raise unless all ways give equal scores and have trained to equal weights."""
    values, lengths, _ = batch
    scores = {name: score(start, values, lengths) for name, score in contestants.items()}
    scores_may_differ = 1e-6 * max(1.0, scores[BASE].abs().max().item())
    for name, model in models.items():
        off = (scores[name] - scores[BASE]).abs().max().item()
        weights = zip(model.parameters(), models[BASE].parameters(), strict=True)
        drift = max((a - b).abs().max().item() for a, b in weights)
        if off > scores_may_differ or drift > 1e-4:
            differences = f"scores differ by {off:.1e}, weights by {drift:.1e}"
            raise CourseError(f"{name} computes something else: {differences}.")


def epochs_table(measured: Epochs) -> Table:
    """A row for each way, and how much faster than asym the groups are."""
    sizes = f"{measured.sequences:,} sequences, {measured.cells:,} padded tokens"
    sizes += f", {measured.tokens:,} real, {measured.rounds} rounds, median (lowest to highest)"
    title = f"Ragged sequences, embedding {measured.dim}"
    columns = ["way", "ms per epoch", "times as fast", "% of the saved bytes"]
    table = Table(f"grouping epochs, embedding {measured.dim}", title, columns, sizes)
    seconds = {}
    for way in measured.ways:
        seconds[way.name] = way.seconds
        ms = f"{1000 * way.seconds.median():.1f}"
        speed = spread(way.times_as_fast, ".1f")
        table.add(way.name, ms, speed, f"{100 * way.bytes_share:.1f}")
    if "asym" in seconds:
        ratio = spread(seconds["asym"] / seconds["grouped"], ".2f")
        table.add("grouped over asym", "", ratio, "")
    return table


# ---- thresholds


@dataclass(frozen=True)
class Search:
    """What a search for thresholds took and found; the tensors are (rounds,)."""

    seconds: Tensor
    costs: Tensor  # float64; cells per token


def thresholds(rounds: int, package: Asym | None, rows: int = 50_000) -> list[Table]:
    """Print what thresholds for four and eight groups cost and how long each search takes.

    Returns: the tables.
    """
    answers = load_solutions(UNIT)
    lengths = sequences.lognormal_lengths(
        rows, torch.Generator().manual_seed(0), mean=5.0, std=1.0, longest=2048
    )
    different = f"{len(lengths.unique()):,} of them different"
    tables = []
    for groups in (4, 8):
        searches = {"exact": functools.partial(answers.best_thresholds, lengths, groups)}
        if package:
            searches["asym"] = functools.partial(_find_by_asym, package, lengths.tolist(), groups)
        found = _searched(searches, lengths, rounds)
        title = f"Thresholds of {groups} groups"
        note = f"{rows:,} lengths, {different}, {rounds} rounds"
        columns = ["search", "ms", "cells per token", "times as fast as asym"]
        table = Table(f"grouping thresholds, {groups} groups", title, columns, note)
        _add_searches(table, found)
        print(table)
        tables.append(table)
    return tables


def _searched(
    searches: dict[str, Callable[[], list[int]]], lengths: Tensor, rounds: int
) -> dict[str, Search]:
    """{name: Search} of contestants that take turns."""
    seconds = {name: [] for name in searches}
    costs = {name: [] for name in searches}
    for _ in range(rounds):
        for name, search in searches.items():
            begin = time.perf_counter()
            limits = search()
            seconds[name].append(time.perf_counter() - begin)
            costs[name].append(_cells(lengths, limits) / int(lengths.sum()))
    found = {}
    for name in searches:
        cost = torch.tensor(costs[name], dtype=torch.float64)
        found[name] = Search(torch.tensor(seconds[name]), cost)
    return found


def _add_searches(table: Table, found: dict[str, Search]) -> None:
    for name, search in found.items():
        ms = spread(1000 * search.seconds, ",.1f")
        cost = f"{search.costs.min():.4f} to {search.costs.max():.4f}"
        against = ""
        if "asym" in found and name != "asym":
            against = spread(found["asym"].seconds / search.seconds, ",.0f")
        table.add(name, ms, cost, against)


def _cells(lengths: Tensor, limits: list[int]) -> int:
    """Cells of all groups."""
    total = 0
    for members in load_solutions(UNIT).group_by_length(lengths, limits):
        if len(members):
            total += len(members) * int(lengths[members].max())
    return total


def _find_by_asym(package: Asym, lengths: list[int], groups: int) -> list[int]:
    limits = package.thresholds.find_thresholds(
        lengths, cost_fn=lambda length: length, k=groups - 1, num_trials=100
    )
    return [*limits, max(lengths)]
