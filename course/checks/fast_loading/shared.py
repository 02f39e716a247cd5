"""What several probes of unit 04_fast_loading use."""

import collections
import contextlib
import functools
import itertools
import random
import tracemalloc
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.checks.compare import same_values
from course.errors import CourseError

PAGE = 4096  # bytes of a record file's header, and of a memory page


def _raised(call):
    """The exception that `call()` raises, or None."""
    try:
        call()
    except Exception as error:
        return error


def _stride(columns):
    row = 4 * (columns + 1)
    return next(2**k for k in range(13) if 2**k >= row) if row <= PAGE else (row + PAGE - 1) // PAGE * PAGE


# seeds and epochs that careless sums and products of them mix up
NUMBERS = (0, 1, 2, 3, 10, 31, 100, 999, 1000, 2**12, 10_000, 2**16, 100_000, 2**17, 2**18, 2**19, 999_999, 10**6)


LINKED = 0.45  # a correlation that chance does not reach: six deviations for 180 values


def _form(order):
    """What an order is, without its numbers."""
    if not isinstance(order, torch.Tensor):
        return type(order).__name__
    return {"dtype": order.dtype, "axes": order.dim(), "device": order.device.type}


def _account(rows, *orders):
    """How the orders together fail to hold each row number once: three counts, all 0 for right ones."""
    counts = collections.Counter(itertools.chain(*(order.tolist() for order in orders)))
    return {
        "numbers that are no rows": sum(not 0 <= row < rows for row in counts),
        "rows that are missing": sum(row not in counts for row in range(rows)),
        "rows that come several times": sum(n > 1 for n in counts.values()),
    }


def _alike(order):
    """Two pairs (seed, epoch) for which `order(seed, epoch)` is the same, in words, or "none"."""
    seen = {}
    for pair in itertools.product(NUMBERS, NUMBERS):
        other = seen.setdefault(tuple(order(*pair).tolist()), pair)
        if other != pair:
            return f"(seed, epoch) = {other} and {pair}"
    return "none"


def _follows_the_file(numbers):
    """True if a list of row or page numbers runs along the file or against it, or keeps neighbours of it together."""
    place = torch.tensor([range(len(numbers)), numbers], dtype=torch.float64)
    near = sum(abs(a - b) == 1 for a, b in itertools.pairwise(numbers))
    return abs(torch.corrcoef(place)[0, 1].item()) > LINKED or near > len(numbers) / 10


def _related(one, other):
    """True if many neighbours in the one list are neighbours in the other, either way round, or stand in its places."""
    pairs = [{frozenset(pair) for pair in itertools.pairwise(numbers)} for numbers in (one, other)]
    same = sum(a == b for a, b in zip(one, other, strict=False))
    return max(len(pairs[0] & pairs[1]), same) > len(one) / 10


def _random_state():
    """The state of the three global sources of random numbers, as something that can be compared."""
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())


def _error_name(call):
    """The name of the type of the exception that `call()` raises, or "nothing"."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def _error_kind(call):
    """The name of the type of the exception that `call()` raises; those below OSError count as one."""
    try:
        call()
    except Exception as error:
        return "OSError" if isinstance(error, OSError) else type(error).__name__
    return "nothing"


def _kind(value):
    """What a tensor is, without its values; of anything else the name of its type."""
    return [f"Tensor {value.dtype}", value.shape] if isinstance(value, torch.Tensor) else type(value).__name__


def _is_view(value, out):
    """True if `value` is the beginning of `out`, not a copy of it."""
    return isinstance(value, torch.Tensor) and value.data_ptr() == out.data_ptr() and value.stride() == out.stride()


class _NewTensors(TorchDispatchMode):
    """Counts torch's operations in this thread, and the bytes of the new memory that their results have."""

    calls = total = largest = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        known = {_memory(t) for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        result = operation(*args, **(kwargs or {}))
        self.calls += 1
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and _memory(tensor) not in known:
                self.total += tensor.untyped_storage().nbytes()
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return result


def _memory(tensor):
    return tensor.untyped_storage().data_ptr()


@contextlib.contextmanager
def _traced():
    """A list that holds, after the block, the most bytes of Python and NumPy that were alive at once in it."""
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, peak = tracemalloc.get_traced_memory()[0], []
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        if started:
            tracemalloc.stop()


def _same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


END = object()


class Stuck(CourseError):
    """An answer waits for what never comes, or leaves something running."""


def _caught(call):
    """The exception that `call()` raises, or None."""
    try:
        call()
    except Stuck:
        raise
    except BaseException as error:
        return error
    return None


def _error_type(error):
    return "nothing" if error is None else type(error).__name__


def _kind_on_device(value):
    """What a tensor or an array is, without its values; of anything else the name of its type."""
    if isinstance(value, torch.Tensor):
        return [f"Tensor {value.dtype}", tuple(value.shape), value.device.type]
    if isinstance(value, np.ndarray):
        return [f"array {value.dtype}", value.shape]
    return type(value).__name__


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


class _Operations(TorchDispatchMode):
    """What torch is asked to do inside the block, but not while `paused`: the probe's own work.

    `dtypes` of new tensors; `largest`, the elements of the largest of them; `waits` for a value of the device; `work`,
    elements gone through, where a view is free; `read`, those of the tensors in `watched`.
    """

    def __init__(self, watched=()):
        super().__init__()
        self.watched = {_memory(tensor) for tensor in watched}
        self.dtypes, self.largest, self.waits, self.work, self.read, self.paused = set(), 0, 0, 0, 0, False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if self.paused:
            return result
        given, got = list(_tensors([args, kwargs or {}])), list(_tensors(result))
        if func is torch.ops.aten._local_scalar_dense.default:
            self.waits += 1
        elif not any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns):
            held = set(map(_memory, given))
            new = [tensor for tensor in got if _memory(tensor) not in held]
            self.dtypes |= {str(tensor.dtype).removeprefix("torch.") for tensor in new}
            self.largest = max([self.largest, *(tensor.numel() for tensor in new)])
            self.work += max((tensor.numel() for tensor in given + got), default=0)
            self.read += sum(tensor.numel() for tensor in given if _memory(tensor) in self.watched)
        return result


