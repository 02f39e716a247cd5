"""Plain versions of exercises of unit 04, for cells that use one which is not solved: course.solved(exercise, plain).

They are slower than what the exercises ask for, or miss a condition of them, and no check takes them for right.
"""

import collections
import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from course.measure.page_cache import HEADER, map_rows

CHUNK = 1 << 12  # rows that are written at a time


def gather(table, index, out):
    """Two copies: into a new tensor, and from there into `out`."""
    out[: len(index)] = table[index]
    return out[: len(index)]


def random_order(rows, seed, epoch):
    """The order of one process."""
    return torch.randperm(rows, generator=torch.Generator().manual_seed(1000 * seed + epoch))


def quasi_random_order(rows, page_rows, window_pages, seed, epoch):
    """Random pages, and random rows in each window: sorted by window and a random key."""
    draw, full = torch.Generator().manual_seed(1000 * seed + epoch), rows // page_rows
    places = torch.cat([torch.randperm(full, generator=draw), torch.tensor([full])])  # the short page stays last
    windows = (places // window_pages)[torch.arange(rows) // page_rows]
    return (windows + torch.rand(rows, generator=draw, dtype=torch.float64)).argsort()


def row_stride(columns):
    """Bytes from row to row."""
    return min(4 << columns.bit_length(), -(-4 * (columns + 1) // 4096) * 4096)


def write_records(path, source):
    """One process writes all rows."""
    columns, stride = source.columns, row_stride(source.columns)
    header = {"format": "course-records-1", "rows": source.rows, "columns": columns, "stride": stride}
    header |= {"dtype": "float32", "seed": source.seed}
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(partial, "wb") as file:
        file.write(json.dumps(header).encode().ljust(HEADER - 1) + b"\n")
        for start in range(0, source.rows, CHUNK):
            x = source.x[start : min(start + CHUNK, source.rows)]
            values = np.zeros((len(x), stride // 4), np.float32)
            values[:, :columns], values[:, columns] = x, source.y[start : start + len(x)]
            file.write(values)
    os.replace(partial, path)
    return path


class Records:
    """A mapped record file; what its header says is believed."""

    def __init__(self, path):
        with open(path, "rb") as file:
            header = json.loads(file.read(HEADER))
        self.rows, self.columns, self.seed = header["rows"], header["columns"], header["seed"]
        _, self.table = map_rows(path, self.rows, header["stride"])
        self.x, self.y = self.table[:, : self.columns], self.table[:, self.columns]


class PageReader:
    """Reads whole pages and copies their rows to their places; one thread, through the page cache."""

    def __init__(self, path, rows, stride, page_rows, threads=1, direct=False):
        if direct:
            raise ValueError("this plain reader reads through the page cache; solve PageReader to read past it.")
        self.file, self.rows, self.stride, self.page_rows = open(path, "rb", 0), rows, stride, page_rows  # noqa: SIM115

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def fill(self, index, out):
        """The rows `index` in the first rows of `out`: all rows of some pages, in any order."""
        slots = index.argsort()
        first = 0
        while first < len(index):
            row = index[slots[first]].item()
            n = min(self.page_rows, self.rows - row)
            page = os.pread(self.file.fileno(), n * self.stride, HEADER + row * self.stride)
            out[slots[first : first + n]] = torch.from_numpy(np.frombuffer(page, np.float32).copy()).view(n, -1)
            first += n
        return out[: len(index)]


def read_ahead(fill, work, buffers):
    """As many fills ahead as there are buffers; who leaves early waits for all of them."""
    with ThreadPoolExecutor(1) as thread:
        ahead = collections.deque()
        for k, item in enumerate(work):
            ahead.append(thread.submit(fill, item, buffers[k % len(buffers)]))
            if len(ahead) == len(buffers):
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def copy_ahead(batches, copies):
    """Copies to the device without overlap."""
    for batch in batches:
        copy = copies.start(batch)
        copy.wait()
        yield copy.tensors()


def mean_and_std(batches):
    """Mean and standard deviation of every column, by sums in float64."""
    rows, total, squares = 0, 0, 0
    for x, _ in batches:
        x = x.double()
        rows, total, squares = rows + len(x), total + x.sum(0), squares + x.square().sum(0)
    mean = total / rows
    return mean.float(), (squares / rows - mean.square()).sqrt().float()
