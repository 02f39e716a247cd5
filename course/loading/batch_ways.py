"""Ways to put the rows of a random batch together, and data sets that fetch it in one call."""

import itertools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from course.measure.comparison import Comparison
from course.measure.yardsticks import show_rates

MIB = 2**20  # bytes
MEMORY_PAGE = 4096  # bytes
BATCHES = 8  # that a way gathers per run
INDEXED = "table[index]"
NEW = "index_select into a new tensor"
INTO = "gather into a buffer"
Gather = Callable[[Tensor, Tensor, Tensor], Tensor]


class WholeBatches(TensorDataset):
    """A TensorDataset whose batches are fetched in one call, for `collate_fn=unchanged`.

    Since torch 2, a DataLoader asks `__getitems__` for all rows of a batch, if there is one.
    """

    def __getitems__(self, index: list[int]) -> list[Tensor]:
        return [tensor[index] for tensor in self.tensors]


def unchanged(batch: list[Tensor]) -> list[Tensor]:
    """The batch, which is one already."""
    return batch


def ways_to_gather(table: Tensor, n_rows: int, gather: Gather) -> dict[str, Callable[[], Tensor]]:
    """{name: function} of ways to put `n_rows` random rows together, other rows in each call."""
    drawn = [torch.randint(len(table), (n_rows,)) for _ in range(BATCHES)]
    next_rows = itertools.cycle(drawn).__next__
    buffer = torch.empty(n_rows, table.shape[1])
    return {
        INDEXED: lambda: table[next_rows()],
        NEW: lambda: torch.index_select(table, 0, next_rows()),
        INTO: lambda: gather(table, next_rows(), buffer),
    }


def show_gathers(
    compared: Comparison, faults: Mapping[str, float], n_bytes: int, row_bytes: int
) -> None:
    """Print the rates of `ways_to_gather`, each repeated, and their page faults.

    Args:
        faults: {name of a way: page faults per batch}.
        n_bytes: of a batch, which is rounded down to whole rows.
        row_bytes: bytes of a row.
    """
    n_rows = n_bytes // row_bytes
    size = f"{n_bytes / MIB:.3g} MiB, {n_bytes / MEMORY_PAGE:,.0f} memory pages"
    print(f"eight batches of {n_rows:,} rows, {size} each:")
    show_rates(compared, BATCHES * n_rows * row_bytes)
    print(f"control: {compared.base} against itself {compared.control}; page faults per batch:")
    print(", ".join(f"{name} {count:,.0f}" for name, count in faults.items()) + "\n")


def repeated(call: Callable[[], Tensor]) -> Callable[[], None]:
    """A function that calls `call` BATCHES times.

    So long a run hardly depends on what another way has left in the caches.
    """

    def run():
        for _ in range(BATCHES):
            call()

    return run
