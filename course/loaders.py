"""Given loaders: files -> *batches* -> models.

ThreadedJpegs is the fastest JPEG loader of the course.  It uses threads instead of worker processes:
torchvision's decoder and NumPy's arithmetic release Python's global lock, so threads decode in parallel and write into
memory that the main process reads: no processes to start, no message and no new memory per batch.  Transforms that run
Python code per image hold the lock; `forked` makes worker processes for them.
"""

import mmap
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.io import ImageReadMode, decode_jpeg, read_file

from course.device import cores, device
from course.errors import CourseError

TASK = 8  # images per task: fewer tasks cost less, more tasks spread better over the threads


class ThreadedJpegs:
    """Batches of JPEG files, decoded by threads into reused buffers.

    Iterating gives float32 tensors (n, 3, height, width) in [0, 1] with the pixels of PIL + ToTensor, while the next
    `ahead` batches are being decoded.  A batch is valid until the next one is asked for: `clone()` what you keep.  Its
    memory format is channels_last: the decoder's own order, and the one that convolutions in half precision prefer.

    Args:
        paths: sequence of JPEG files, all of one size; grey ones become RGB.
        batch_size: images per batch; the last one may be smaller.
        threads: number of decoding threads (default: one per core that this process may use).
        shuffle: a new order per epoch, from torch's global random numbers or `generator`.
        ahead: batches decoded in advance; the memory is `ahead` + 1 batches, however long the epoch.

    Raises: CourseError if there are no paths, and while iterating for a file that is missing, broken, or of another
        size than the first.
    Source: the reused buffers of FFCV (Leclerc et al. 2023, arXiv:2306.12517), with torchvision's decoder.
    """

    def __init__(
        self,
        paths: Sequence[Path | str],
        batch_size: int,
        threads: int | None = None,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        ahead: int = 2,
    ):
        if not len(paths):
            raise CourseError("asked for batches of JPEG files, but the list of paths is empty; is the folder right?")
        self.paths, self.batch_size, self.shuffle, self.generator = paths, batch_size, shuffle, generator
        self.threads, self.ahead = threads or cores(), ahead
        self._buffers = None

    def __len__(self):
        return -(-len(self.paths) // self.batch_size)

    def __iter__(self):
        n = len(self.paths)
        order = torch.randperm(n, generator=self.generator) if self.shuffle else torch.arange(n)
        # an epoch that is still running (nested loops) keeps its buffers, so this one makes its own
        buffers, self._buffers = self._buffers or self._make_buffers(), None
        running = deque()  # (batch, its tasks) in order
        pool = ThreadPoolExecutor(self.threads)
        try:
            for k, indices in enumerate(order.split(self.batch_size)):
                running.append(self._start(pool, indices, buffers[k % len(buffers)]))
                if len(running) > self.ahead:
                    yield _finished(*running.popleft())
            while running:
                yield _finished(*running.popleft())
        finally:  # also when the consumer leaves early, or a file is broken
            pool.shutdown(cancel_futures=True)
            self._buffers = buffers

    def _make_buffers(self):
        size = self.batch_size, *_decoded(self.paths[0]).shape
        return [torch.empty(size, memory_format=torch.channels_last) for _ in range(self.ahead + 1)]

    def _start(self, pool, indices, buffer):
        batch = buffer[: len(indices)]
        paths = [self.paths[i] for i in indices.tolist()]
        out = batch.permute(0, 2, 3, 1).numpy()  # (n, height, width, 3), the order in memory
        starts = range(0, len(paths), TASK)
        return batch, [pool.submit(_decode_into, out[s : s + TASK], paths[s : s + TASK]) for s in starts]


def aligned_buffers(count: int, rows: int, columns: int) -> list[torch.Tensor]:
    """`count` float32 CPU tensors (rows, columns), each starting at a page boundary, as O_DIRECT requires; a list.

    Their values are arbitrary.  They are pinned if the course's device is CUDA.
    """
    step = mmap.PAGESIZE // 4  # floats per memory page
    buffers = []
    for _ in range(count):
        memory = torch.empty(rows * columns + step, pin_memory=device().type == "cuda")
        first = -memory.data_ptr() % mmap.PAGESIZE // 4
        buffers.append(memory[first : first + rows * columns].view(rows, columns))
    return buffers


def worker_counts(n_batches: int | None = None) -> list[int]:
    """Numbers of workers worth trying, ascending: 0 to 4, then powers of two, up to twice the cores.

    Args:
        n_batches: batches per pass; if given, every worker gets at least two.
    """
    most = 2 * cores()
    counts = sorted({w for w in (0, 1, 2, 3, *(2**k for k in range(2, 9))) if w <= most} | {most})
    return counts if n_batches is None else [w for w in counts if w <= n_batches // 2]


def image_paths(folder: Path | str) -> list[Path]:
    """The sorted Paths of the images `<folder>/<Person>/<name>.jpg`; names that begin with a dot do not count.

    Sorted, because a file system lists a folder in any order, and an index must name the same image on every machine.

    Raises: FileNotFoundError if there is no such image, or no folder.
    """
    paths = sorted(Path(folder).glob("[!.]*/[!.]*.jpg"))
    if not paths:
        raise FileNotFoundError(f"looked in {folder} for <Person>/<name>.jpg, found none; unpack the images there.")
    return paths


class WorkerCosts(NamedTuple):
    """Seconds per batch of a loader with one worker, as `one_worker_costs` measures them."""

    cpu: float  # that the worker computes
    wall: float  # that the worker takes to build, its waiting included
    main: float  # that the main process computes: unpack the batch, and free it


def one_worker_costs(dataset: Dataset, batch_size: int, passes: int = 3) -> WorkerCosts:
    """WorkerCosts of `passes` whole passes over `dataset`, after one that is not counted.

    CPU seconds are those that the system books on the two processes, all of their threads together, so other programs
    on the machine disturb them less than a stop-watch.
    """
    batches = forked(_Timed(dataset), batch_size, 1, collate_fn=_timed_batch)
    *_, (_, _, cpu_before) = batches
    main_before, wall, cpu_after = time.process_time(), [], cpu_before
    for _ in range(passes):
        for _, seconds, cpu_after in batches:  # noqa: B007
            wall.append(seconds)
    n, main = len(wall), time.process_time() - main_before
    return WorkerCosts((cpu_after - cpu_before) / n, sum(wall) / n, main / n)


class _Timed(Dataset):
    """The items of `dataset`, a whole batch at a time, and the moment when the batch was begun."""

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


def forked(dataset: Dataset, batch_size: int, num_workers: int = 0, **options) -> DataLoader:
    """A DataLoader whose workers, if any, are forked and persistent; `options` go to the DataLoader.

    Definitions of a notebook cell cannot be pickled, so only forked workers have them.
    """
    if num_workers:
        options = {"multiprocessing_context": "fork", "persistent_workers": True} | options
    return DataLoader(dataset, batch_size, num_workers=num_workers, **options)


def evenly_spaced(dataset: Dataset, n: int) -> Dataset:
    """Cut the list `dataset.paths` to at most `n` items, evenly spaced, and return `dataset`."""
    dataset.paths = dataset.paths[:: max(1, len(dataset.paths) // n)][:n]
    return dataset


def _finished(batch, tasks):
    for task in tasks:
        task.result()  # re-raises an exception of the task
    return batch


def _decode_into(out, paths):
    for image, path in zip(out, paths, strict=True):
        pixels = _decoded(path).permute(1, 2, 0).numpy()
        if pixels.shape != image.shape:
            found, due = ("x".join(map(str, shape[1::-1])) for shape in (pixels.shape, image.shape))
            raise CourseError(f"{path} is {found} pixels, the first image {due}; a batch needs one size: resize it.")
        np.divide(pixels, np.float32(255), out=image)


def _decoded(path):
    """uint8 tensor (3, height, width) of the JPEG file `path`."""
    try:
        return decode_jpeg(read_file(str(path)), mode=ImageReadMode.RGB)
    except RuntimeError as error:
        raise CourseError(f"{path} cannot be read as a JPEG image ({str(error).splitlines()[0]}).") from None
