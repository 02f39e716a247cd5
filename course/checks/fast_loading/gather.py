"""Probe of exercise gather."""

import warnings

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.counting import peak_bytes_of
from course.engine.probing.errors import error_kind
from course.engine.probing.laws import tried
from course.engine.probing.tensors import NewTensors, is_view, kind, same_tensor

WIDTH = 128  # of a row, in numbers


class _Case:
    """A table of `rows` rows, batches of about `n` of them, and buffers."""

    def __init__(self, answer: Answer, seed: int) -> None:
        self.answer = answer
        self.rng = torch.Generator().manual_seed(seed)
        self.rows = 200 + seed % 7
        self.n = 60 + seed % 5
        self.table = torch.randn(self.rows, WIDTH, generator=self.rng)

    def some(self, n: int) -> torch.Tensor:
        """`n` random row numbers."""
        return torch.randint(self.rows, (n,), generator=self.rng)

    def buffer(
        self, rows: int | None = None, width: int = WIDTH, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """A tensor of sevens, by default for twice `n` rows."""
        rows = 2 * self.n if rows is None else rows
        return torch.full((rows, width), 7.0, dtype=dtype)


@exercise(changes_inputs=True)
def gather(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Rows of a table on the CPU, into buffers larger than the batch, as large, or too small."""
    # a separate fact tells whether the answer resizes its buffer
    warnings.filterwarnings("ignore", "An output with one or more elements was resized")
    case = _Case(answer, seed)
    yield from _rows_and_buffer(case)
    yield from _other_batches(case)
    yield from _memory_and_calls(case)
    yield from _wrong_buffers(case)
    yield from _wrong_rows(case)


def _rows_and_buffer(case: _Case) -> Facts:
    index = case.some(case.n)
    out = case.buffer()
    index[-1] = index[0]
    right = case.table[index]
    table_before = case.table.clone()
    index_before = index.clone()
    address = out.data_ptr()
    result = case.answer(case.table, index, out)
    yield "returns a float32 tensor with a row for each index", kind(result)
    yield "its rows are table[index]", result
    yield "these rows are in out", same_tensor(out[: case.n], right)
    yield "what is returned is a view of out", is_view(result, out)
    yield "out keeps its shape and its memory", [out.shape, out.data_ptr() == address]
    beyond = case.buffer(case.n)
    yield "rows of out beyond the batch stay as they are", same_tensor(out[case.n :], beyond)
    untouched = same_tensor(case.table, table_before) and same_tensor(index, index_before)
    yield "table and index stay as they are", untouched


def _other_batches(case: _Case) -> Facts:
    indices = {
        "a batch that fills out": case.some(2 * case.n),
        "one row": case.some(1),
        "first and last row of the table": torch.tensor([case.rows - 1, 0]),
        "no row": case.some(0),
    }
    for text, index in indices.items():
        out = case.buffer()
        yield f"{text}: the rows", case.answer(case.table, index, out)
        yield f"{text}: what out holds", out


def _memory_and_calls(case: _Case) -> Facts:
    calls = []
    for m in (case.n, 2 * case.n):
        index = case.some(m)
        out = case.buffer()
        case.answer(case.table, index, out)  # makes what is kept between calls: this does not count
        peak = peak_bytes_of(case.answer, case.table, index, out)
        with NewTensors() as new:
            case.answer(case.table, index, out)
        calls.append(new.calls)
        is_little = new.total + peak < 64 * m + 4096
        yield f"{m} rows: no row is copied on the way, with less than 64 new bytes each", is_little
    yield (
        "no more calls of torch for the double number of rows",
        tried(calls[1] <= calls[0], case.n),
    )


def _wrong_buffers(case: _Case) -> Facts:
    buffers = {
        "too few rows": case.buffer(case.n - 1),
        "rows that are too short": case.buffer(width=WIDTH - 1),
        "rows that are too long": case.buffer(width=WIDTH + 1),
        "another dtype": case.buffer(dtype=torch.float64),
    }
    raised = {}
    untouched = {}
    for text, buffer in buffers.items():
        before = buffer.clone()
        address = buffer.data_ptr()
        raised[text] = error_kind(case.answer, case.table, case.some(case.n), buffer)
        untouched[text] = same_tensor(buffer, before) and buffer.data_ptr() == address
    yield "what is raised for an out with ...", raised
    yield "it stays what it was", untouched


def _wrong_rows(case: _Case) -> Facts:
    for number in (case.rows, -1, -case.rows):
        index = case.some(case.n)
        index[case.n // 2] = number
        error = error_kind(case.answer, case.table, index, case.buffer())
        yield f"row {number} of a table of {case.rows} rows is refused", error != "nothing"
