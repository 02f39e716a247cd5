"""What unit 04 compares a loader with: copying the same bytes in memory, and reading a file.

None of them is a limit: a copy that writes to memory can be passed by threads that write to one
buffer in the cache. They are yardsticks, the same on every machine. Contestants take turns, so that
what else the machine does meets all of them alike.
"""

import os
from collections.abc import Callable, Iterable

import numpy as np
import torch

from course.datasets.regression import Regression
from course.measure.comparison import Comparison

GIGA = 1e9  # bytes of a gigabyte, as disks and buses count
MEMCPY = "memcpy, one thread"
ALL_THREADS = "memcpy, all threads"
MEMCPY_BYTES_MAX = 400_000_000  # that memcpy copies at a time: no second array of 40 GB
DRAWN_BYTES = 2**24  # of rows that are drawn at a time


def iterate(loader: Iterable) -> None:
    """Ask `loader` for all its batches and do nothing with them."""
    for _ in loader:
        pass


def one_pass(loader: Iterable) -> Callable[[], None]:
    """A function without arguments that iterates over `loader` once."""
    return lambda: iterate(loader)


def show_rates(compared: Comparison, n_bytes: int) -> None:
    """Print of each contestant milliseconds, GB/s for `n_bytes` per call, and the ratio."""
    for name in compared.seconds:
        milliseconds = 1000 * compared.time(name).estimate
        rate = compared.rate(name, n_bytes / GIGA).estimate
        ratio = "" if name == compared.base else f"  {compared.ratio(name)} of {compared.base}"
        print(f"{name:<46} {milliseconds:8.1f} ms {rate:7.3g} GB/s{ratio}")


def memcpy_of(n_bytes: int, threads: int | None = 1) -> Callable[[], None]:
    """A function that copies `n_bytes` in memory, MEMCPY_BYTES_MAX at a time.

    Args:
        threads: that it uses; None for all of torch's.
    """
    part = min(n_bytes, MEMCPY_BYTES_MAX) // 4
    source = torch.ones(part)
    target = torch.zeros(part)

    def copy():
        before = torch.get_num_threads()
        torch.set_num_threads(threads or before)
        for _ in range(round(n_bytes / 4 / part)):
            target.copy_(source)
        torch.set_num_threads(before)

    return copy


def read_file(path: str | os.PathLike, n_bytes: int) -> None:
    """Read the first `n_bytes` of a file into one small buffer, part by part."""
    buffer = bytearray(2**18)  # small enough to stay in the processor's cache
    with open(path, "rb", buffering=0) as file:
        while n_bytes > 0:
            n_read = file.readinto(buffer)
            if not n_read:  # the end of the file
                return
            n_bytes -= n_read


def rows_in_memory(data: Regression, share: float = 1 / 3) -> tuple[torch.Tensor, torch.Tensor]:
    """(x, y) of the first rows of `data` as tensors.

    Those are all rows, or as many as take `share` of the memory.
    """
    held = rows_that_fit(data.rows, data.columns, share)
    x = data.x[:held]
    if isinstance(x, np.memmap):
        x = np.array(x)
    return torch.from_numpy(x), torch.from_numpy(np.array(data.y[:held]))


def rows_that_fit(rows: int, columns: int, share: float) -> int:
    """`rows`, or as many as take `share` of the memory, which is said then."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    held = min(rows, int(share * memory / (4 * columns)))
    if held < rows:
        gets = f"TensorDataset gets {held:,} rows, and its times are scaled up"
        print(f"X has no room in memory: {gets}")
    return held


def drawn_table(
    draw: Callable[..., np.ndarray], rows: int, columns: int, share: float = 1 / 4
) -> torch.Tensor:
    """float32 tensor (rows, columns + 1) of what `draw` draws, a part at a time.

    Args:
        draw: draw_rows of unit 04.
        share: of the memory that the table may take; there are fewer rows then.
    """
    rng = np.random.default_rng(0)
    w = rng.random(columns, dtype=np.float32)
    b = float(rng.random())
    table = torch.empty(rows_that_fit(rows, columns, share), columns + 1)
    for part in table.split(max(1, DRAWN_BYTES // (4 * columns))):
        part.copy_(torch.from_numpy(draw(len(part), w, b, rng)))
    return table
