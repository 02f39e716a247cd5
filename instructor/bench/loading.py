"""How fast rows reach a linear regression, and what it costs.

`epochs` iterates over all rows with each loader and sets the time against memcpy of the same bytes,
with one thread and
with all (asked of the unit: random rows at least 0.85 of memcpy with all threads, at least 3 times
FFCV RANDOM; page reads at least 3.5 times FFCV QUASI_RANDOM); `sgd` trains an epoch of the unit's
in-place SGD with each, against the same step on rows in memory order without any loader.
Contestants take turns in one process and every one must bring each row once, with its label. The
unit's loaders are the reference answers. FFCV (Leclerc et al. 2023, 1.0.2) takes part where it can
be imported, from FOLDER if that is given (`pip install --target FOLDER`); it is no part of the
course: docs/results.md says how it was built.
"""

import gc
import importlib.util
import itertools
import os
import sys
import time
from types import SimpleNamespace

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from course.datasets import regression
from course.device import cores, machine
from course.errors import CourseError
from course.loading.record_files import RecordFile
from course.measure.timing import sweep
from course.measure.usage import busy_seconds, cpu_seconds
from course.measure.yardsticks import MEMCPY, one_pass, read_file
from course.notebook.solutions import load_solutions
from instructor.bench import spread

UNIT = "04_fast_loading"
ALL = "memcpy, all threads"
CACHE = 1 << 23  # bytes of a block that still lies in the cache for its second use


def run(what, sizes, rounds, batch_size, ffcv):
    """Print the tables of `what`, epochs or sgd, for each (rows, columns) of `sizes`.

    Args:
        ffcv: folder that holds the packages of FFCV, or None.
    """
    if ffcv:
        sys.path.append(str(ffcv))
    if not ffcv_is_there():
        print(
            "FFCV cannot be imported here: without it. --ffcv FOLDER names the folder above its package."
        )
    print(machine())  # before a contestant changes the number of threads
    for rows, columns in sizes:
        source = regression.prepare(rows, columns)
        file = RecordFile(load_solutions(UNIT), source, batch_size)
        data = SimpleNamespace(source=source, batch=batch_size, file=file)  # what contestants share
        shown = f"{rows:,} rows x {columns:,} float32, {4 * rows * columns / 1e9:.2f} GB"
        print(f"\n{shown}, batch {batch_size}, {rounds} rounds")
        (epochs if what == "epochs" else sgd)(data, rounds)


def ffcv_is_there():
    """True if FFCV can be imported."""
    return importlib.util.find_spec("ffcv") is not None


def our_loaders(data):
    """{name: loader} of the unit."""
    return {
        "ours, random": data.file.loader(),
        "ours, quasi-random, mapped": data.file.loader("quasi-random"),
        "ours, quasi-random, read": data.file.loader("quasi-random", threads=2),
    }


def torch_loaders(data):
    """{name: loader} of what comes with torch, over tensors in memory."""
    dataset = TensorDataset(
        torch.from_numpy(np.array(data.source.x)), torch.from_numpy(np.array(data.source.y))
    )
    loaders = {
        f"TensorDataset, {n} workers": DataLoader(dataset, data.batch, shuffle=True, num_workers=n)
        for n in (0, 1, 2)
    }
    batches = BatchSampler(RandomSampler(dataset), data.batch, drop_last=False)
    return loaders | {
        "batched indexing, 0 workers": DataLoader(dataset, sampler=batches, batch_size=None)
    }


