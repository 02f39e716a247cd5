"""How fast rows reach a linear regression, and what it costs.

`epochs` iterates over all rows with each loader and sets the time against memcpy of the same bytes,
with one thread and with all (asked of the unit: random rows at least 0.85 of memcpy with all
threads, at least 3 times FFCV RANDOM; page reads at least 3.5 times FFCV QUASI_RANDOM); `sgd`
trains an epoch of the unit's in-place SGD with each, against the same step on rows in memory order
without any loader. Contestants take turns in one process and every one must bring each row once,
with its label. The unit's loaders are the reference answers. FFCV (Leclerc et al. 2023, 1.0.2)
takes part where it can be imported, from FOLDER if that is given (`pip install --target FOLDER`);
it does not belong to the course: docs/results.md says how it was built.
"""

import gc
import importlib.util
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from course.datasets import regression
from course.datasets.regression import Regression
from course.device import cores, machine
from course.errors import CourseError
from course.loading.record_files import RecordFile
from course.measure.comparison import Comparison, compare_measured
from course.measure.usage import busy_seconds, cpu_seconds
from course.measure.yardsticks import MEMCPY, one_pass, read_file
from course.notebook.solutions import load_solutions
from instructor.bench import SECONDS_MAX, control_line, rounds_up_to
from instructor.bench.tables import Table

UNIT = "04_fast_loading"
MEMCPY_ALL = "memcpy, all threads"
NO_LOADER = "no loader: rows in memory order"
CACHED_BYTES = 1 << 23  # of a block that still lies in the cache for its second use
LOSSES_DIFFER = 1.05  # at most so many times, between trainings that are the same

Batches = Iterable[tuple[Tensor, Tensor]]  # of (rows, labels)


@dataclass(frozen=True)
class Data:
    """What contestants share."""

    source: Regression
    batch_size: int
    file: RecordFile

    def in_memory(self) -> tuple[Tensor, Tensor]:
        """(rows, labels), copied into memory."""
        rows = torch.from_numpy(np.array(self.source.x))
        return rows, torch.from_numpy(np.array(self.source.y))


class Contestant(NamedTuple):
    """What is timed, with so many threads of torch."""

    threads: int
    run: Callable[[], object]


def run(
    what: str, sizes: Sequence[tuple[int, int]], rounds: int, batch_size: int, ffcv: Path | None
) -> list[Table]:
    """Print the tables of `what`, epochs or sgd, for each (rows, columns) of `sizes`.

    Args:
        ffcv: folder that holds the packages of FFCV, or None.

    Returns: the tables.
    """
    if ffcv:
        sys.path.append(str(ffcv))
    if not ffcv_is_there():
        hint = "--ffcv FOLDER names the folder above its package."
        print(f"FFCV cannot be imported here: without it. {hint}")
    print(machine())  # before a contestant changes the number of threads
    measure = epochs if what == "epochs" else sgd
    tables = []
    for rows, columns in sizes:
        source = regression.prepare(rows, columns)
        file = RecordFile(load_solutions(UNIT), source, batch_size)
        tables.append(measure(Data(source, batch_size, file), rounds))
    torch.set_num_threads(cores())  # contestants have set theirs
    return tables


def _table(what: str, title: str, data: Data, found: Comparison, columns: list[str]) -> Table:
    """An empty table of `data`."""
    rows, width = data.source.rows, data.source.columns
    size = f"{rows:,} x {width:,}"
    note = f"{rows:,} rows x {width:,} float32, {4 * rows * width / 1e9:.2f} GB, "
    note += f"batch {data.batch_size}; {control_line(found)}"
    return Table(f"loading {what}, {size}", f"{title}, {size}", columns, note)


# ---- loaders


def ffcv_is_there() -> bool:
    """True if FFCV can be imported."""
    return importlib.util.find_spec("ffcv") is not None


def our_loaders(data: Data) -> dict[str, Batches]:
    """{name: loader} of the unit."""
    return {
        "ours, random": data.file.loader(),
        "ours, quasi-random, mapped": data.file.loader("quasi-random"),
        "ours, quasi-random, read": data.file.loader("quasi-random", threads=2),
    }


def torch_loaders(data: Data) -> dict[str, Batches]:
    """{name: loader} of what comes with torch, over tensors in memory."""
    dataset = TensorDataset(*data.in_memory())
    loaders = {}
    for workers in (0, 1, 2):
        loader = DataLoader(dataset, data.batch_size, shuffle=True, num_workers=workers)
        loaders[f"TensorDataset, {workers} workers"] = loader
    batches = BatchSampler(RandomSampler(dataset), data.batch_size, drop_last=False)
    loader = DataLoader(dataset, sampler=batches, batch_size=None)
    loaders["batched indexing, 0 workers"] = loader
    return loaders


