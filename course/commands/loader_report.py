"""`course loader-report`: how random, how large and how fast the reader's batches are.

It calls the reader's function, looks at one or two epochs of its loader (loading/judge.py) and
prints a line per question, with what a random order or a copy in memory would give. It changes
nothing, and ends after a time limit.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

ORDERS_BATCHES = 20  # of a second epoch, which tell whether its order is another
REPEATED_FROM = 1.02  # so often on average a sample comes twice by mistake, not by chance
PLACES_MAX = 2_000_000  # row numbers that are asked of a sampler
MB = 1e6
SHARE_TO_LOOK = 0.35  # of the time
SHARE_TO_TIME = 0.4
HELP = {
    "step": "Your training step, MODULE:FUNCTION, called with each batch.",
    "data": "A file or folder that the loader reads: made cold first, so that its bytes count.",
    "batches": "Look at so many batches at most (default: an epoch, if there is time).",
    "seconds": "About how long the report may take, and a single batch at most.",
}


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    target: str
    step: str | None = None
    data: tuple[Path, ...] = ()
    batches: int | None = None
    seconds: float = 60.0


@click.command(
    "loader-report",
    short_help="Say how random and how fast the batches of your own loader are.",
    epilog="Example: course loader-report train:make_loader --step train:step --data data/train",
)
@click.argument("target", metavar="MODULE:FUNCTION")
@click.option("--step", metavar="MODULE:FUNCTION", help=HELP["step"])
@click.option(
    "--data", multiple=True, type=click.Path(path_type=Path, exists=True), help=HELP["data"]
)
@click.option("--batches", type=click.IntRange(1), help=HELP["batches"])
@click.option(
    "--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help=HELP["seconds"]
)
def loader_report(
    target: str, step: str | None, data: tuple[Path, ...], batches: int | None, seconds: float
) -> None:
    """Say how random the batches of your loader are, what it reads, and how long your step waits.

    FUNCTION takes no argument and returns what your training loop iterates over: a DataLoader or
    anything else, whose batches are tensors, dicts, tuples or lists of samples. The current folder
    is searched first; train.py:make_loader works too.
    """
    for line in lines(Asked(target, step, data, batches, seconds)):
        click.echo(line)


def lines(asked: Asked) -> Iterator[str]:
    """Yield the lines of the report, each as soon as it is known.

    Raises: CourseError if the loader cannot be judged.
    """
    from course.device import machine
    from course.loading import batch_fields, own_loader

    make = own_loader.function_of(asked.target, asked.seconds)
    name = asked.target.rpartition(":")[2]
    step = batch_fields.read_all
    if asked.step:
        function = own_loader.function_of(asked.step, asked.seconds)
        step = own_loader.guarded_step(function, asked.step.rpartition(":")[2], asked.seconds)
    loader = own_loader.OwnLoader(make, name, asked.seconds)
    yield f"{asked.target} on {machine()}"
    yield from _lines_of_epoch(asked, loader, step)
    yield from _lines_of_time(asked, loader, step)


def _row(question: str, answer: str) -> str:
    return f"{question:16} {answer}"


# ---- what the batches hold


def _lines_of_epoch(asked: Asked, loader: Any, step: Callable) -> Iterator[str]:
    from course.loading import judge

    dropped = drop_data(asked.data)
    seen = judge.look(loader, SHARE_TO_LOOK * asked.seconds, asked.batches, step)
    yield _row("looked at", _extent(seen))
    yield _row("a batch", f"{seen.described}; {seen.nbytes / seen.batches / MB:.3g} MB")
    yield _row("samples", _distinct(seen))
    places = _places(seen, loader)
    yield _row("how random", _randomness(seen, places))
    yield _row("ten in a row", _randomness(seen, places, 10))
    yield _row("next epoch", _next_order(seen, loader))
    yield _row("from the disk", _from_disk(seen, asked.data, dropped))


def _extent(seen: Any) -> str:
    sizes = f"{seen.batches:,} batches of {seen.batch_size}, {seen.samples:,} samples"
    if seen.batches == 1:
        sizes = f"1 batch of {seen.batch_size}"
    return f"{sizes}: {'a whole epoch' if seen.is_whole else 'the beginning of an epoch'}"


def _distinct(seen: Any) -> str:
    """Whether samples come more than once."""
    if all(_is_empty(kept) for kept in seen.values.values()):
        return "hold neither numbers nor texts that could be compared"
    if seen.distinct == seen.samples:
        return "all of them differ"
    times = seen.samples / seen.distinct
    if times < REPEATED_FROM:
        return f"all but {seen.samples - seen.distinct:,} differ"
    text = f"{seen.distinct:,} of {seen.samples:,} differ: a sample comes {times:.2g} times"
    return f"{text} on average. If it should come once, do the workers share the shards?"


def _is_empty(kept: list) -> bool:
    return all(isinstance(value, float) and math.isnan(value) for value in kept)


def _places(seen: Any, loader: Any) -> list[int]:
    """The row numbers that the loader's sampler gives, as many as samples were seen."""
    from course.loading import judge, own_loader

    with own_loader.guarded("asking the sampler for an epoch's order", loader.seconds):
        return judge.places_of(loader.loader, min(PLACES_MAX, seen.samples))


