"""Known mistakes of exercise batch_grid, and right answers in other styles."""

import math

import matplotlib.pyplot as plt
import torch
from matplotlib import gridspec
from matplotlib.figure import Figure

from course.checks.engine import alternative, mistake


def grid(images, titles, columns, rows=None, show=None, off=True, close=True, check=True, across=True, font="small"):
    """A right figure, with one idea to get wrong each."""
    if check and len(titles) != len(images):
        raise ValueError(f"{len(images)} images, {len(titles)} titles")
    rows = rows or math.ceil(len(images) / columns)
    figure, table = plt.subplots(rows, columns, squeeze=False, figsize=(1.5 * columns, 1.75 * rows))
    pictures = (show or by_permute)(images.cpu())
    cells = table.flat if across else table.T.flat
    for axes, picture, title in zip(cells, pictures, titles, strict=False):
        axes.imshow(picture)
        axes.set_title(title, fontsize=font)
        axes.axis("off")
    if off:
        for axes in table.flat:
            axes.axis("off")
    if close:
        plt.close(figure)
    return figure


def by_permute(images):
    return images.clamp(0, 1).permute(0, 2, 3, 1).numpy()


@mistake("batch_grid", "reshape keeps the order of the values and mixes rows with colours. Move the axis: permute.")
def reshaped(images, titles, columns=8):
    n, _, height, width = images.shape
    return grid(images, titles, columns, show=lambda x: x.clamp(0, 1).reshape(n, height, width, 3).numpy())


@mistake(
    "batch_grid", "Height and width are swapped: .T or permute(2, 1, 0) turns the image over. Use permute(1, 2, 0)."
)
def turned_over(images, titles, columns=8):
    return grid(images, titles, columns, show=lambda x: x.clamp(0, 1).permute(0, 3, 2, 1).numpy())


@mistake(
    "batch_grid", "The figure stays open in pyplot: it is drawn twice and never freed. plt.close(figure) at the end."
)
def left_open(images, titles, columns=8):
    return grid(images, titles, columns, close=False)


@mistake(
    "batch_grid", "Unused axes of the last row show an empty frame. Switch them off too: axis('off') for all axes."
)
def empty_frames(images, titles, columns=8):
    return grid(images, titles, columns, off=False)


@mistake("batch_grid", "The number of rows is rounded down, so the images of a short last row are missing. Round up.")
def rows_rounded_down(images, titles, columns=8):
    return grid(images, titles, columns, rows=max(len(images) // columns, 1))


@mistake(
    "batch_grid", "Missing titles are passed over in silence: zip stops early. Compare the lengths, raise ValueError."
)
def zip_stops_early(images, titles, columns=8):
    return grid(images, titles, columns, check=False)


@mistake("batch_grid", "Images go down the columns. Reading order goes along the rows: axes.flat.")
def down_the_columns(images, titles, columns=8):
    return grid(images, titles, columns, across=False)


@mistake(
    "batch_grid", "Each image is stretched to its own minimum and maximum, which hides what is too dark. Only clamp."
)
def stretched(images, titles, columns=8):
    low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
    return grid((images - low) / (high - low), titles, columns)


@mistake("batch_grid", "Values outside of [0, 1] go to matplotlib, which warns of each image. Clamp them first.")
def not_clamped(images, titles, columns=8):
    return grid(images, titles, columns, show=lambda x: x.permute(0, 2, 3, 1).numpy())


@mistake("batch_grid", "Titles of 12 points run into each other. Give set_title a fontsize of at most 10, or 'small'.")
def large_titles(images, titles, columns=8):
    return grid(images, titles, columns, font=12)


@alternative("batch_grid")
def without_pyplot(images, titles, columns=8):
    n = images.size(0)
    if n != len(titles):
        raise ValueError("titles")
    rows = -(-n // columns)
    figure = Figure((columns * 2, rows * 2))
    for i in range(n):
        axes = figure.add_subplot(rows, columns, i + 1, xticks=[], yticks=[])
        axes.imshow(images[i].mul(255).round().clamp(0, 255).byte().cpu().numpy().transpose(1, 2, 0))
        axes.set_title(titles[i], loc="left", fontsize=7)
    return figure


@alternative("batch_grid")
def cells_of_a_gridspec(images, titles, columns=8):
    assert columns > 0
    pairs = list(zip(images.permute(0, 2, 3, 1).cpu().numpy().clip(0, 1), titles, strict=True))
    rows = (len(pairs) - 1) // columns + 1
    figure = plt.figure(figsize=(1.2 * columns, 1.4 * rows), layout="tight")
    cells = gridspec.GridSpec(rows, columns, figure=figure)
    for k, (picture, title) in enumerate(pairs):
        axes = figure.add_subplot(cells[divmod(k, columns)])
        axes.imshow(picture, interpolation="nearest")
        axes.tick_params(bottom=False, left=False, labelbottom=False, labelleft=False)
        axes.set_title(title).set_fontsize(9)
    plt.close()
    return figure


@alternative("batch_grid")
def axes_placed_by_hand(images, titles, columns=8):
    if len(titles) - len(images):
        raise ValueError((len(titles), len(images)))
    rows = (len(images) + columns - 1) // columns
    figure = Figure(figsize=(columns * 1.25, rows * 1.5))
    for k, title in enumerate(titles):
        left, bottom = k % columns / columns, 1 - (k // columns + 1) / rows
        axes = figure.add_axes((left + 0.05 / columns, bottom, 0.9 / columns, 0.8 / rows))
        axes.imshow(torch.moveaxis(images[k].cpu(), 0, -1).clip(0, 1).numpy())
        axes.xaxis.set_visible(False)
        axes.yaxis.set_visible(False)
        axes.set_title(title, size=6)
    return figure
