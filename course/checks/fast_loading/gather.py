"""Probe of exercise gather."""

import warnings

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.counting import peak_bytes_of
from course.engine.probing.errors import error_kind
from course.engine.probing.tensors import NewTensors, is_view, kind, same_tensor


@exercise(changes_inputs=True)
def gather(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Rows of a table on the CPU, into buffers that are larger than the batch, as large, or too
    small.
    """
    # that is a fact of its own
    warnings.filterwarnings("ignore", "An output with one or more elements was resized")
    rng = torch.Generator().manual_seed(seed)
    rows, width, n = 200 + seed % 7, 128, 60 + seed % 5
    table = torch.randn(rows, width, generator=rng)

    def some(n):
        return torch.randint(rows, (n,), generator=rng)

    def buffer(rows=2 * n, width=width, dtype=torch.float32):
        return torch.full((rows, width), 7.0, dtype=dtype)

    index, out = some(n), buffer()
    index[-1] = index[0]
    right, given, place = table[index], (table.clone(), index.clone()), out.data_ptr()
    result = answer(table, index, out)
    yield "returns a float32 tensor with a row for each index", kind(result)
    yield "its rows are table[index]", result
    yield "these rows are in out", same_tensor(out[:n], right)
    yield "what is returned is a view of out", is_view(result, out)
    yield "out keeps its shape and its memory", [out.shape, out.data_ptr() == place]
    yield "rows of out beyond the batch stay as they are", same_tensor(out[n:], buffer(n))
    yield (
        "table and index stay as they are",
        same_tensor(table, given[0]) and same_tensor(index, given[1]),
    )
    for text, index in (
        ("a batch that fills out", some(2 * n)),
        ("one row", some(1)),
        ("first and last row of the table", torch.tensor([rows - 1, 0])),
        ("no row", some(0)),
    ):
        out = buffer()
        yield f"{text}: the rows", answer(table, index, out)
        yield f"{text}: what out holds", out

    calls = []
    for m in (n, 2 * n):
        index, out = some(m), buffer()
        answer(table, index, out)  # what is made once and kept is no copy
        peak = peak_bytes_of(answer, table, index, out)
        with NewTensors() as new:
            answer(table, index, out)
        calls.append(new.calls)
        yield (
            f"no row is copied on the way, {m} rows: less than 64 bytes an index",
            new.total + peak < 64 * m + 4096,
        )
    yield "no more calls of torch for the double number of rows", calls[1] <= calls[0]

    wrong = {
        "too few rows": buffer(n - 1),
        "rows that are too short": buffer(width=width - 1),
        "rows that are too long": buffer(width=width + 1),
        "another dtype": buffer(dtype=torch.float64),
    }
    before = {text: (other.clone(), other.data_ptr()) for text, other in wrong.items()}
    raised = {
        text: error_kind(lambda other=other: answer(table, some(n), other))
        for text, other in wrong.items()
    }
    yield "what is raised for an out with ...", raised
    untouched = {
        text: same_tensor(o, before[text][0]) and o.data_ptr() == before[text][1]
        for text, o in wrong.items()
    }
    yield "it stays what it was", untouched
    for number in (rows, -1, -rows):
        wrong = some(n)
        wrong[n // 2] = number
        done = error_kind(lambda wrong=wrong: answer(table, wrong, buffer()))
        yield f"row {number} of a table of {rows} rows is refused", done != "nothing"