def ffcv_loaders(data: Data) -> dict[str, Batches]:
    """{name: loader} of FFCV over its own file; empty without FFCV."""
    if not ffcv_is_there():
        return {}
    from ffcv.fields.decoders import NDArrayDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import ToTensor

    path = data.source.folder / "records.beton"
    if not path.exists():
        _write_for_ffcv(data.source, path)

    def loader(order: OrderOption, workers: int, os_cache: bool) -> Loader:
        pipelines = {name: [NDArrayDecoder(), ToTensor()] for name in ("x", "y")}
        options = dict(num_workers=workers, order=order, pipelines=pipelines, drop_last=False)
        return Loader(str(path), data.batch_size, os_cache=os_cache, **options)

    loaders = {}
    for workers in (1, 2):
        random = loader(OrderOption.RANDOM, workers, os_cache=True)
        loaders[f"FFCV RANDOM, {workers} workers"] = random
    for workers in (1, 2):
        quasi_random = loader(OrderOption.QUASI_RANDOM, workers, os_cache=False)
        loaders[f"FFCV QUASI_RANDOM, {workers} workers"] = quasi_random
    return loaders


def _write_for_ffcv(source: Regression, path: Path) -> None:
    """Write the rows into a file of FFCV."""
    from ffcv.fields import NDArrayField
    from ffcv.writer import DatasetWriter

    fields = {
        "x": NDArrayField(np.dtype("float32"), (source.columns,)),
        "y": NDArrayField(np.dtype("float32"), (1,)),
    }
    DatasetWriter(str(path), fields, num_workers=2).from_indexed_dataset(_Rows(source))


class _Rows:
    """The rows of a source as FFCV's writer asks for them."""

    def __init__(self, source: Regression) -> None:
        self.source = source
        self.x = source.x
        self.y = source.y

    def __len__(self) -> int:
        return self.source.rows

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.x[i]), np.array(self.y[i : i + 1])


def check(loader: Batches, source: Regression) -> None:
    """Raise CourseError unless the loader brings every row once, with its label."""
    weights = torch.from_numpy(source.w)
    labels = []
    for x, y in loader:
        y = y.reshape(-1).clone()
        labels.append(y)
        if (x @ weights + source.b - y).abs().max() > 8 * regression.NOISE:
            raise CourseError(f"{loader} brought a row with the label of another.")
    if not torch.equal(torch.cat(labels).sort().values, torch.from_numpy(np.sort(source.y))):
        raise CourseError(f"{loader} lost rows or brought some twice.")


# ---- timing


def measured(contestants: dict[str, Contestant], rounds: int) -> Comparison:
    """The Comparison of contestants with the first of them.

    In each turn one runs once to warm up, which does not count. Prints how much of the machine
    others used meanwhile.
    """

    def seconds(name: str) -> float:
        contestant = contestants[name]
        torch.set_num_threads(contestant.threads)
        gc.collect()
        # the others have used the caches, and the system may have reclaimed idle memory
        contestant.run()
        start = time.perf_counter()
        contestant.run()
        return time.perf_counter() - start

    start = time.perf_counter()
    busy = busy_seconds()
    own = cpu_seconds()
    limits = rounds_up_to(rounds)
    found = compare_measured(list(contestants), seconds, rounds=limits, seconds=SECONDS_MAX)
    elapsed = time.perf_counter() - start
    foreign = busy_seconds() - busy - (cpu_seconds() - own)
    share = foreign / (elapsed * os.cpu_count())
    others = "processes other than this one and its living workers"
    print(f"{others}: {share:.0%} of the processors while this ran")
    return found


def _print_ratio(found: Comparison, ours: str, theirs: str) -> None:
    """Print the speed of `ours` over the fastest contestant whose name begins with `theirs`."""
    best = _fastest(found, theirs)
    if best:
        print(f"  {ours} over {best}: {found.ratio(ours, to=best)}")


def _fastest(found: Comparison, beginning: str) -> str | None:
    """The name with this beginning that took the fewest seconds, or None."""
    names = [name for name in found.seconds if name.startswith(beginning)]
    return min(names, key=found.median, default=None)


# ---- epochs


def epochs(data: Data, rounds: int) -> Table:
    """Print and return seconds per epoch of pure iteration, GB/s, and the ratio to memcpy."""
    all_cores = cores()  # before FFCV is imported, which changes torch's threads
    source = data.source
    loaders = our_loaders(data) | torch_loaders(data) | ffcv_loaders(data)
    for loader in loaders.values():
        check(loader, source)
    found = measured(_iterating(data, loaders, all_cores), rounds)
    nbytes = 4 * source.rows * source.columns
    columns = ["loader", "ms per epoch", "GB/s", "times as fast as memcpy with one thread"]
    table = _table("epochs", "Epochs that only iterate", data, found, columns)
    for name in found.seconds:
        ms = 1000 * found.time(name).estimate
        rate = found.rate(name, nbytes / 1e9).estimate
        table.add(name, f"{ms:.0f}", f"{rate:.1f}", found.ratio(name))
    print(table)
    _print_ratio(found, "ours, random", MEMCPY_ALL)
    _print_ratio(found, "ours, random", "TensorDataset")
    _print_ratio(found, "ours, random", "FFCV RANDOM")
    _print_ratio(found, "ours, quasi-random, read", "FFCV QUASI")
    return table