class _Batches:
    """Batches (x, y) of `sizes` rows of `table` in turn, as a loader gives them: views of one buffer, filled anew.

    `columns` of the table are x, the next one is y.  Counts its `passes`; `unchanged` is False if somebody wrote into
    a batch.  `asked` is called before each batch and after the last.
    """

    def __init__(self, table, columns, sizes, operations=None, asked=lambda: None):
        self.table, self.columns, self.sizes = table, columns, sizes
        self.operations, self.asked = operations or _Operations(), asked
        self.buffer = table.new_empty(max(sizes, default=0), table.shape[1])
        self.passes, self.unchanged = 0, True

    def __iter__(self):
        self.passes += 1
        start = 0
        for size in self.sizes:
            self.operations.paused = True
            self.asked()
            rows = self.table[start : start + size]
            buffer = self.buffer[:size]
            buffer.copy_(rows)
            x, y = buffer[:, : self.columns], buffer[:, self.columns]
            self.operations.paused = False
            yield x, y
            self.operations.paused = True
            self.unchanged &= same_values(buffer, rows)
            self.buffer.fill_(float("nan"))
            start += size
        self.asked()
        self.operations.paused = False


class NotTorch(CourseError):
    """A tensor of the answer's was handed to NumPy, where no check sees what becomes of it."""


def _torch_alone(answer):
    """`answer`, except that NumPy gets no tensor while it runs, as none that lies on a GPU."""

    def refuse(*_, **__):
        raise NotTorch("a tensor is handed to NumPy: on a GPU that would fail. Compute with torch alone.")

    @functools.wraps(answer)
    def watched(*args, **kwargs):
        with mock.patch.multiple(torch.Tensor, numpy=refuse, __array__=refuse, __dlpack__=refuse):
            return answer(*args, **kwargs)

    return watched


def _scaled_table(rng, rows, columns, device):
    """float32 (rows, columns + 3): x of different scales, y, and two more columns that no row needs."""
    table = torch.rand(rows, columns + 3, generator=rng)
    table[:, :columns] *= 1 + torch.arange(columns)
    table[:, :columns] += torch.rand(columns, generator=rng)
    return table.to(device)


def _near(value, truth, relative=0.0, absolute=0.0):
    return abs(float(value) - float(truth)) <= absolute + relative * abs(float(truth))


def _kind_and_place(value):
    """What a tensor is, without its values; of anything else the name of its type."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype)[6:], value.shape, value.device.type]
    return type(value).__name__


def _snapped(seen, truth, tolerance):
    """`truth` as float32 if `seen` is as near to it as `tolerance` says, relative to its norm; else `seen`."""
    near = (seen.double() - truth).norm() <= tolerance * truth.norm()
    return truth.float() if near else seen


class _Data:
    """A regression problem, read as a file would be: batches in one buffer that is refilled, in passes that count.

    Calling it starts a pass, which brings the rows in an order of its own; the last batch is smaller.
    """

    def __init__(self, rng, device, rows, columns, batch, noise=1.0):
        # centred: one large eigenvalue would make the iterations of float32 and float64 drift apart
        x = (torch.rand(rows, columns, generator=rng) - 0.5) * torch.linspace(1, 3, columns)
        y = 8 * (x @ torch.rand(columns, generator=rng) + 0.5 + noise * torch.randn(rows, generator=rng))
        self.table = torch.cat([x, y[:, None], torch.zeros(rows, 2)], 1).to(device)  # rows are padded, as in the file
        self.orders = [torch.randperm(rows, generator=rng).to(device) for _ in range(4)]
        self.columns, self.batch, self.passes, self.written_to = columns, batch, 0, False
        self.buffer = torch.empty(batch, columns + 3, device=device)

    def __call__(self):
        self.passes += 1
        return self._batches(self.orders[self.passes % 4])

    def _batches(self, order):
        for rows in order.split(self.batch):
            filled = torch.index_select(self.table, 0, rows, out=self.buffer[: len(rows)])
            yield filled[:, : self.columns], filled[:, self.columns]
            self.written_to |= not torch.equal(filled, self.table[rows])
        self.buffer.fill_(float("nan"))

    def exact(self, rows=slice(None)):
        """x and y of `rows` in float64."""
        table = self.table[rows].double()
        return table[:, : self.columns], table[:, self.columns]

    def solution(self, strength):
        """The minimiser of |X w - y|^2 / n + strength |w|^2, float64."""
        x, y = self.exact()
        gram = x.T @ x / len(x) + strength * torch.eye(self.columns, dtype=x.dtype, device=x.device)
        return torch.linalg.solve(gram, x.T @ y / len(x))


class _Largest(TorchDispatchMode):
    """Notes the shape of the first new tensor whose memory holds more than `most` values."""

    def __init__(self, most):
        super().__init__()
        self.most, self.found = most, "at most a batch"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        for tensor in [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]:
            values = tensor.untyped_storage().nbytes() // tensor.element_size()
            is_new = tensor.untyped_storage().data_ptr() not in given
            if is_new and values > self.most and self.found == "at most a batch":
                self.found = f"one of shape {tuple(tensor.shape)}"
        return result
