"""Batches that probes hand to an answer: views of one buffer that is filled anew, as a loader gives
them.
"""

import torch

from course.engine.compare import same_values
from course.engine.probing.tensors import Operations


def scaled_table(rng, rows, columns, device):
    """float32 (rows, columns + 3): x of different scales, y, and two more columns that no row
    needs.
    """
    table = torch.rand(rows, columns + 3, generator=rng)
    table[:, :columns] *= 1 + torch.arange(columns)
    table[:, :columns] += torch.rand(columns, generator=rng)
    return table.to(device)


class Batches:
    """Batches (x, y) of `sizes` rows of `table` in turn: views of one buffer, filled anew for each.

    `columns` of the table are x, the next one is y. Counts its `passes`; `unchanged` is False if
    somebody wrote into a batch.  `asked` is called before each batch and after the last.
    """

    def __init__(self, table, columns, sizes, operations=None, asked=lambda: None):
        self.table, self.columns, self.sizes = table, columns, sizes
        self.operations, self.asked = operations or Operations(), asked
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


class RegressionProblem:
    """A regression problem, read as a file would be: batches in one buffer that is refilled, in
    passes that count.

    An answer is given `read` alone, which starts a pass: the rows come in an order of its own, the
    last batch is smaller.
    """

    def __init__(self, rng, device, rows, columns, batch, noise=1.0):
        # centred: one large eigenvalue would make the iterations of float32 and float64 drift apart
        x = (torch.rand(rows, columns, generator=rng) - 0.5) * torch.linspace(1, 3, columns)
        y = 8 * (
            x @ torch.rand(columns, generator=rng) + 0.5 + noise * torch.randn(rows, generator=rng)
        )
        # rows are padded, as in the file
        self.table = torch.cat([x, y[:, None], torch.zeros(rows, 2)], 1).to(device)
        self.orders = [torch.randperm(rows, generator=rng).to(device) for _ in range(4)]
        self.columns, self.batch, self.passes, self.written_to = columns, batch, 0, False
        self.buffer = torch.empty(batch, columns + 3, device=device)

    @property
    def read(self):
        """A function that starts a pass, and leads to nothing else of the problem."""
        return iter(self._begin, None).__next__

    def _begin(self):
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

    def normal_equations(self, strength):
        """(matrix, right side) of the equations that the minimiser of |X w - y|^2 / n + strength
        |w|^2 solves.
        """
        x, y = self.exact()
        matrix = x.T @ x / len(x) + strength * torch.eye(
            self.columns, dtype=x.dtype, device=x.device
        )
        return matrix, x.T @ y / len(x)

    def solution(self, strength):
        """The minimiser of |X w - y|^2 / n + strength |w|^2, float64."""
        return torch.linalg.solve(*self.normal_equations(strength))
