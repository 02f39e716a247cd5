"""A stall waterfall: how much of a training step each stage of loading costs.

The step is timed as it is, and then with what a stage gives replayed from memory, stage by stage:

    read        bytes of a file         Image.open gets them from memory
    decode      a picture               Image.open gives the decoded picture
    transform   an item                 a list of items takes the place of the dataset
    collate     a batch                 a list of batches takes the place of the loader
    transfer    a batch on the device   such a list, on the device

A bar is what the step gains when one more stage is replayed, so the bars sum to the step. The order
matters, and a gain is not only the time of the stage: the step itself runs faster when no loading
disturbs its caches (`step_after_loading`). The null replays nothing twice; any bar like it is
noise. Needs a map-style dataset and, for more than one bar of items, files that Pillow opens.

Draws nothing (plots/parallel_loading does). Replaying items is the "fetch stall" of Mohan,
Phanishayee, Raniwala and Chidambaram 2021, "Analyzing and Mitigating Data Stalls in DNN Training"
(arXiv:2007.06775).
"""

import contextlib
import io
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler

from course.errors import CourseError
from course.measure.comparison import (
    FEWEST_ROUNDS,
    MOST_ROUNDS,
    Comparison,
    Interval,
    compare_measured,
    signed_rank_interval,
    steady_batches,
)
from course.measure.timing import now

READ, DECODE, TRANSFORM, COLLATE, TRANSFER, STEP = STAGES = (
    "read",
    "decode",
    "transform",
    "collate",
    "transfer",
    "step",
)
ITEMS = "make items"  # read, decode and transform where PIL opens no file
AS_IT_IS = "nothing replayed"
KEPT_ITEMS = 256  # that are replayed, at most
STEPS = 8  # of a pass without workers
WAITING_STEPS = 40  # of `waiting`, at most
KEPT, AFTER_LOADING = "a kept batch", "a kept batch, after another was loaded"
Replay = Callable[..., Iterable]  # (source, n, stage=None) -> an iterable that replays it


@dataclass(frozen=True)
class Waterfall:
    """The Comparison of a training with more and more stages replayed.

    The first way is AS_IT_IS, and each other the stage after which is replayed; `steps` are those
    of a run.
    """

    compared: Comparison
    steps: int

    @property
    def step(self) -> float:
        """Seconds of a step as it is."""
        return self.compared.median(AS_IT_IS) / self.steps

    @property
    def ceiling(self) -> Interval:
        """How many times as fast the training is with data for free."""
        return self.compared.ratio(list(self.compared.seconds)[-1])

    @property
    def bars(self) -> dict[str, Interval]:
        """{stage: seconds per step}; the last is STEP, and their estimates sum to `step`."""
        found = {}
        for before, after in itertools.pairwise(self.compared.seconds):
            found[after] = self._difference(before, after)
        found[STEP] = self.compared.time(after).scaled(1 / self.steps)
        return found

    @property
    def null(self) -> Interval:
        """Seconds per step that are gained if nothing more is replayed: by chance, so about 0."""
        control = self.compared.control
        if not control.is_known:
            return Interval(self.step * (control.estimate - 1), -math.inf, math.inf)
        gains = [self.step * (r - 1) for r in (control.estimate, control.low, control.high)]
        return Interval(*gains)

    def share(self, stage: str) -> float:
        """The share of a step that a stage takes."""
        return self.bars[stage].estimate / self.step

    @property
    def longest(self) -> list[str]:
        """The stages with the longest bar of loading: several if they are too close to call.

        An empty list if all of them are.
        """
        bars = {stage: bar for stage, bar in self.bars.items() if stage != STEP}
        low = max(bars.values(), key=lambda bar: bar.estimate).low
        longest = [stage for stage, bar in bars.items() if bar.high >= low]
        return longest if len(longest) < len(bars) else []

    def _difference(self, before, after):
        """Seconds per step that are gained if `after` is replayed, too."""
        times = self.compared.time(before).estimate, self.compared.time(after).estimate
        estimate = (times[0] - times[1]) / self.steps
        seconds = self.compared.seconds
        around = signed_rank_interval(((seconds[before] - seconds[after]) / self.steps).tolist())
        return Interval(estimate, min(around.low, estimate), max(around.high, estimate))

    def __str__(self) -> str:
        bars = self.bars
        width = max(map(len, bars))
        lines = [f"{'':{width}}  ms per step"]
        for stage, bar in bars.items():
            lines.append(
                f"{stage:{width}}  {bar.scaled(1000)}, {percent(self.share(stage))}{told(bar)}"
            )
        lines.append(f"{'sum':{width}}  {1000 * self.step:.2f}, the step as it is")
        lines.append(f"with data for free: {self.ceiling} times as fast")
        lines.append(f"null: {self.null.scaled(1000)} ms per step by replaying nothing")
        lines.append(f"{self.compared.rounds} rounds, {self.compared.stopped}")
        return "\n".join(lines)


