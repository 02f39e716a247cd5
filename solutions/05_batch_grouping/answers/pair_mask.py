"""Known mistakes of exercise pair_mask, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "any_of_both": (
        "A cell counts as real if it is within any of its two lengths: the published bug. Ask for both: &, not |.",
        (" & ", " | "),
    ),
    "transposed": (
        "Height and width are swapped. The mask is (n, largest height, largest width).",
        ("in_height[:, :, None] & in_width[:, None, :]", "in_height[:, None, :] & in_width[:, :, None]"),
    ),
    "height_alone": (
        "Only the height is compared. A cell must be within the width, too.",
        ("& in_width", "& torch.ones_like(in_width)"),
    ),
    "a_square": (
        "Both dimensions have the size of the larger one. Take the largest height and the largest width.",
        ("int(heights.max())", "int(max(heights.max(), widths.max()))"),
        ("int(widths.max())", "int(max(heights.max(), widths.max()))"),
    ),
    "one_place_too_many": (
        "One place too many in each dimension: a length of 2 has the places 0 and 1. Use <, not <=.",
        ("< heights", "<= heights"),
        ("< widths", "<= widths"),
    ),
    "mask_of_numbers": (
        "The mask holds numbers (0 and 1). It must be bool: combine comparisons with &.",
        (" & in_width", ".int() * in_width"),
    ),
}


@alternative
def grid_by_grid(heights, widths):
    mask = torch.zeros(len(heights), int(heights.max()), int(widths.max()), dtype=torch.bool, device=heights.device)
    for grid, h, w in zip(mask, heights.tolist(), widths.tolist(), strict=True):
        grid[:h, :w] = True
    return mask


@mistake("Cells are numbered row by row and only counted: their number is right, their places are not.")
def as_many_in_a_row(heights, widths):
    shape = int(heights.max()), int(widths.max())
    cells = torch.arange(shape[0] * shape[1], device=heights.device).view(shape)
    return cells < (heights * widths)[:, None, None]


@alternative
def by_product(heights, widths):
    high, wide = (torch.arange(int(n.max()), device=n.device) < n[:, None] for n in (heights, widths))
    return (high[:, :, None].int() * wide[:, None, :].int()).bool()
