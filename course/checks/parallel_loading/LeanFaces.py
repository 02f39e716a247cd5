"""Probe of exercise LeanFaces: a few JPEG files, and a count of what is done to them for each
item.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from course.checks.parallel_loading.pictures import picture
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_kind
from course.engine.probing.files import open_descriptors
from course.engine.probing.tensors import kind
from course.measure.load_counts import LoadCounts

# of 255, the mean over all values: a draft is up to 7 off, a picture whose edges are cut off at
# least 11
NEAR = 9
MANY = (
    6  # a decoder can leave out only halves: at most so many times the pixels of the item are few
)


@exercise()
def LeanFaces(answer: Answer, device: torch.device, seed: int) -> Facts:
    """What an item is, then what it took to make it."""
    rng, side = torch.Generator().manual_seed(seed), 30 if seed % 2 else 60
    warnings.simplefilter("ignore", ResourceWarning)  # what stays open is a fact of its own
    with tempfile.TemporaryDirectory() as temporary:
        paths = [Path(temporary) / f"{n}.jpg" for n in range(4)]
        for path in paths[:2]:
            picture(rng, 250, 250).save(path, quality=90)
        picture(rng, 250, 250).convert("L").save(paths[2], quality=90)
        plain = answer(paths, side)
        yield "its length", len(plain)
        item = plain[0]
        yield "an item", kind(item)
        yield (
            "its picture is the file's, downscaled",
            [_is_picture(plain[i], paths[i], side) for i in (0, 1)],
        )
        yield "a grey file has three equal colours", _is_picture(plain[2], paths[2], side)
        yield "no file stays open", [open_descriptors(path) == [] for path in paths[:3]]

        seen = []
        counts = LoadCounts()
        augmented = answer(paths, side, counts.watch(_Twist(seen, rng)))
        with counts:
            items = [augmented[i] for i in (0, 1, 0)]
        yield "files opened for three items", counts["files opened"]
        yield "pixels decoded for an item", _few(counts["pixels decoded"] / 3, side * side)
        yield "calls of augment for three items", len(seen)
        yield "pixels that augment works on, for an item", counts["pixels augmented"] / 3
        yield "augment gets the colours as bytes", seen
        yield "an augmented item", kind(items[0])
        yield "the same file, augmented twice, differs", not torch.equal(items[0], items[2])
        yield "what augment returned is the item", _is_picture(items[1].flip(-1), paths[1], side)

        whole = paths[0].read_bytes()
        paths[3].write_bytes(whole[: len(whole) // 2])
        yield "a file that is cut off raises", error_kind(lambda: plain[3])


class _Twist:
    """An augmentation: mirrors a picture and makes some of it brighter or darker, anew each
    time.
    """

    def __init__(self, seen, rng):
        self.seen, self.rng = seen, rng

    def __call__(self, given):
        is_tensor = isinstance(given, torch.Tensor)
        self.seen.append(str(given.dtype) == "torch.uint8" if is_tensor else given.mode == "RGB")
        values = given.clone() if is_tensor else torch.from_numpy(np.array(given)).permute(2, 0, 1)
        values = values.flip(-1)
        values[:, :2, :] = int(torch.randint(256, (), generator=self.rng))
        return (
            values
            if is_tensor
            else Image.fromarray(values.permute(1, 2, 0).contiguous().numpy().astype("uint8"))
        )


def _is_picture(item, path, side):
    """Whether the tensor `item` shows the picture in the file `path`, but for its first rows."""
    with Image.open(path) as file:
        truth = np.array(file.convert("RGB").resize((side, side))).astype(np.float32)[4:]
    if tuple(item.shape) != (3, side, side):
        return False
    return bool(np.abs(item.permute(1, 2, 0).float().cpu().numpy()[4:] - truth).mean() < NEAR)


def _few(pixels, kept):
    """A word for as many pixels as a decoder can be told to make, else their number."""
    return "few" if kept <= pixels <= MANY * kept else pixels