def ffcv_loaders(data):
    """{name: loader} of FFCV over its own file, written once beside the others; empty without
    FFCV.
    """
    if not ffcv_is_there():
        return {}
    from ffcv.fields import NDArrayField
    from ffcv.fields.decoders import NDArrayDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import ToTensor
    from ffcv.writer import DatasetWriter

    path, source = data.source.folder / "records.beton", data.source
    if not path.exists():
        shapes = {"x": (source.columns,), "y": (1,)}
        fields = {name: NDArrayField(np.dtype("float32"), shape) for name, shape in shapes.items()}
        DatasetWriter(str(path), fields, num_workers=2).from_indexed_dataset(_Rows(source))

    def loader(order, workers, **options):
        pipelines = {name: [NDArrayDecoder(), ToTensor()] for name in ("x", "y")}
        options |= dict(num_workers=workers, order=order, pipelines=pipelines, drop_last=False)
        return Loader(str(path), data.batch, **options)

    random = {
        f"FFCV RANDOM, {n} workers": loader(OrderOption.RANDOM, n, os_cache=True) for n in (1, 2)
    }
    quasi = {
        f"FFCV QUASI_RANDOM, {n} workers": loader(OrderOption.QUASI_RANDOM, n, os_cache=False)
        for n in (1, 2)
    }
    return random | quasi


class _Rows:
    """The rows of a source as FFCV's writer asks for them."""

    def __init__(self, source):
        self.source, self.x, self.y = source, source.x, source.y

    def __len__(self):
        return self.source.rows

    def __getitem__(self, i):
        return np.array(self.x[i]), np.array(self.y[i : i + 1])


def measured(contestants, rounds):
    """{name: seconds of each round} of {name: (threads of torch, function)}, which take turns.

    In each turn it runs once to warm up, which does not count. Prints how much of the machine
    others used meanwhile.
    """

    def seconds(name):
        threads, run = contestants[name]
        torch.set_num_threads(threads)
        gc.collect()
        run()  # the others have used the caches, and the system may have reclaimed idle memory
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    start, busy, own = time.perf_counter(), busy_seconds(), cpu_seconds()
    table = sweep(seconds, list(contestants), rounds)
    elapsed = time.perf_counter() - start
    foreign = (busy_seconds() - busy - (cpu_seconds() - own)) / (elapsed * os.cpu_count())
    print(
        f"processes other than this one and its living workers: {foreign:.0%} of the processors while this ran"
    )
    return dict(zip(contestants, table, strict=True))


def check(loader, source):
    """Raise CourseError unless the loader brings every row once, with its label."""
    true, labels = torch.from_numpy(source.w), []
    for x, y in loader:
        labels.append(y.reshape(-1).clone())
        if (x @ true + source.b - labels[-1]).abs().max() > 8 * regression.NOISE:
            raise CourseError(f"{loader} brought a row with the label of another.")
    if not torch.equal(torch.cat(labels).sort().values, torch.from_numpy(np.sort(source.y))):
        raise CourseError(f"{loader} lost rows or brought some twice.")


def epochs(data, rounds):
    """Print seconds per epoch of pure iteration, GB/s, and the ratio to memcpy."""
    source, all_cores = data.source, cores()
    nbytes = 4 * source.rows * source.columns
    memory, copy = torch.from_numpy(np.array(source.x)), torch.empty(source.rows, source.columns)
    loaders = our_loaders(data) | torch_loaders(data) | ffcv_loaders(data)
    for loader in loaders.values():
        check(loader, source)
    contestants = {
        MEMCPY: (1, lambda: copy.copy_(memory)),
        ALL: (all_cores, lambda: copy.copy_(memory)),
        "read() of the file, one thread": (
            1,
            lambda: read_file(data.file.path, data.file.path.stat().st_size),
        ),
    }
    contestants |= {name: (all_cores, one_pass(loader)) for name, loader in loaders.items()}
    try:
        loader = data.file.loader("quasi-random", threads=2, direct=True)
        contestants["ours, quasi-random, read past the page cache"] = (all_cores, one_pass(loader))
    except (OSError, ValueError) as error:
        print(f"not read past the page cache: {error}")
    seconds = measured(contestants, rounds)
    base = seconds[MEMCPY]
    print(f"{'':46} {'ms an epoch':>22}  {'GB/s':>5}  speed over memcpy with one thread")
    for name, own in seconds.items():
        rate = nbytes / own.median().item() / 1e9
        print(
            f"  {name:<44} {spread(1000 * own, '.0f'):>22}  {rate:5.1f}  {spread(base / own, '.2f')}"
        )
    _compare(seconds, "ours, random", ALL)
    _compare(seconds, "ours, random", "TensorDataset")
    _compare(seconds, "ours, random", "FFCV RANDOM")
    _compare(seconds, "ours, quasi-random, read", "FFCV QUASI")


