"""Batches for an answer, as a loader gives them: views of one buffer that is refilled."""

from collections.abc import Callable, Iterator, Sequence

import torch

from course.engine.compare import same_values
from course.engine.probing.tensors import Operations

Batch = tuple[torch.Tensor, torch.Tensor]  # x (rows, columns), y (rows,)


def scaled_table(
    rng: torch.Generator, rows: int, columns: int, device: torch.device
) -> torch.Tensor:
    """float32 (rows, columns + 3): x of different scales, y, and two columns that no row needs."""
    table = torch.rand(rows, columns + 3, generator=rng)
    table[:, :columns] *= 1 + torch.arange(columns)
    table[:, :columns] += torch.rand(columns, generator=rng)
    return table.to(device)


def one_number(loss: object) -> object:
    """A tensor of one element without its shape, which is free; anything else as it is."""
    is_one = isinstance(loss, torch.Tensor) and loss.numel() == 1
    return loss.reshape(()) if is_one else loss


class Batches:
    """Consecutive batches (x, y) of `sizes` rows of `table`, in one buffer that is refilled.

    The first `columns` of the table are x, the next one is y. The object counts its `passes`;
    `unchanged` is False if somebody wrote into a batch. `asked` is called before each batch and
    after the last.
    """

    def __init__(
        self,
        table: torch.Tensor,
        columns: int,
        sizes: Sequence[int],
        operations: Operations | None = None,
        asked: Callable[[], object] = lambda: None,
    ) -> None:
        self.table = table
        self.columns = columns
        self.sizes = sizes
        self.operations = operations or Operations()
        self.asked = asked
        self.buffer = table.new_empty(max(sizes, default=0), table.shape[1])
        self.passes = 0
        self.unchanged = True

    def __iter__(self) -> Iterator[Batch]:
        self.passes += 1
        start = 0
        for size in self.sizes:
            self.operations.paused = True
            self.asked()
            rows = self.table[start : start + size]
            buffer = self.buffer[:size]
            buffer.copy_(rows)
            x = buffer[:, : self.columns]
            y = buffer[:, self.columns]
            self.operations.paused = False
            yield x, y
            self.operations.paused = True
            self.unchanged &= same_values(buffer, rows)
            self.buffer.fill_(float("nan"))
            start += size
        self.asked()
        self.operations.paused = False


class RegressionProblem:
    """A regression problem, read as a file would be: batches in one buffer that is refilled.

    The object counts its `passes`. An answer gets only `read`, which starts a pass. Each pass has
    its own order of the rows, and its last batch is smaller.
    """

    def __init__(
        self,
        rng: torch.Generator,
        device: torch.device,
        rows: int,
        columns: int,
        batch: int,
        noise: float = 1.0,
    ) -> None:
        # centred: one large eigenvalue would make the iterations of float32 and float64 drift apart
        x = (torch.rand(rows, columns, generator=rng) - 0.5) * torch.linspace(1, 3, columns)
        w = torch.rand(columns, generator=rng)
        y = 8 * (x @ w + 0.5 + noise * torch.randn(rows, generator=rng))
        # rows are padded, as in the file
        self.table = torch.cat([x, y[:, None], torch.zeros(rows, 2)], 1).to(device)
        self.orders = [torch.randperm(rows, generator=rng).to(device) for _ in range(4)]
        self.columns = columns
        self.batch = batch
        self.passes = 0
        self.written_to = False
        self.buffer = torch.empty(batch, columns + 3, device=device)

    @property
    def read(self) -> Callable[[], Iterator[Batch]]:
        """A function that starts a pass, and leads to nothing else of the problem."""
        return iter(self._begin, None).__next__

    def _begin(self) -> Iterator[Batch]:
        self.passes += 1
        return self._batches(self.orders[self.passes % 4])

    def _batches(self, order: torch.Tensor) -> Iterator[Batch]:
        for rows in order.split(self.batch):
            filled = torch.index_select(self.table, 0, rows, out=self.buffer[: len(rows)])
            yield filled[:, : self.columns], filled[:, self.columns]
            self.written_to |= not torch.equal(filled, self.table[rows])
        self.buffer.fill_(float("nan"))

    def exact(self) -> Batch:
        """x and y of all rows in float64."""
        table = self.table.double()
        return table[:, : self.columns], table[:, self.columns]

    def normal_equations(self, strength: float) -> tuple[torch.Tensor, torch.Tensor]:
        """(matrix, right side) of the equations that `solution` solves."""
        x, y = self.exact()
        identity = torch.eye(self.columns, dtype=x.dtype, device=x.device)
        matrix = x.T @ x / len(x) + strength * identity
        return matrix, x.T @ y / len(x)

    def solution(self, strength: float) -> torch.Tensor:
        """The minimiser of |X w - y|^2 / n + strength |w|^2, float64."""
        return torch.linalg.solve(*self.normal_equations(strength))