def percent(share: float) -> str:
    """A share as whole percents, without a sign before 0."""
    return f"{round(share, 2) + 0.0:.0%}"


def told(bar: Interval) -> str:
    """What to say of a bar that is not clearly above zero, in words; else ""."""
    if bar.high < 0:
        return ": the step got slower when this was replayed"
    return ": may be 0" if bar.low <= 0 else ""


def measure(
    loader: DataLoader,
    step: Callable[[Any], object],
    replay: Replay,
    transfer: Callable[[Any], Any] | None = None,
    *,
    device: torch.device | str = "cpu",
    steps: int = STEPS,
    rounds: tuple[int, int] = (FEWEST_ROUNDS, MOST_ROUNDS),
    seconds: float = 60.0,
) -> Waterfall:
    """The Waterfall of a training on `loader`.

    Args:
        loader: of a map-style dataset, with batch_size; its workers must be forked.
        step: trains on a batch that `transfer` has moved.
        replay: the Ceiling of unit 01: replay(source, n, stage) keeps stage(x) of the first n.
        transfer: moves a batch to the device; None: that is part of the step.
        device: is synchronised before the clock is read.
        steps: of a run without workers; with workers there are 40 or more.
        rounds, seconds: see `compare`.
    """
    if loader.num_workers:
        steps = steady_batches(loader.num_workers)
    start_up = loader.num_workers * (loader.prefetch_factor or 0)
    found = sources(loader, replay, transfer, start_up + steps)

    def run(way: str) -> float:
        batches = iter(found[way])
        move = None if way == TRANSFER else transfer
        _train(batches, start_up, step, move)
        begin = now(device)
        _train(batches, steps, step, move)
        return now(device) - begin

    compared = compare_measured(list(found), run, rounds=rounds, seconds=seconds, progress=True)
    return Waterfall(compared, steps)


def waiting(
    loader: Iterable,
    step: Callable[[Any], object],
    device: torch.device | str = "cpu",
) -> Interval:
    """The share of its time that a training waits for its next batch, over 40 steps at most."""
    shares = []
    begin = now(device)
    for batch in itertools.islice(loader, WAITING_STEPS):
        served = now(device)
        step(batch)
        end = now(device)
        shares.append((served - begin) / (end - begin))
        begin = end
    return signed_rank_interval(shares)


def without_waiting(share: Interval) -> Interval:
    """How many times as fast a training is that no longer waits for a `share` of its time."""
    if not share.is_known:
        return Interval(1 - share.estimate, 0.0, math.inf).inverted()
    left = Interval(1 - share.estimate, 1 - share.high, 1 - share.low)
    return left.inverted()


def step_after_loading(
    loader: DataLoader,
    step: Callable[[Any], object],
    replay: Replay,
    *,
    device: torch.device | str = "cpu",
    steps: int = STEPS,
    rounds: tuple[int, int] = (FEWEST_ROUNDS, MOST_ROUNDS),
    seconds: float = 60.0,
) -> Comparison:
    """The Comparison of the step in two ways, KEPT and AFTER_LOADING.

    Both train on the same batch, and only the step is timed. Before a step of AFTER_LOADING, the
    next batch is loaded and dropped. Arguments as in `measure`.
    """
    loading = like(loader, Repeated(loader.dataset, KEPT_ITEMS, _items_of(loader, steps)))
    (batch,) = itertools.islice(replay(loader, 1), 1)

    def run(way: str) -> float:
        taken = 0.0
        for _ in loading if way == AFTER_LOADING else range(steps):
            begin = now(device)
            step(batch)
            taken += now(device) - begin
        return taken

    ways = [KEPT, AFTER_LOADING]
    return compare_measured(ways, run, rounds=rounds, seconds=seconds, progress=True)


def _train(batches, n, step, transfer):
    for batch in itertools.islice(batches, n):
        step(batch if transfer is None else transfer(batch))


