"""Parts of loaders that the units are given.

Loader joins an order, a way to fill a buffer and a way to read ahead, which unit 04 asks for.
JpegDecoder and jpeg_buffers are for loaders of threads, which part 6 of unit 01 builds; `forked`
makes the worker processes of the other parts.
"""

import contextlib
import mmap
import multiprocessing
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from course.device import cores, device
from course.errors import CourseError

Fill = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # (index, buffer) -> its rows


class JpegDecoder:
    """Writes JPEG files into memory that exists already: `decoder(index, out)`.

    torchvision's decoder and NumPy's division release Python's global lock, so threads decode in
    parallel.

    Args:
        paths: sequence of JPEG files; grey ones become RGB.
    """

    def __init__(self, paths: Sequence[Path | str]):
        self.paths = paths

    def __call__(self, index: int, out: torch.Tensor) -> None:
        """Decode file number `index` into `out`, float32 (3, height, width), the values of PIL +
        ToTensor.

        Raises: CourseError for a file that is missing, broken, or of another size than `out`.
        """
        pixels = _decoded(self.paths[index])
        if pixels.shape != out.shape:
            raise CourseError(
                f"{self.paths[index]} is {_width_x_height(pixels)} pixels, "
                f"but the batch is {_width_x_height(out)}; resize all images to one size."
            )
        np.divide(pixels.numpy(), np.float32(255), out=out.numpy())


def _width_x_height(image):
    """Text "250x200" of a tensor (3, height, width)."""
    _, height, width = image.shape
    return f"{width}x{height}"


def jpeg_buffers(paths: Sequence[Path | str], count: int, batch_size: int) -> torch.Tensor:
    """Memory for `count` batches of images like the first of `paths`.

    Returns: float32 (count, batch_size, 3, height, width).

    In memory the colours of a pixel lie together (channels_last): the decoder's own order, and the
    one that convolutions in half precision prefer. The values are arbitrary.
    """
    _, height, width = _decoded(paths[0]).shape
    return torch.empty(count, batch_size, height, width, 3).permute(0, 1, 4, 2, 3)


def aligned_buffers(count: int, rows: int, columns: int) -> list[torch.Tensor]:
    """`count` float32 CPU tensors (rows, columns), each starting at a page boundary.

    O_DIRECT requires that. Their values are arbitrary. They are pinned if the course's device is
    CUDA.
    """
    step = mmap.PAGESIZE // 4  # floats per memory page
    pinned = device().type == "cuda"
    buffers = []
    for _ in range(count):
        memory = torch.empty(rows * columns + step, pin_memory=pinned)
        first = -memory.data_ptr() % mmap.PAGESIZE // 4
        buffers.append(memory[first : first + rows * columns].view(rows, columns))
    return buffers