def _iterating(data: Data, loaders: dict[str, Batches], all_cores: int) -> dict[str, Contestant]:
    """What is timed by `epochs`: copies and reads of the bytes, and a pass of each loader."""
    memory, _ = data.in_memory()
    copy = torch.empty_like(memory)
    path = data.file.path
    contestants = {
        MEMCPY: Contestant(1, lambda: copy.copy_(memory)),
        MEMCPY_ALL: Contestant(all_cores, lambda: copy.copy_(memory)),
        "read() of the file, one thread": Contestant(
            1, lambda: read_file(path, path.stat().st_size)
        ),
    }
    for name, loader in loaders.items():
        contestants[name] = Contestant(all_cores, one_pass(loader))
    try:
        direct = data.file.loader("quasi-random", threads=2, direct=True)
    except (OSError, ValueError) as error:
        print(f"not read past the page cache: {error}")
    else:
        name = "ours, quasi-random, read past the page cache"
        contestants[name] = Contestant(all_cores, one_pass(direct))
    return contestants


# ---- SGD


def sgd(data: Data, rounds: int) -> Table:
    """Print and return seconds per epoch of in-place SGD, over those without a loader."""
    all_cores = cores()  # before FFCV is imported
    trainings = _trainings(data)
    losses = {name: train() for name, train in trainings.items()}
    same = max(losses.values()) < LOSSES_DIFFER * min(losses.values())
    assert same, f"not the same training: {losses}"
    contestants = {name: Contestant(all_cores, train) for name, train in trainings.items()}
    found = measured(contestants, rounds)
    columns = ["loader", "ms per epoch", "times as long as without a loader"]
    table = _table("sgd", "Epochs of SGD", data, found, columns)
    table.note += f"; mean loss {losses['ours, random']:.2f}"
    for name in found.seconds:
        ms = 1000 * found.time(name).estimate
        table.add(name, f"{ms:.0f}", found.ratio(NO_LOADER, to=name))
    print(table)
    best = _fastest(found, "ours, random")
    _print_ratio(found, best, "FFCV")
    _print_ratio(found, best, "TensorDataset")
    return table


def _trainings(data: Data) -> dict[str, Callable[[], float]]:
    """{name: function that trains an epoch from zero weights and returns the mean loss}."""
    x, y = data.in_memory()

    def in_memory(rows: int) -> Callable[[], Batches]:
        return lambda: zip(x.split(rows), y.split(rows), strict=True)

    train = _Sgd(data, in_memory(data.batch_size)())
    parts = _blocks_per_batch(data)
    block = data.batch_size // parts
    ours = data.file.loader()
    trainings = {
        NO_LOADER: train.epoch(in_memory(data.batch_size)),
        "ours, random": train.epoch(lambda: ours),
    }
    if parts > 1:
        ours_in_blocks = data.file.loader(batch=block)
        from_memory = train.epoch(in_memory(block), parts)
        trainings[f"no loader, in blocks of {block}"] = from_memory
        from_file = train.epoch(lambda: ours_in_blocks, parts)
        trainings[f"ours, random, in blocks of {block}"] = from_file
    reading = data.file.loader("quasi-random", threads=2)
    trainings["ours, quasi-random, read"] = train.epoch(lambda: reading)
    for name, loader in (torch_loaders(data) | ffcv_loaders(data)).items():
        trainings[name] = train.epoch(lambda loader=loader: _with_flat_labels(loader))
    return trainings


def _with_flat_labels(loader: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    for x, y in loader:
        yield x, y.reshape(-1)


def _blocks_per_batch(data: Data) -> int:
    """The fewest blocks of equal size per batch with which a block fits into the cache."""
    batch_bytes = 4 * data.batch_size * data.source.columns
    blocks = 1
    while blocks < data.batch_size:
        is_equal = data.batch_size % blocks == 0
        if is_equal and batch_bytes <= CACHED_BYTES * blocks:
            break
        blocks += 1
    return blocks


class _Sgd:
    """The unit's in-place SGD, with the mean and deviation of the columns of `batches`."""

    def __init__(self, data: Data, batches: Batches) -> None:
        self.answers = load_solutions(UNIT)
        self.rows = data.source.rows
        self.columns = data.source.columns
        self.batch_size = data.batch_size
        self.mean, self.std = self.answers.mean_and_std(batches)

    def epoch(self, batches: Callable[[], Batches], blocks: int = 1) -> Callable[[], float]:
        """A function that trains an epoch from zero weights and returns the mean loss.

        Args:
            batches: gives the blocks of an epoch.
            blocks: how many of them make one batch.
        """

        def run() -> float:
            w = torch.zeros(self.columns)
            b = torch.zeros(1)
            scratch = {"residual": torch.empty(self.batch_size)}
            scratch |= {name: torch.empty(self.columns) for name in ("scaled", "gradient")}
            loss = torch.zeros(1)
            rest = iter(batches())
            for first in rest:
                batch = itertools.chain([first], itertools.islice(rest, blocks - 1))
                loss += self.answers.sgd_step_(batch, w, b, self.mean, self.std, 0.05, scratch)
            return loss.item() / self.rows

        return run
