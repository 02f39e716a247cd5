"""Fashion-MNIST, real or drawn: prepared files -> *load* -> images as tensors.

The images have 28 x 28 pixels, in ten classes. The set of Xiao, Rasul and Vollgraf 2017
("Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms") has four
files. data_scripts/fashion.py prepares the real ones; where they are missing, `load` draws a
stand-in: silhouettes of the same ten kinds of things, with random cut, pose, shade and weave.
"""

import gzip
import math
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from course.datasets import check_name, data_folder
from course.datasets.arrays import damaged, standin

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
SIZES = {"fashion": (60_000, 10_000)}  # name -> (training images, test images), as published
# multiples of 10, because every class has equally many images, as in the real set
STANDINS = {"tiny": (1000, 200), "fashion": (12_000, 2000)}
STANDIN = "standin-{}.npz"  # rename it when drawings change, and stand-ins are made again
REMEDY = (
    "make it again: python data_scripts/fashion.py --download (or --from FOLDER), "
    "or delete its folder for a stand-in."
)
SIZE = 28  # pixels, width and height
# of all pixels of the 60,000 real training images, 0 to 1, rounded
MEAN = 0.2860
DEVIATION = 0.3530
FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


@dataclass(frozen=True)
class Fashion:
    """Images and their labels; every class is equally frequent in training and in test."""

    name: str
    train_images: Tensor  # uint8 (n, 28, 28), 0 background, 255 brightest
    train_labels: Tensor  # int64 (n,), index into CLASSES
    test_images: Tensor
    test_labels: Tensor
    real: bool  # False for a stand-in


def load(name: str = "fashion", data: str | os.PathLike | None = None) -> Fashion:
    """The Fashion `name`: the prepared real set if it exists, else a stand-in, made and kept.

    Prints one line if it is a stand-in. Several processes may call it at the same time: all get the
    same complete set.

    Args:
        name: one of STANDINS ("tiny" exists as a stand-in only).
        data: the data folder; default COURSE_DATA, else `data/` next to the package.

    Raises: CourseError for an unknown name, a damaged prepared file, a full disk, or a folder that
        cannot be written.
    """
    check_name("Fashion-MNIST", name, STANDINS)
    folder = prepared_folder(data)
    if name == "fashion" and folder.exists():
        n_train, n_test = SIZES[name]
        shapes = ((n_train, SIZE, SIZE), (n_train,), (n_test, SIZE, SIZE), (n_test,))
        arrays = {
            file: _read(folder / file, shape) for file, shape in zip(FILES, shapes, strict=True)
        }
        return _fashion(name, arrays, real=True)
    n_train, n_test = STANDINS[name]
    notice = f"{name}: stand-in, {n_train:,} + {n_test:,} drawn garments"
    print(notice + "; real: make data DATA=fashion" * (name in SIZES))
    path = folder.with_name(STANDIN.format(name))
    arrays = standin(path, FILES, lambda: make_standin(n_train, n_test))
    return _fashion(name, arrays, real=False)


def floats(images: Tensor) -> Tensor:
    """The uint8 `images` (n, 28, 28) as float32 (n, 1, 28, 28), normalised, on the same device.

    Uses MEAN and DEVIATION of the real training images, also for a stand-in and for test images:
    they are constants, not fitted again. The real training images get mean 0 and deviation 1.
    """
    return images.unsqueeze(1).float().div_(255).sub_(MEAN).div_(DEVIATION)


