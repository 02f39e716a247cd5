"""Known mistakes of exercise pair_mask, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def _both(rows, columns):
    first = torch.arange(int(rows.max()), device=rows.device) < rows[:, None]
    second = torch.arange(int(columns.max()), device=rows.device) < columns[:, None]
    return first[:, :, None], second[:, None, :]


@mistake("pair_mask", "An entry counts as real if any of its two places is: the published bug. Both must be.")
def any_of_both(rows, columns):
    first, second = _both(rows, columns)
    return first | second


@mistake("pair_mask", "Rows and columns have changed places. The mask is (n, rows, columns).")
def transposed(rows, columns):
    first, second = _both(rows, columns)
    return (first & second).transpose(1, 2)


@mistake("pair_mask", "Only the rows are looked at. An entry is real if its column is, too.")
def rows_alone(rows, columns):
    first, second = _both(rows, columns)
    return first & torch.ones_like(second)


@mistake("pair_mask", "Both dimensions are as large as the larger of the two. Each has a largest number of its own.")
def a_square(rows, columns):
    most = max(int(rows.max()), int(columns.max()))
    place = torch.arange(most, device=rows.device)
    return (place < rows[:, None])[:, :, None] & (place < columns[:, None])[:, None, :]


@alternative("pair_mask")
def by_product(rows, columns):
    first, second = _both(rows, columns)
    return (first.int() * second.int()).bool()


@alternative("pair_mask")
def table_by_table(rows, columns):
    mask = torch.zeros(len(rows), int(rows.max()), int(columns.max()), dtype=torch.bool, device=rows.device)
    for table, r, c in zip(mask, rows.tolist(), columns.tolist(), strict=True):
        table[:r, :c] = True
    return mask
