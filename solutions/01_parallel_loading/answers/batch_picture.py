"""Known mistakes of exercise batch_picture, and right answers in other styles."""

import numpy
import torch
from torchvision.utils import make_grid

from course.engine.known_answers import alternative

MISTAKES = {
    "channels_first": (
        "Channels come first, as in torch. Matplotlib wants them last: permute(1, 2, 0).",
        (".permute(1, 2, 0)", ""),
    ),
    "transposed": (
        "Height and width are swapped: the faces lie on their side. Use permute(1, 2, 0).",
        (".permute(1, 2, 0)", ".permute(2, 1, 0)"),
    ),
    "reshaped": (
        "reshape changes the shape and mixes the pixels. permute moves the channels.",
        (".permute(1, 2, 0)", ".reshape(*make_grid(images, nrow=columns).shape[1:], 3)"),
    ),
    "usual_columns": (
        "columns is not used: make_grid puts eight images into a row. Pass nrow=columns.",
        (", nrow=columns", ""),
    ),
    "stays_on_the_gpu": (
        "A tensor on a GPU has no NumPy array. Copy the picture to the CPU first: .cpu().numpy().",
        (".cpu().numpy()", ".numpy()"),
    ),
    "normalised": (
        "make_grid stretches the values of the batch to the range from 0 to 1. Leave out normalize.",
        ("nrow=columns", "nrow=columns, normalize=True"),
    ),
    "rows_for_columns": (
        "nrow is the number of rows here. It is the number of images in a row: pass columns.",
        ("nrow=columns", "nrow=-(-len(images) // columns)"),
    ),
    "no_frame": (
        "The frame around the images is missing. Leave padding as make_grid has it.",
        ("nrow=columns", "nrow=columns, padding=0"),
    ),
}


@alternative
def by_hand(images, columns):
    n, _, height, width = images.shape
    columns = min(columns, n)
    n_rows = -(-n // columns)
    picture = numpy.zeros(
        (2 + n_rows * (height + 2), 2 + columns * (width + 2), 3), dtype=numpy.float32
    )
    for k, image in enumerate(images.cpu().numpy()):
        top, left = 2 + k // columns * (height + 2), 2 + k % columns * (width + 2)
        picture[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return picture


@alternative
def moved_axis(images, columns):
    return torch.movedim(make_grid(list(images.cpu()), nrow=columns), 0, -1).numpy()