def _randomness(seen: Any, places: list[int], in_a_row: int = 1) -> str:
    """How random the means of `in_a_row` consecutive batches are."""
    from course.loading import judge

    bias = judge.bias_of(seen, places, in_a_row)
    if bias is None:
        if seen.batches < 2 * in_a_row:
            if in_a_row > 1:
                return f"not known: an epoch of {seen.batches} batches is too short"
            return "not known: one batch has no variance; take smaller batches or more data"
        return "not known: nothing in the batches varies, or fewer than two of them are full"
    found = bias.of_fields[bias.worst]
    text = f"{found:.2f} times the variance of random batches, by {bias.worst!r}; "
    text += f"19 of 20 random loaders give {bias.low:.2f} to {bias.high:.2f}"
    if found > bias.alarm:
        return f"{text}. Shuffle more: more shards or a larger buffer, or shuffle the file once"
    if found > bias.high:
        return f"{text}. It may be chance: look at more batches, or another epoch"
    return text


def _next_order(seen: Any, loader: Any) -> str:
    from course.loading import judge

    again = judge.look(loader, loader.seconds / 10, ORDERS_BATCHES)
    n = min(again.samples, seen.samples)
    same = all(kept[:n] == seen.values[name][:n] for name, kept in again.values.items())
    if seen.batches < 2 or all(_is_empty(kept) for kept in seen.values.values()):
        return "not known"
    if same:
        return "in the same order. If you shuffle, change the seed per epoch (set_epoch)"
    return "in another order"


# ---- the disk


def drop_data(paths: tuple[Path, ...]) -> int:
    """Drop the files at `paths` from the page cache; return their bytes."""
    from course.measure.page_cache import drop_cached

    total = 0
    for path in paths:
        files = [path] if path.is_file() else path.rglob("*")
        for file in files:
            if file.is_file():
                drop_cached(file)
                total += file.stat().st_size
    return total


def _from_disk(seen: Any, data: tuple[Path, ...], of_data: int) -> str:
    if math.isnan(seen.from_disk):
        return "not known: this system does not count bytes per process"
    text = f"{seen.from_disk / MB:,.1f} MB"
    if not data:
        return f"{text}; files in the page cache do not count: name yours with --data"
    text += f", {seen.from_disk / max(of_data, 1):.2f} times the {of_data / MB:,.1f} MB of --data"
    if of_data and not seen.from_disk:
        return f"{text}: is it on a disk of this machine, and does the loader read it?"
    return text


# ---- how long the step waits


def _lines_of_time(asked: Asked, loader: Any, step: Callable) -> Iterator[str]:
    from course.loading import judge, own_loader

    threads = judge.loading_threads(loader.loader)
    ahead = judge.prefetched(loader.loader)
    begin = time.monotonic()
    loader.is_guarding = False
    with own_loader.guarded("timing the loader in the step", 3 * asked.seconds):
        seconds = SHARE_TO_TIME * asked.seconds
        found = judge.waiting(loader, step, threads, ahead, seconds)
    where = f"your step, {asked.step}," if asked.step else "a step that only reads the batch"
    waits = f"{_milliseconds(found.seconds)} per batch, {100 * found.of_step:.0f} % of the time"
    yield _row("the step waits", f"{waits}, in {where}")
    if not asked.step:
        yield _row("", "name your own with --step: yours may hide the loading, or slow it down")
    yield _row("against memcpy", _against_memcpy(found))
    yield _row("first batch", f"{_milliseconds(found.start)}, in each epoch")
    rounds = f"{found.compared.rounds} rounds of {found.batches} batches"
    taken = f"{time.monotonic() - begin:.0f} s; control: {found.compared.control}"
    yield _row("", f"{rounds}, {taken}")


def _against_memcpy(found: Any) -> str:
    threads = "1 thread" if found.threads == 1 else f"{found.threads} threads"
    times = found.times_memcpy()
    if times.high < 1:
        return (
            f"{times} times as long as copying the same bytes there, {threads}: loading is hidden"
        )
    return f"{times} times as long as copying the same bytes there, {threads}"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
