"""Probe of exercise batch_grid."""

import logging
import warnings

import matplotlib.pyplot as plt
import numpy
import torch
from matplotlib.figure import Figure

from course.checks.engine import exercise
from course.checks.parallel_loading.pictures import PEOPLE
from course.checks.probing.errors import error_name


class _Log(logging.Handler):
    """Counts the warnings of matplotlib inside a `with`."""

    def __enter__(self):
        self.count = 0
        logging.getLogger("matplotlib").addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger("matplotlib").removeHandler(self)

    def emit(self, record):
        self.count += record.levelno >= logging.WARNING


def _cells(figure):
    """[(row, column, axes)] of the axes that show an image, in reading order; rows and columns count from 0."""
    shown = [axes for axes in figure.axes if axes.images]
    corners = [axes.get_position(original=True) for axes in shown]
    down, right = [round(-c.y1, 3) for c in corners], [round(c.x0, 3) for c in corners]
    rows, columns = sorted(set(down)), sorted(set(right))
    found = zip((rows.index(y) for y in down), (columns.index(x) for x in right), shown, strict=True)
    return sorted(found, key=lambda cell: cell[:2])


def _pixels(axes):
    """The image that axes show, float32 (H, W, 3) from 0 to 1 in steps of 1/255: one written as bytes is as good."""
    values = torch.as_tensor(numpy.array(axes.images[0].get_array()))
    return values / 255 if values.dtype == torch.uint8 else values.float()


def _upright(axes):
    """True if the first row of the image that axes show is on top."""
    image = axes.images[0]
    _, _, bottom, top = image.get_extent()
    first, last = (top, bottom) if image.origin == "upper" else (bottom, top)
    (_, first), (_, last) = axes.transData.transform([(0, first), (0, last)])
    return bool(first > last)


def _title(axes):
    return "".join(axes.get_title(loc) for loc in ("left", "center", "right"))


def _font(axes):
    """Points of the largest title of axes."""
    titles = (axes.title, axes._left_title, axes._right_title)
    return max((title.get_fontsize() for title in titles if title.get_text()), default=0)


def _has_ticks(axes):
    if not (axes.axison and axes.get_visible()):
        return False
    ticks = [tick for way in (axes.xaxis, axes.yaxis) if way.get_visible() for tick in way.get_major_ticks()]
    return any(part.get_visible() for t in ticks for part in (t.tick1line, t.tick2line, t.label1, t.label2))


@exercise()
def batch_grid(answer, device, seed):
    """The figure, looked at axes by axes."""
    before = plt.get_fignums()
    warnings.simplefilter("ignore", DeprecationWarning)  # numpy's, of tensors that matplotlib is given as they are
    try:
        yield from _facts_of_grid(answer, device, torch.Generator().manual_seed(seed), seed % 3, before)
    finally:
        for number in set(plt.get_fignums()) - set(before):
            plt.close(number)


def _facts_of_grid(answer, device, rng, more, left_open):
    def batch(n):
        titles = [f"{PEOPLE[i % 4].replace('_', ' ')} {i}" for i in torch.randperm(n, generator=rng).tolist()]
        return (0.1 + 0.6 * torch.rand(n, 3, 5 + more, 4, generator=rng)).to(device), titles

    def places(figure):
        return [f"row {row}, column {column}: {_title(axes)}" for row, column, axes in _cells(figure)]

    images, titles = batch(9 + more)
    figure = answer(images, titles)
    yield "returns a matplotlib Figure", "Figure" if isinstance(figure, Figure) else type(figure).__name__
    cells = _cells(figure)
    yield "each image has axes of its own", [len(axes.images) for _, _, axes in cells]
    shown = torch.stack([_pixels(axes) for _, _, axes in cells]) if cells else torch.zeros(0)
    yield "each is shown with its colours along the last axis", tuple(shown.shape)
    expected = images.permute(0, 2, 3, 1).cpu()
    yield "no image is stretched to brighter or darker", _close(shown.amax((1, 2, 3)), expected.amax((1, 2, 3)))
    yield "the values of the images, in reading order", _close(shown, expected)
    yield "no image is upside down", all(_upright(axes) for _, _, axes in cells)
    yield "no image is stretched", all(axes.get_aspect() in (1, "equal") for _, _, axes in cells)
    yield "rows and columns, and the title of each image", places(figure)
    yield "titles have at most 10 points", all(_font(axes) <= 10 for _, _, axes in cells)
    yield "no ticks", not any(_has_ticks(axes) for _, _, axes in cells)
    empty = [axes for axes in figure.axes if not axes.images]
    yield "axes without an image are off", not any(axes.axison and axes.get_visible() for axes in empty)
    wide, high = figure.get_size_inches() / (8, 2)  # by default eight columns
    yield "the figure is 1 to 2.5 inches wide a column", 1 <= wide <= 2.5
    yield "the figure is 1 to 2.5 inches high a row", 1 <= high <= 2.5
    yield "no figure is left open in pyplot", plt.get_fignums() == left_open
    images, titles = batch(4)
    yield "a last row that is full", places(answer(images, titles, columns=2))
    yield "fewer images than columns", places(answer(images[:2], titles[:2], columns=3))
    yield "a single column", places(answer(images[:2], titles[:2], columns=1))
    yield "a single image in a single column", places(answer(images[:1], titles[:1], columns=1))
    wild = (images[:2] - 0.4) * 1.8 + 0.5  # from -0.04 to 1.04
    with _Log() as log:
        shown = torch.stack([_pixels(axes) for _, _, axes in _cells(answer(wild, ["low", "high"], columns=2))])
    clamped = wild.clamp(0, 1).permute(0, 2, 3, 1).cpu()
    yield "values a hair outside are clamped, the others stay", _close(shown, clamped)
    yield "matplotlib has nothing to warn about", log.count
    for text, short in (("too few", titles[:3]), ("too many", [*titles, "more"])):
        yield f"{text} titles raise ValueError", error_name(answer, images, short, columns=4)
    yield "a refused call leaves no figure open either", plt.get_fignums() == left_open


def _close(seen, expected):
    """True if no value is further off than the steps of bytes."""
    return seen.shape == expected.shape and bool(((seen - expected).abs() <= 1.01 / 255).all())
