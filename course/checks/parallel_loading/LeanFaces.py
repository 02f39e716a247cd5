"""Probe of exercise LeanFaces: a few JPEG files, and counts of what is done to them per item."""

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_kind
from course.engine.probing.files import open_descriptors
from course.engine.probing.laws import tried
from course.engine.probing.tensors import kind
from course.measure.load_counts import LoadCounts

# of 255, the mean over all values; another filter than the default one is 0.8 off and more
ERROR_MAX = 0.5
DETAILS = 20  # of a picture, across and down
Colour = tuple[int, ...]
# a decoder can leave out only halves: at most so many times the pixels of the item are few
FEW = 6


@exercise()
def LeanFaces(answer: Answer, device: torch.device, seed: int) -> Facts:
    """What an item is, then what it took to make it."""
    rng = torch.Generator().manual_seed(seed)
    side = 30 if seed % 2 else 60
    warnings.simplefilter("ignore", ResourceWarning)  # a separate fact tells what stays open
    with tempfile.TemporaryDirectory() as temporary:
        paths = [Path(temporary) / f"{n}.jpg" for n in range(4)]
        for path in paths[:2]:
            _detailed(rng).save(path, quality=90)
        last = _detailed(rng)
        last.convert("L").save(paths[2], quality=90)
        on = last.getpixel((0, 0))  # what laws are tried on: other pictures at every seed
        plain = answer(paths, side)
        yield from _items(plain, paths, side, on)
        yield from _augmented_items(answer, paths, side, rng, on)

        content = paths[0].read_bytes()
        paths[3].write_bytes(content[: len(content) // 2])
        yield "a file that is cut off raises", tried(error_kind(lambda: plain[3]), on)


def _items(plain: Any, paths: list[Path], side: int, on: Colour) -> Facts:
    """The facts of the answer without an augmentation."""
    yield "its length", len(plain)
    item = plain[0]
    yield "an item", kind(item)
    right = [_is_picture(plain[i], paths[i], side) for i in (0, 1)]
    yield "its picture is the file's, downscaled", tried(all(right), on)
    is_grey = _is_picture(plain[2], paths[2], side)
    yield "a grey file has three equal colours", tried(is_grey, on)
    none_is_open = not any(open_descriptors(path) for path in paths[:3])
    yield "no file stays open", tried(none_is_open, on)


def _augmented_items(
    answer: Answer, paths: list[Path], side: int, rng: torch.Generator, on: Colour
) -> Facts:
    """What is done for three items, two of them of one file."""
    seen = []
    counts = LoadCounts()
    augmented = answer(paths, side, counts.watch(_Twist(seen, rng)))
    with counts:
        first = augmented[0]
        second = augmented[1]
        first_again = augmented[0]
    yield "files opened for three items", tried(counts["files opened"], on)
    decoded = _few(counts["pixels decoded"] / 3, side * side)
    yield "pixels decoded for an item", tried(decoded, on)
    yield "calls of augment for three items", len(seen)
    yield "pixels that augment works on, for an item", counts["pixels augmented"] / 3
    yield "augment gets the colours as bytes", seen
    yield "an augmented item", kind(first)
    differs = not torch.equal(first, first_again)
    yield "the same file, augmented twice, differs", tried(differs, on)
    yield "what augment returned is the item", _is_picture(second.flip(-1), paths[1], side)


class _Twist:
    """An augmentation: mirrors a picture and makes its first rows brighter or darker, at random.

    `seen` gets, for each call, whether the colours came as bytes.
    """

    def __init__(self, seen: list[bool], rng: torch.Generator) -> None:
        self.seen = seen
        self.rng = rng

    def __call__(self, given: torch.Tensor | Image.Image) -> torch.Tensor | Image.Image:
        if isinstance(given, torch.Tensor):
            self.seen.append(str(given.dtype) == "torch.uint8")
            return self._twisted(given.clone())
        self.seen.append(given.mode == "RGB")
        values = self._twisted(torch.from_numpy(np.array(given)).permute(2, 0, 1))
        pixels = values.permute(1, 2, 0).contiguous().numpy()
        return Image.fromarray(pixels.astype("uint8"))

    def _twisted(self, values: torch.Tensor) -> torch.Tensor:
        values = values.flip(-1)
        values[:, :2, :] = int(torch.randint(256, (), generator=self.rng))
        return values


def _detailed(rng: torch.Generator) -> Image.Image:
    """A picture of 250 x 250 pixels, in which filters differ."""
    coarse = torch.randint(256, (DETAILS, DETAILS, 3), generator=rng, dtype=torch.uint8)
    return Image.fromarray(coarse.numpy()).resize((250, 250), Image.Resampling.BICUBIC)


def _is_picture(item: torch.Tensor, path: Path, side: int) -> bool:
    """Whether the tensor `item` shows the picture in the file `path`, but for its first rows."""
    if tuple(item.shape) != (3, side, side):
        return False
    pixels = item.permute(1, 2, 0).float().cpu().numpy()[4:]
    for downscaled in _right_pictures(path, side):
        truth = np.array(downscaled).astype(np.float32)[4:]
        if np.abs(pixels - truth).mean() < ERROR_MAX:
            return True
    return False


def _right_pictures(path: Path, side: int) -> Iterator[Image.Image]:
    """The pictures of `side` pixels that the default filter makes of a file.

    A decoder may leave out more or fewer pixels first, which another fact counts, and a draft says
    which fraction of its last pixels belongs to the picture.
    """
    for size in (side, 2 * side, 250):
        with Image.open(path) as file:
            drafted = file.draft("RGB", (size, size))
            picture = file.convert("RGB")
        yield picture.resize((side, side))
        if drafted is not None:
            _, box = drafted
            yield picture.resize((side, side), box=box)


def _few(pixels: float, kept: int) -> str | float:
    """A word for as many pixels as a decoder can be told to make, else their number."""
    return "few" if kept <= pixels <= FEW * kept else pixels