def with_validation(data: Fashion) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(images, labels, validation images, validation labels), in random order.

    All of them are training images of `data`. Choices are made on the validation images, so that
    the test images are used only one time, at the end.

    Returns: images as `floats` gives them, labels int64.
    """
    rest, held = validation_rows(data)
    images = floats(data.train_images)
    labels = data.train_labels
    return images[rest], labels[rest], images[held], labels[held]


def validation_rows(data: Fashion) -> tuple[Tensor, Tensor]:
    """(rows to train on, rows to validate on) of the training images of `data`, int64.

    A random sixth is held back for validation.
    """
    n = len(data.train_labels)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    n_held = round(n / 6)
    return order[n_held:], order[:n_held]


def prepared_folder(data: str | os.PathLike | None = None) -> Path:
    """The Path of the four prepared files: fashion/fashion/ in the data folder."""
    return data_folder(data) / "fashion" / "fashion"


def _fashion(name, arrays, real):
    """The Fashion of `arrays`, {file: values} of FILES."""
    train_images, train_labels, test_images, test_labels = [
        torch.from_numpy(arrays[file]) for file in FILES
    ]
    return Fashion(name, train_images, train_labels.long(), test_images, test_labels.long(), real)


def _read(path, shape):
    """uint8 array of `shape` in the file `path`, one of FILES.

    The format is IDX, packed: two zeros, 8 for bytes, the number of dimensions; each dimension in
    four bytes, the high one first; the values (Yann LeCun, http://yann.lecun.com/exdb/mnist).
    """
    header = bytes((0, 0, 8, len(shape))) + b"".join(n.to_bytes(4) for n in shape)
    n_bytes = len(header) + math.prod(shape)
    try:
        with gzip.open(path) as stream:
            content = stream.read()
    except (OSError, EOFError, zlib.error) as error:  # gzip.BadGzipFile is an OSError
        raise damaged(path, getattr(error, "strerror", None) or error, REMEDY) from None
    if not content.startswith(header) or len(content) != n_bytes:
        start = content[: len(header)].hex() or "nothing"
        found = f"{len(content):,} bytes that begin with {start}"
        expected = f"{n_bytes:,} that begin with {header.hex()}"
        raise damaged(path, f"{found}, expected {expected}", REMEDY)
    values = np.frombuffer(bytearray(content), np.uint8, offset=len(header)).reshape(shape)
    if len(shape) == 1 and values.max() >= len(CLASSES):
        raise damaged(path, f"it holds the label {values.max()}, but 0 to 9 exist", REMEDY)
    return values


# ---- the stand-in.  Every machine must draw the same bytes, so it uses only operations that IEEE
# 754 rounds in one way (+ - * / and the square root) and the raw numbers of PCG64, kept by NumPy
# (NEP 19): no sine, sum or matrix product.


def make_standin(n_train: int, n_test: int, seed: int = 2017) -> dict[str, np.ndarray]:
    """A dict of the uint8 arrays of FILES: drawn things, equally many per class, in random order.

    Args:
        n_train, n_test: multiples of 10.
    """
    train_images, train_labels = _draw_part(0, n_train, seed)
    test_images, test_labels = _draw_part(1, n_test, seed)
    arrays = (train_images, train_labels, test_images, test_labels)
    return dict(zip(FILES, arrays, strict=True))


def _draw_part(part, n, seed):
    """(images, labels) of the training set (`part` 0) or of the test set (1), in random order."""
    images = np.concatenate([_draw(label, n // 10, seed, part) for label in range(10)])
    labels = np.repeat(np.arange(10, dtype=np.uint8), n // 10)
    order = np.argsort(np.random.PCG64([seed, part]).random_raw(n), kind="stable")
    return images[order], labels[order]


def _draw(label, n, seed, part, at_once=100):
    """uint8 (n, 28, 28): `n` things of class `label`.

    A few are drawn at a time, so that they fit into a core's cache.
    """
    images = []
    for first in range(0, n, at_once):
        sheet = _Sheet(min(at_once, n - first), [seed, part, label, first])
        DRAW[label](sheet)
        images.append(sheet.develop())
    return np.concatenate(images)


class _Sheet:
    """`n` pictures drawn at the same time, by painting shapes over each other.

    Each has its own random numbers. u (to the right) and v (down) are pixels from the middle of a
    picture, before it is moved, scaled and slanted. "Inside" is a distance in pixels, an array that
    broadcasts to (n, 28, 28), negative outside a shape.
    """

    def __init__(self, n, seed):
        self.n = n
        self.words = np.random.PCG64(seed)
        y = np.arange(SIZE, dtype=np.float32)[:, None] - SIZE / 2 + 0.5
        x = y.T
        self.v = (y - self.some(-2.2, 2.2)) / self.some(0.88, 1.1)  # (n, 28, 1)
        self.u = (x - self.some(-2.2, 2.2) - y * self.some(-0.08, 0.08)) / self.some(0.88, 1.16)
        self.picture = np.zeros((n, SIZE, SIZE), np.float32)
        self.cloth = 1 - 0.68 * self.some(0, 1) * self.some(0, 1)  # more light ones than dark ones

    def some(self, low, high, shape=(1, 1)):
        """float32 (n, *shape), uniform from `low` to `high`, per picture."""
        words = self.words.random_raw((self.n, *shape)) >> np.uint64(40)
        return low + (high - low) * (words.astype(np.float32) * 2.0**-24)

    def either(self, share, this, that=0.0):
        """`this` for a share of the pictures, `that` for the others."""
        return np.where(self.some(0, 1) < share, np.float32(this), np.float32(that))

    def paint(self, inside, shade):
        """Paint every pixel `inside` in `shade`, and pixels on the edge partly."""
        self.picture += np.clip(inside + 0.5, 0, 1) * (shade - self.picture)

    def limb(self, start, end, wide, wide_end=None, both=False):
        """Return how far inside a strip with round ends each pixel is.

        Args:
            start, end: (u, v) of the ends of the strip's middle line.
            wide: to each side of its middle line, in pixels; `wide_end` at the end.
            both: whether to include its mirror image on the left.
        """
        u0, v0 = start
        u1, v1 = end
        along_u = u1 - u0
        along_v = v1 - v0
        u = (np.abs(self.u) if both else self.u) - u0
        v = self.v - v0
        t = np.clip((u * along_u + v * along_v) / (along_u * along_u + along_v * along_v), 0, 1)
        across_u = u - t * along_u
        across_v = v - t * along_v
        thick = wide if wide_end is None else wide + t * (wide_end - wide)
        return thick - np.sqrt(across_u * across_u + across_v * across_v)

    def develop(self):
        """uint8 (n, 28, 28): the pictures with weave, folds, light from one side, and grain."""
        period = self.some(2.5, 7)
        slant = self.either(0.4, 1) + self.either(0.3, 0.5)
        wave = (self.u * slant + self.v * (1 - slant)) / period
        stripes = np.abs(wave - np.floor(wave) - 0.5) * 4 - 1  # a triangle, -1 to 1
        weave = 1 - self.either(0.35, 1, 0.15) * self.some(0, 0.22) * (1 + stripes)
        light = 1 + self.some(-0.012, 0.012) * self.u + self.some(-0.012, 0.012) * self.v
        shown = self.picture * weave * light
        # the mean of four bytes: nearly normal, deviation 37 of 255
        four = self.words.random_raw((self.n, SIZE, SIZE // 2)).astype("<u8").view(np.uint8)
        four = four.reshape(self.n, SIZE, SIZE, 4).astype(np.int32)
        total = four[..., 0] + four[..., 1] + four[..., 2] + four[..., 3]
        grain = (total - 510).astype(np.float32) / 1020
        is_drawn = np.minimum(4 * self.picture, 1)  # 0 on the background
        shown += is_drawn * grain * self.some(0.15, 0.75)
        return np.rint(np.clip(shown, 0, 1) * 255).astype(np.uint8)


def _curve(x, *points):
    """At `x` the line through `points`, (x, y) each in order of x, level before and after them."""
    y = points[0][1]
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        y = y + (y1 - y0) * np.clip((x - x0) / (x1 - x0), 0, 1)
    return y


def _within(x, low, high):
    """Return how far inside the strip low < x < high each pixel is."""
    return np.minimum(x - low, high - x)


def _top(sheet, hem, sleeve, collar=0.0, opening=0.0, waist=0.0):
    """Draw what is worn above the waist.

    Args:
        hem: v of its end.
        sleeve: share of an arm's length, 1 to the wrist.
        collar, opening: how strongly a collar and an opening down the middle show, 0 not at all.
        waist: pixels by which it is narrower there.
    """
    u = sheet.u
    v = sheet.v
    cloth = sheet.cloth
    shoulder = sheet.some(5.6, 7.2)
    width = sheet.some(5.2, 7.2)
    neck = sheet.some(1.8, 3.4)
    _sleeves(sheet, shoulder, sleeve)
    side = _curve(
        v, (-11.5, neck + 0.6), (-9, shoulder), (-3, width), (1, width - waist), (hem, width + 0.4)
    )
    body = np.minimum(side - np.abs(u), _within(v, -11.5, hem))
    sheet.paint(body, cloth)
    # the seam of an arm
    sheet.paint(np.minimum(0.35 - np.abs(np.abs(u) - width), body), 0.72 * cloth)
    depth = sheet.some(1.2, 5.0)
    hole = np.minimum(neck - np.abs(u) - (v + 11.5) * (neck / depth), v + 11.5)
    sheet.paint(hole, sheet.either(0.6, 0, 0.3) * cloth)
    inside = np.minimum(body, 0.5 - np.abs(u))
    sheet.paint(inside, cloth * (1 - 0.75 * opening))
    flap = np.minimum(body, sheet.limb((0.8, -11.2 + depth), (neck + 0.4, -11.2), 0.75, both=True))
    contrast = np.where(cloth > 0.6, np.float32(0.35), np.float32(1))
    sheet.paint(flap, cloth + collar * (contrast - cloth))


def _sleeves(sheet, shoulder, sleeve):
    """Draw both arms of what is worn above the waist, `sleeve` of an arm's length each."""
    hand_u = sheet.some(7.8, 11.6)
    hand_v = sheet.some(6, 11)
    from_u = shoulder - 1.4
    from_v = -8.6
    to_u = from_u + sleeve * (hand_u - from_u)
    to_v = from_v + sleeve * (hand_v - from_v)
    to_u = to_u + (1 - sleeve) * 2.8  # short sleeves stand off
    thick = sheet.some(1.9, 2.8)
    cuff = thick * sheet.some(0.62, 0.95)
    sheet.paint(
        sheet.limb((from_u, from_v), (to_u, to_v), thick, cuff, both=True), 0.93 * sheet.cloth
    )


def _t_shirt(sheet):
    _top(sheet, sheet.some(8.5, 12), sheet.some(0.12, 0.52), waist=sheet.some(0, 1.2))


def _pullover(sheet):
    _top(sheet, sheet.some(8, 11.5), sheet.some(0.82, 1.05), collar=sheet.either(0.15, 0.5))


def _coat(sheet):
    opening = sheet.either(0.88, 1, 0.1) * sheet.some(0.3, 1)
    hem = sheet.some(10.5, 14)
    sleeve = sheet.some(0.9, 1.15)
    collar = 0.8 * sheet.some(0, 1)
    waist = sheet.some(0, 1.5)
    _top(sheet, hem, sleeve, collar, opening, waist)


def _shirt(sheet):
    sleeve = sheet.either(0.62, 1) * sheet.some(0.5, 0.7) + sheet.some(0.28, 0.42)
    hem = sheet.some(8, 11.5)
    collar = sheet.some(0.35, 1)
    opening = sheet.some(0, 0.55)
    waist = sheet.some(0, 1)
    _top(sheet, hem, sleeve, collar, opening, waist)


def _trouser(sheet):
    u = sheet.u
    v = sheet.v
    cloth = sheet.cloth
    hip = sheet.some(3.2, 4.8)
    step = sheet.some(1.2, 4.6)
    end = sheet.some(10.5, 13)
    # negative: no gap between the legs
    inner = _curve(v, (-13, -1), (sheet.some(-7, -3), -0.3), (end, step - 1.5))
    outer = _curve(v, (-12, hip - 0.6), (-7, hip), (end, step + 2))
    sheet.paint(np.minimum(_within(np.abs(u), inner, outer), _within(v, -12, end)), cloth)
    sheet.paint(np.minimum(_within(v, -12, -10.4), hip - np.abs(u)), cloth * sheet.some(0.5, 1))


def _dress(sheet):
    u = sheet.u
    v = sheet.v
    cloth = sheet.cloth
    chest = sheet.some(2.8, 4.6)
    waist = sheet.some(2.4, 4.2)
    hem = sheet.some(3.2, 7.5)
    end = sheet.some(10.5, 13.2)
    middle = sheet.some(-4, 0)
    sleeve = sheet.either(0.45, 1) * sheet.some(0.2, 1)
    hand = (chest + 1 + 3 * sleeve, -8 + 12 * sleeve)
    thick = 2 * np.minimum(4 * sleeve, 1) - 0.8
    sheet.paint(sheet.limb((chest - 1, -9.5), hand, thick, both=True), 0.93 * cloth)
    side = _curve(v, (-12.5, chest - 1.2), (-8, chest), (middle, waist), (end, hem))
    sheet.paint(np.minimum(side - np.abs(u), _within(v, -12.5, end)), cloth)
    neck = sheet.some(1.2, 2.6)
    sheet.paint(neck - np.abs(u) - (v + 12.5) * (neck / sheet.some(1.5, 4.5)), 0)
    belt = np.minimum(_within(v, middle - 0.8, middle + 0.8), waist - np.abs(u))
    sheet.paint(belt, cloth * sheet.some(0.55, 1))


def _sandal(sheet):
    u = sheet.u
    v = sheet.v
    cloth = sheet.cloth
    heel = sheet.either(0.45, 1) * sheet.some(2, 8) + 1.2
    toe = sheet.some(0.8, 2)
    ground = sheet.some(5, 8)
    over = ground - _curve(u, (-12, toe), (-3, toe + 0.5), (8, heel), (12, heel))
    under = ground - _curve(u, (-4, 0.0), (6, np.maximum(heel - 3, 0)))
    under = np.where(u > sheet.some(5, 9), ground, under)  # the heel goes down to the ground
    for strap_u in (-9, -5, 0):  # straps over the foot, some too thin to be there
        front = strap_u + sheet.some(-2, 1)
        top = front + sheet.some(1, 4)
        behind = front + sheet.some(4, 7)
        wide = sheet.some(-0.5, 1.3)
        shade = cloth * sheet.some(0.7, 1)
        lift = sheet.some(3, 5) + 0.15 * (strap_u + 9)
        front_v = ground - _curve(front, (-12, toe), (-3, toe + 0.5), (8, heel))
        behind_v = ground - _curve(behind, (-12, toe), (-3, toe + 0.5), (8, heel))
        sheet.paint(sheet.limb((front, front_v), (top, front_v - lift), wide), shade)
        sheet.paint(sheet.limb((top, front_v - lift), (behind, behind_v), wide), shade)
    back = ground - heel
    ankle = sheet.either(0.6, 0.7, -1)
    sheet.paint(sheet.limb((11.0, back), (9.5, back - 7), ankle), cloth)
    buckle = (sheet.some(2, 5), back - sheet.some(6, 9))
    sheet.paint(sheet.limb((9.5, back - 7), buckle, ankle), cloth)
    sole = np.minimum(_within(v, over, np.maximum(under, over + 1)), _within(u, -12.5, 12.5))
    sheet.paint(sole, cloth)


def _shoe(sheet, shaft, ground, instep):
    """Draw a closed shoe, with its toe on the left.

    Args:
        shaft: v of its upper end.
        instep: u at which the shaft begins.
    """
    u = sheet.u
    v = sheet.v
    cloth = sheet.cloth
    toe = ground - sheet.some(3, 5)
    front = ((-13, toe + 1.5), (-9, toe), (instep - 3, toe - 2))
    ridge = _curve(u, *front, (instep + 1.5, shaft), (11, shaft + 0.3))
    back = sheet.some(10, 12.5)
    upper = np.minimum(_within(v, ridge, ground), _within(u, -12.5, back))
    sheet.paint(upper, cloth)
    dip = sheet.some(0.2, 1.8)
    # where the foot goes in
    sheet.paint(sheet.limb((instep + 3, shaft), (back - 2.5, shaft), dip), cloth * 0.25)
    for step in (0.0, 1.7, 3.4):
        left = (instep - 2.5 - step, toe - 4.5 + step)
        right = (instep - step, toe - 1.5 + step)
        lace = sheet.limb(left, right, 0.45)
        sheet.paint(np.minimum(lace, upper), cloth * sheet.either(0.6, 0.45, 1))
    thickness = sheet.some(0.6, 2)
    sole = np.minimum(_within(v, ground - thickness, ground), _within(u, -12.7, back + 0.3))
    sheet.paint(sole, sheet.either(0.5, 0.95, 0.35))


def _sneaker(sheet):
    ground = sheet.some(4.5, 7)
    _shoe(sheet, ground - sheet.some(6.5, 11), ground, sheet.some(-2, 3))


def _ankle_boot(sheet):
    ground = sheet.some(6.5, 10)
    instep = sheet.some(-2, 3)
    heel = sheet.either(0.6, 1) * sheet.some(0, 3.5)
    _shoe(sheet, ground - sheet.some(9, 18), ground, instep)
    heel_v = _within(sheet.v, ground - 1, ground + heel)
    heel_u = _within(sheet.u, sheet.some(6, 9), 11.5)
    block = np.minimum(heel_v, heel_u)
    sheet.paint(block, 0.8 * sheet.cloth)


def _bag(sheet):
    u = sheet.u
    v = sheet.v
    cloth = sheet.cloth
    wide = sheet.some(7.5, 12.5)
    narrow = sheet.some(0, 3.5)
    top = sheet.some(-8, 1)
    bottom = sheet.some(6.5, 11.5)
    # the handle, a ring
    reach = sheet.some(0.35, 0.85) * wide
    high = sheet.some(2, 9)
    thick = sheet.some(0.4, 1.3)
    away_u = u / reach
    away_v = (v - top) / high
    ring = np.abs(1 - np.sqrt(away_u * away_u + away_v * away_v)) * -np.minimum(reach, high) + thick
    sheet.paint(np.minimum(ring, top + 0.5 - v), cloth * sheet.some(0.6, 1))
    side = _curve(v, (top, wide - narrow), (bottom, wide))
    from_side = side - np.abs(u)
    from_end = _within(v, top, bottom)
    # its corners are cut
    body = np.minimum(np.minimum(from_side, from_end), 0.7 * (from_side + from_end) - 1.4)
    sheet.paint(body, cloth)
    flap = top + sheet.some(0.15, 0.6) * (bottom - top)
    sheet.paint(np.minimum(body, 0.45 - np.abs(v - flap)), cloth * sheet.some(0.4, 0.9))
    clasp = np.minimum(sheet.some(0.5, 1.6) - np.abs(u), 1 - np.abs(v - flap))
    sheet.paint(np.minimum(body, clasp), sheet.either(0.5, 1, 0.3))


# as in CLASSES
DRAW = (
    _t_shirt,
    _trouser,
    _pullover,
    _dress,
    _coat,
    _sandal,
    _shirt,
    _sneaker,
    _bag,
    _ankle_boot,
)
