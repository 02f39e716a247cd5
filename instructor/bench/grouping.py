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
from course.measure.comparison import Comparison, compare, compare_measured
from course.notebook.solutions import load_solutions
from course.training import grouping
from course.training.token_models import TokenPool
from instructor.bench import SECONDS_MAX, control_line, rounds_up_to, spread
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
class Epochs:
    """How each way trained a model with embeddings of size `dim`."""

    dim: int
    sequences: int
    cells: int  # padded tokens of an epoch with BASE
    tokens: int  # real ones
    compared: Comparison  # of epochs
    bytes_shares: dict[str, float]  # {way: bytes kept for backward, over those of BASE}

    def numbers(self, way: str) -> str:
        """The numbers of a way in words, with their units."""
        ms = 1000 * self.compared.time(way).estimate
        return (
            f"{ms:.1f} ms per epoch, {self.compared.ratio(way)} times as fast, "
            f"{100 * self.bytes_shares[way]:.1f} % of the saved bytes"
        )


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

    One epoch of each before shows that all train to equal weights.

    Raises: CourseError if a way computes something else than BASE.
    """
    data = sequences.load("demo")
    batches = _batches(data)
    torch.manual_seed(0)
    start = TokenPool(data.vocabulary, dim, dim).to(device())
    contestants = ways(package)
    models = {name: copy.deepcopy(start) for name in contestants}
    for name, score in contestants.items():
        train_epoch(score, models[name], batches)
    _check_equal(contestants, models, start, batches[0])
    runs = {}
    for name, score in contestants.items():
        runs[name] = functools.partial(train_epoch, score, models[name], batches)
    fewest, most = rounds_up_to(rounds)
    compared = compare(
        runs,
        device=device(),
        fewest_rounds=fewest,
        most_rounds=most,
        seconds=SECONDS_MAX,
        progress=False,
    )
    nbytes = {name: _bytes_kept(score, start, batches[0]) for name, score in contestants.items()}
    shares = {name: own / nbytes[BASE] for name, own in nbytes.items()}
    cells = 0
    tokens = 0
    for _, lengths, _ in batches:
        cells += len(lengths) * int(lengths.max())
        tokens += int(lengths.sum())
    return Epochs(dim, len(data), cells, tokens, compared, shares)


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
    compared = measured.compared
    note = f"{sizes}, {measured.tokens:,} real; {control_line(compared)}"
    title = f"Ragged sequences, embedding {measured.dim}"
    columns = ["way", "ms per epoch", "times as fast", "% of the saved bytes"]
    table = Table(f"grouping epochs, embedding {measured.dim}", title, columns, note)
    for way in compared.seconds:
        ms = f"{1000 * compared.time(way).estimate:.1f}"
        table.add(way, ms, compared.ratio(way), f"{100 * measured.bytes_shares[way]:.1f}")
    if "asym" in compared.seconds:
        table.add("grouped over asym", "", compared.ratio("grouped", to="asym"), "")
    return table


# ---- thresholds


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
        searches = {}
        if package:  # the base
            searches["asym"] = functools.partial(_find_by_asym, package, lengths.tolist(), groups)
        searches["exact"] = functools.partial(answers.best_thresholds, lengths, groups)
        title = f"Thresholds of {groups} groups"
        columns = ["search", "ms", "cells per token"]
        note = f"{rows:,} lengths, {different}"
        table = Table(f"grouping thresholds, {groups} groups", title, columns, note)
        _add_searches(table, searches, lengths, rounds)
        print(table)
        tables.append(table)
    return tables


def _add_searches(
    table: Table, searches: dict[str, Callable[[], list[int]]], lengths: Tensor, rounds: int
) -> None:
    """Add a row with seconds and costs of each search, and a note on how several compare."""
    seconds = {name: [] for name in searches}
    costs = {name: [] for name in searches}

    def measure(name: str) -> float:
        begin = time.perf_counter()
        limits = searches[name]()
        taken = time.perf_counter() - begin
        seconds[name].append(taken)
        costs[name].append(_cells(lengths, limits) / int(lengths.sum()))
        return taken

    if len(searches) > 1:
        limits = rounds_up_to(rounds)
        found = compare_measured(list(searches), measure, rounds=limits, seconds=SECONDS_MAX)
        table.note += f"; exact {found.ratio('exact')} times as fast as asym"
    else:
        for _ in range(rounds):
            measure(*searches)
    for name, own in costs.items():
        ms = spread(1000 * torch.tensor(seconds[name]), ",.1f")
        table.add(name, ms, f"{min(own):.4f} to {max(own):.4f}")


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
