"""Known mistakes of exercise pair_mask, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def _both(heights, widths):
    first = torch.arange(int(heights.max()), device=heights.device) < heights[:, None]
    second = torch.arange(int(widths.max()), device=heights.device) < widths[:, None]
    return first[:, :, None], second[:, None, :]


@mistake(
    "pair_mask",
    "A cell counts as real if it is within any of its two lengths: the published bug. Ask for both: &, not |.",
)
def any_of_both(heights, widths):
    first, second = _both(heights, widths)
    return first | second


@mistake("pair_mask", "Height and width are swapped. The mask is (n, largest height, largest width).")
def transposed(heights, widths):
    first, second = _both(heights, widths)
    return (first & second).transpose(1, 2)


@mistake("pair_mask", "Only the height is compared. A cell must be within the width, too.")
def height_alone(heights, widths):
    first, second = _both(heights, widths)
    return first & torch.ones_like(second)


@mistake("pair_mask", "Both dimensions have the size of the larger one. Take the largest height and the largest width.")
def a_square(heights, widths):
    most = max(int(heights.max()), int(widths.max()))
    place = torch.arange(most, device=heights.device)
    return (place < heights[:, None])[:, :, None] & (place < widths[:, None])[:, None, :]


@alternative("pair_mask")
def by_product(heights, widths):
    first, second = _both(heights, widths)
    return (first.int() * second.int()).bool()


@alternative("pair_mask")
def grid_by_grid(heights, widths):
    mask = torch.zeros(len(heights), int(heights.max()), int(widths.max()), dtype=torch.bool, device=heights.device)
    for grid, h, w in zip(mask, heights.tolist(), widths.tolist(), strict=True):
        grid[:h, :w] = True
    return mask


@mistake("pair_mask", "One place too many in each dimension: a length of 2 has the places 0 and 1. Use <, not <=.")
def one_place_too_many(heights, widths):
    first = torch.arange(int(heights.max()), device=heights.device) <= heights[:, None]
    second = torch.arange(int(widths.max()), device=heights.device) <= widths[:, None]
    return first[:, :, None] & second[:, None, :]


@mistake("pair_mask", "The mask holds numbers (0 and 1). It must be bool: combine comparisons with &.")
def mask_of_numbers(heights, widths):
    first, second = _both(heights, widths)
    return first.int() * second.int()


@mistake("pair_mask", "Cells are numbered row by row and only counted: their number is right, their places are not.")
def as_many_in_a_row(heights, widths):
    shape = int(heights.max()), int(widths.max())
    cells = torch.arange(shape[0] * shape[1], device=heights.device).view(shape)
    return cells < (heights * widths)[:, None, None]