class Loader:
    """Batches (x, y), epoch after epoch, as views of buffers that are valid until the next batch.

    Args:
        order: callable (epoch) -> int64 tensor of the row numbers of that epoch, on the CPU.
        fill: callable (index, buffer) -> the rows `index` as a view of the buffer, float32 (n, S);
            index is int64 (n,).
        ahead: callable (fill, work, buffers) -> generator of what `fill` returns for each item of
            `work`; such as `read_ahead`. Not called for a single buffer, which is filled
            when its rows are needed.
        buffers: list of 1 or more float32 tensors (R, S); a fill brings R rows, the last one of an
            epoch maybe fewer.
        columns: columns of x, at most S - 1; the column after them is y, the rest is padding.
        batch: rows of a batch.

    Each iter() begins the next epoch, counted from 0, and closes the one that still runs: they
    share the buffers.

    Raises: ValueError if R is not a multiple of `batch`.
    """

    def __init__(
        self,
        order: Callable[[int], torch.Tensor],
        fill: Fill,
        ahead: Callable[[Fill, Sequence[torch.Tensor], list[torch.Tensor]], Generator],
        buffers: list[torch.Tensor],
        columns: int,
        batch: int,
    ):
        if len(buffers[0]) % batch:
            raise ValueError(
                f"buffers of {len(buffers[0])} rows cannot be cut into batches of {batch}."
            )
        self.order = order
        self.fill = fill
        self.ahead = ahead
        self.buffers = buffers
        self.columns = columns
        self.batch = batch
        self._epoch = 0
        self._batches = None  # of an epoch, once somebody asked
        self._running = None  # the epoch that was begun last

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        if self._batches is None:
            self._batches = -(-len(self.order(self._epoch)) // self.batch)
        return self._batches

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if self._running is not None:
            self._running.close()
        self._running = self._run(self._epoch)
        self._epoch += 1
        return self._running

    def _run(self, epoch):
        work = self.order(epoch).split(len(self.buffers[0]))  # views: no copy of the order
        if len(self.buffers) > 1:
            filled = self.ahead(self.fill, work, self.buffers)
        else:
            filled = (self.fill(index, self.buffers[0]) for index in work)
        with contextlib.closing(filled):
            for rows in filled:
                for part in rows.split(self.batch):
                    yield part[:, : self.columns], part[:, self.columns]


def image_paths(folder: Path | str) -> list[Path]:
    """The sorted Paths of the images `<folder>/<Person>/<name>.jpg`.

    Names that begin with a dot do not count. Sorted, because a file system lists a folder in any
    order, and an index must name the same image on every machine.

    Raises: FileNotFoundError if there is no such image, or no folder.
    """
    paths = sorted(Path(folder).glob("[!.]*/[!.]*.jpg"))
    if not paths:
        raise FileNotFoundError(
            f"looked in {folder} for <Person>/<name>.jpg, found none; unpack the images there."
        )
    return paths


class WorkerCosts(NamedTuple):
    """Seconds per batch of a loader with one worker, as OneWorker measures them."""

    cpu: float  # that the worker computes
    wall: float  # that the worker takes to build, its waiting included
    main: float  # that the main process computes: unpack the batch, and free it


class OneWorker:
    """A loader of one worker, whose costs are measured pass by pass; its first pass is not counted.

    Two batches are built in this process first: glibc keeps more freed memory once it has seen
    large blocks freed, and a forked worker inherits that; else chance decides whether every batch
    needs new pages (mallopt(3), M_TRIM_THRESHOLD). CPU seconds are those of the two processes, all
    threads together, as the system counts them.

    Args:
        dataset: map-style dataset; each pass builds all of its items.
        batch_size: items per batch.
    """

    def __init__(self, dataset: Dataset, batch_size: int):
        first_items = range(min(batch_size, len(dataset)))
        for _ in range(2):
            default_collate([dataset[i] for i in first_items])
        self._batches = forked(_Timed(dataset), batch_size, 1, collate_fn=_timed_batch)
        self._booked = 0.0  # CPU seconds of the worker up to its latest batch
        self.costs()

    def costs(self) -> WorkerCosts:
        """The WorkerCosts of one more pass."""
        booked_before = self._booked
        main_before = time.process_time()
        wall = []
        for _, seconds, booked in self._batches:
            wall.append(seconds)
            self._booked = booked
        main = time.process_time() - main_before
        n = len(wall)
        return WorkerCosts((self._booked - booked_before) / n, sum(wall) / n, main / n)


def one_worker_costs(dataset: Dataset, batch_size: int) -> WorkerCosts:
    """The mean WorkerCosts of three whole passes over `dataset`.

    One pass before them is not counted.
    """
    worker = OneWorker(dataset, batch_size)
    costs = torch.tensor([worker.costs() for _ in range(3)], dtype=torch.float64)
    return WorkerCosts(*costs.mean(0).tolist())


def effective_cores(dataset: Dataset, rounds: int = 3, seconds: float = 0.4) -> float:
    """How many times as fast as one process `cores()` forked processes make items of `dataset`.

    All of them compute at the same time. Fewer than `cores()` where hardware threads share a core,
    where memory is too slow for all, or where other programs compute. The median of `rounds`, each
    of which times one process and then all for `seconds`; at most `cores()`.

    Raises: CourseError if `dataset` raises.
    """
    n = cores()
    if n == 1:
        return 1.0
    ratios = []
    for _ in range(rounds):
        together = _items_per_second(dataset, n, seconds)
        alone = _items_per_second(dataset, 1, seconds)
        ratios.append(together / alone)
    return min(float(n), statistics.median(ratios))


def _items_per_second(dataset, n, seconds):
    """Items per second that `n` forked processes make together."""
    context = multiprocessing.get_context("fork")
    start = context.Barrier(n)
    pipes = []
    processes = []
    for k in range(n):
        mine, theirs = context.Pipe()
        arguments = (dataset, k, seconds, start, theirs)
        process = context.Process(target=_make_items, args=arguments, daemon=True)
        process.start()
        processes.append(process)
        theirs.close()  # else the end of the process would not close the pipe
        pipes.append(mine)
    try:
        return sum(pipe.recv() for pipe in pipes)
    except EOFError:
        raise CourseError(
            "a process that makes items of the dataset has failed; try dataset[0]."
        ) from None
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _make_items(dataset, first, seconds, start, pipe):
    torch.set_num_threads(1)
    try:
        dataset[first % len(dataset)]  # warms up
    except BaseException:
        start.abort()  # else the others wait for this process
        raise
    start.wait(60)
    begin = time.perf_counter()
    made = 0
    while time.perf_counter() < begin + seconds:
        dataset[(first + made) % len(dataset)]
        made += 1
    pipe.send(made / (time.perf_counter() - begin))


class _Timed(Dataset):
    """The items of `dataset`, a whole batch at a time, and the time when the batch was begun."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitems__(self, indices):
        begun = time.perf_counter()
        return begun, [self.dataset[i] for i in indices]


def _timed_batch(begun_and_items):
    begun, items = begun_and_items
    return default_collate(items), time.perf_counter() - begun, time.process_time()


def forked(dataset: Dataset, batch_size: int, num_workers: int = 0, **options: Any) -> DataLoader:
    """A DataLoader with `options`, whose workers, if any, are forked and persistent.

    Definitions of a notebook cell cannot be pickled, so only forked workers have them.
    """
    if num_workers:
        options = {"multiprocessing_context": "fork", "persistent_workers": True} | options
    return DataLoader(dataset, batch_size, num_workers=num_workers, **options)


def evenly_spaced(dataset: Dataset, n: int) -> Dataset:
    """Shorten the list `dataset.paths` to at most `n` evenly spaced items; return `dataset`."""
    step = max(1, len(dataset.paths) // n)
    dataset.paths = dataset.paths[::step][:n]
    return dataset


def _decoded(path):
    """uint8 tensor (3, height, width) of the JPEG file `path`."""
    # here, because it takes a second that unit 04 need not wait
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    try:
        return decode_jpeg(read_file(str(path)), mode=ImageReadMode.RGB)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise CourseError(f"{path} cannot be read as a JPEG image ({reason}).") from None