def sources(
    loader: DataLoader, replay: Replay, transfer: Callable | None, n_batches: int
) -> dict[str, Iterable]:
    """{AS_IT_IS, then each stage: batches whose stages up to this one are replayed}.

    Each serves `n_batches` per pass, of the same KEPT_ITEMS items at most. READ and DECODE are
    there if the dataset opens files with PIL.
    """
    items = Repeated(loader.dataset, KEPT_ITEMS, _items_of(loader, n_batches))
    found: dict[str, Iterable] = {AS_IT_IS: like(loader, items)}
    pictures = Pictures()
    with pictures.recorded():
        items[0]
    stage = ITEMS
    if pictures.paths:
        found[READ] = like(loader, FromMemory(items, pictures.read))
        found[DECODE] = like(loader, FromMemory(items, pictures.decode))
        stage = TRANSFORM
        for name in (READ, DECODE):
            found[name].dataset.fill()  # before workers are forked, which then share it
    found[stage] = like(loader, list(replay(items, items.kept)))
    n_kept = max(1, items.kept // loader.batch_size)
    found[COLLATE] = replay(found[AS_IT_IS], n_kept)
    if transfer is not None:
        found[TRANSFER] = replay(found[AS_IT_IS], n_kept, transfer)
    return found


def _items_of(loader, n_batches):
    """The number of items of `n_batches` batches."""
    if loader.batch_size is None or not hasattr(loader.dataset, "__getitem__"):
        raise CourseError("a waterfall needs a DataLoader of a map-style dataset, with batch_size.")
    return n_batches * loader.batch_size


def like(loader: DataLoader, dataset: Any) -> DataLoader:
    """A DataLoader of `dataset` with the settings of `loader`, whose workers stay."""
    options: dict[str, Any] = {}
    if loader.num_workers:
        options["persistent_workers"] = True
        options["prefetch_factor"] = loader.prefetch_factor
        options["multiprocessing_context"] = loader.multiprocessing_context or "fork"
        options["worker_init_fn"] = loader.worker_init_fn
    return DataLoader(
        dataset,
        loader.batch_size,
        shuffle=isinstance(loader.sampler, RandomSampler),
        drop_last=loader.drop_last,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        **options,
    )


class Repeated(Dataset):
    """The first `kept` items of `dataset` at most, again and again, up to `length` items."""

    def __init__(self, dataset: Any, kept: int, length: int):
        self.dataset = dataset
        self.length = length
        self.kept = min(kept, len(dataset), length)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        if not 0 <= i < self.length:
            raise IndexError(i)
        return self.dataset[i % self.kept]


class FromMemory(Dataset):
    """The items of `items`, for which PIL gets its files from `opened(path)`."""

    def __init__(self, items: Repeated, opened: Callable[[Path], Any]):
        self.items = items
        self.opened = opened

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        with _pil_opens(self.opened):
            return self.items[i]

    def fill(self) -> None:
        """Make each item once, so that all of its files are in memory."""
        for i in range(self.items.kept):
            self[i]


@contextlib.contextmanager
def _pil_opens(opened: Callable[[Path], Any]) -> Iterator[None]:
    """Inside the block Image.open(path) is `opened(path)`; other files are opened as always."""
    usual = Image.open

    def open_(file: Any, *args: Any, **options: Any) -> Any:
        if isinstance(file, (str, os.PathLike)):
            return opened(Path(file))
        return usual(file, *args, **options)

    Image.open = open_
    try:
        yield
    finally:
        Image.open = usual


class Pictures:
    """Files that PIL opens, kept as bytes and as decoded pictures."""

    def __init__(self):
        self.paths: list[Path] = []  # that were opened while `recorded`
        self._bytes: dict[Path, bytes] = {}
        self._decoded: dict[tuple, Image.Image] = {}
        self._open = Image.open

    def recorded(self) -> contextlib.AbstractContextManager:
        """Inside the block each file that PIL opens is noted in `paths`."""

        def opened(path: Path) -> Image.Image:
            self.paths.append(path)
            return self._open(path)

        return _pil_opens(opened)

    def read(self, path: Path) -> Image.Image:
        """The file at `path`, opened from memory."""
        if path not in self._bytes:
            self._bytes[path] = path.read_bytes()
        return self._open(io.BytesIO(self._bytes[path]))

    def decode(self, path: Path) -> "DecodedPicture":
        """The file at `path`, which was decoded before."""
        return DecodedPicture(self, path)

    def decoded(self, path: Path, draft: tuple | None) -> Image.Image:
        """The picture in a file, decoded once after `draft(*draft)`."""
        key = path, draft
        if key not in self._decoded:
            with self._open(path) as file:
                if draft:
                    file.draft(*draft)
                self._decoded[key] = file.copy()
        return self._decoded[key]


class DecodedPicture(Image.Image):
    """A picture of Pictures as a file gives it; what would change it in place copies it first."""

    def __init__(self, pictures: Pictures, path: Path):
        super().__init__()
        self._pictures = pictures
        self._path = path
        self._become(None)

    def draft(self, mode: str | None, size: tuple[int, int] | None) -> None:
        """Become the smaller picture that a draft of the file gives."""
        self._become((mode, None if size is None else tuple(size)))

    def _become(self, draft):
        self.__dict__.update(self._pictures.decoded(self._path, draft).__dict__)
        self.readonly = 1