def _compare(seconds, ours, theirs):
    """Print the speed of `ours` over the fastest contestant whose name begins with `theirs`."""
    others = {name: own for name, own in seconds.items() if name.startswith(theirs)}
    if others:
        best = min(others, key=lambda name: others[name].median())
        print(f"  {ours} over {best}: {spread(others[best] / seconds[ours], '.2f')}")


def sgd(data, rounds):
    """Print seconds per epoch of in-place SGD, and the ratio to the same without a loader."""
    source, answers, all_cores = data.source, load_solutions(UNIT), cores()
    x, y = torch.from_numpy(np.array(source.x)), torch.from_numpy(np.array(source.y))
    mean, std = answers.mean_and_std(zip(x.split(data.batch), y.split(data.batch), strict=True))
    parts = 1  # blocks per batch, so that a block fits into the cache
    while parts < data.batch and (
        data.batch % parts or 4 * data.batch * source.columns > CACHE * parts
    ):
        parts += 1
    block = data.batch // parts

    def epoch(batches, blocks=1):
        """A function that trains an epoch from zero weights and returns the mean loss."""

        def run():
            w, b = torch.zeros(source.columns), torch.zeros(1)
            scratch = {"residual": torch.empty(data.batch)}
            scratch |= {name: torch.empty(source.columns) for name in ("scaled", "gradient")}
            loss, rest = torch.zeros(1), iter(batches())
            for first in rest:
                batch = itertools.chain([first], itertools.islice(rest, blocks - 1))
                loss += answers.sgd_step_(batch, w, b, mean, std, 0.05, scratch)
            return loss.item() / source.rows

        return run

    def in_memory(rows):
        return lambda: zip(x.split(rows), y.split(rows), strict=True)

    ours, ours_in_blocks = data.file.loader(), data.file.loader(batch=block)
    contestants = {
        "no loader: rows in memory order": epoch(in_memory(data.batch)),
        "ours, random": epoch(lambda: ours),
    }
    if parts > 1:
        contestants |= {
            f"no loader, in blocks of {block}": epoch(in_memory(block), parts),
            f"ours, random, in blocks of {block}": epoch(lambda: ours_in_blocks, parts),
        }
    reading = data.file.loader("quasi-random", threads=2)
    contestants["ours, quasi-random, read"] = epoch(lambda: reading)
    for name, loader in (torch_loaders(data) | ffcv_loaders(data)).items():
        contestants[name] = epoch(lambda loader=loader: ((x, y.reshape(-1)) for x, y in loader))
    losses = {name: run() for name, run in contestants.items()}
    assert max(losses.values()) < 1.05 * min(losses.values()), f"not the same training: {losses}"
    seconds = measured({name: (all_cores, run) for name, run in contestants.items()}, rounds)
    base = seconds["no loader: rows in memory order"]
    print(
        f"{'':46} {'ms an epoch':>22}  time over that without a loader; mean loss {losses['ours, random']:.2f}"
    )
    for name, own in seconds.items():
        print(f"  {name:<44} {spread(1000 * own, '.0f'):>22}  {spread(own / base, '.2f')}")
    best = min(
        (n for n in seconds if n.startswith("ours, random")), key=lambda n: seconds[n].median()
    )
    _compare(seconds, best, "FFCV")
    _compare(seconds, best, "TensorDataset")
