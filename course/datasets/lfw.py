"""Labeled Faces in the Wild as a folder of JPEGs, real or drawn: prepared files -> *folder* -> the
learner's Dataset.

Layout, size and file size are LFW's: <Person>/<Person>_0001.jpg, 250 x 250, some 13 KB. Listing the
images and the Dataset are exercises of unit 01_parallel_loading.  data_scripts/lfw.py prepares the
real photographs; where they are missing, `folder` draws a stand-in: invented people, each with a
face of their own in varying pose, expression, clothes, light and place.
"""

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from tqdm import tqdm

from course.datasets import ADVICE, check_name, data_folder
from course.system.files import atomic_folder

STANDINS = {"tiny": (40, 240), "lfw": (80, 640)}  # name -> (people, images)
STANDIN = "standin-{}"  # rename it when drawings change, and stand-ins are made again
SIZE = 250  # pixels, width and height
QUALITY = 84  # of the JPEG files; with the grain, they become as large as those of lfw.tgz, 13.6 kB

FINE = 2  # drawn at twice the size for smooth edges
# pixels from the middle of a face to its chin; faces are drawn in these units, x to the right, y
# down
UNIT = 62
CIRCLE = np.stack(
    [np.cos(np.linspace(0, 2 * np.pi, 33)[:-1]), np.sin(np.linspace(0, 2 * np.pi, 33)[:-1])], 1
)
ACROSS = np.linspace(-1, 1, 13)
COARSE = 50  # pixels across on which light and shade are computed

SKINS = np.array(
    [
        (250, 220, 196),
        (238, 198, 166),
        (224, 176, 138),
        (198, 144, 104),
        (158, 106, 72),
        (112, 72, 50),
    ]
)
HAIRS = np.array(
    [
        (28, 24, 26),
        (58, 38, 28),
        (96, 62, 38),
        (140, 88, 48),
        (206, 164, 96),
        (168, 72, 36),
        (150, 148, 150),
    ]
)
IRISES = np.array([(74, 46, 30), (104, 70, 38), (92, 110, 70), (78, 116, 150), (110, 124, 134)])
CLOTHES = np.array([(38, 44, 64), (70, 70, 76), (150, 40, 48), (44, 96, 84), (60, 92, 150), (196, 168, 120),
                    (232, 228, 220), (122, 72, 120), (210, 128, 60), (30, 30, 34)])  # fmt: skip
WALLS = np.array([(150, 162, 176), (176, 160, 140), (104, 124, 118), (190, 182, 168), (92, 96, 120), (170, 128, 112),
                  (66, 72, 84), (120, 152, 178), (198, 176, 150), (84, 104, 84)])  # fmt: skip
DARK, WHITE = np.array((24, 18, 18)), np.array((250, 248, 244))
# lift over the skull, hairline in the middle and at the temples, end of the hair behind the head
# (-1: none), curls
STYLES = {
    "buzz": (0.03, -0.66, -0.40, -1, False),
    "short": (0.12, -0.60, -0.42, -1, False),
    "quiff": (0.26, -0.66, -0.46, -1, False),
    "receding": (0.06, -0.88, -0.62, -1, False),
    "bald": None,
    "curls": (0.20, -0.58, -0.40, 0.25, True),
    "fringe": (0.14, -0.30, -0.26, 0.55, False),
    "bob": (0.14, -0.58, -0.30, 0.85, False),
    "long": (0.13, -0.64, -0.30, 1.75, False),
    "bun": (0.08, -0.66, -0.40, -1, False),
    "afro": (0.46, -0.60, -0.40, 0.35, True),
}


def heavy_transform():
    """An augmentation that costs more than decoding: PIL image in RGB -> float32 tensor (3, H, W)
    from 0 to 1.

    It moves, zooms, mirrors and recolours the image at random, drawing from torch's global random
    numbers.
    Source: the affine map is the one of DTU course 02476.
    """
    import torch  # both take seconds that a listing of files need not wait
    from torchvision.transforms import v2

    affine = dict(
        degrees=5,
        translate=(0.1, 0.1),
        scale=(0.5, 2.0),
        interpolation=v2.InterpolationMode.BILINEAR,
    )
    return v2.Compose(
        [
            v2.RandomAffine(**affine),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.ToPureTensor(),
        ]
    )


def folder(name: str = "lfw", data: str | Path | None = None) -> Path:
    """The Path of a folder in LFW's layout: the prepared photographs if they exist, else a
    stand-in, made and kept.

    Args:
        name: one of STANDINS ("tiny" exists as a stand-in only).
        data: the data folder; default COURSE_DATA, else `data/` beside the package.

    Prints one line if it is a stand-in.
    Raises: CourseError for an unknown name, a full disk, or a folder that cannot be written.
    """
    check_name("LFW", name, STANDINS)
    real = prepared_folder(data)
    if name == "lfw" and any(real.glob("*/*.jpg")):
        return real
    n_people, n_images = STANDINS[name]
    notice = f"{name}: stand-in, {n_images:,} drawn faces of {n_people} people"
    print(notice + "; real: make data" * (name == "lfw"))
    standin = real.with_name(STANDIN.format(name))
    if not _is_complete(standin, n_images):
        # another process may have been faster and be reading its own, which has the same pixels
        with atomic_folder(standin, ADVICE, keep=lambda: _is_complete(standin, n_images)) as new:
            make_standin(new / "lfw", n_people, n_images)
    return standin / "lfw"


def prepared_folder(data: str | Path | None = None) -> Path:
    """The Path where `folder` expects the prepared photographs: lfw/lfw/ in the data folder."""
    return data_folder(data) / "lfw" / "lfw"


def _is_complete(standin, n_images):
    """True if no image was deleted; `atomic_folder` has made it whole or not at all."""
    return sum(1 for _ in (standin / "lfw").glob("*/*.jpg")) == n_images


def make_standin(root, n_people, n_images, seed=2007):
    """Write `n_images` drawn faces of `n_people` people below the folder `root`, in LFW's layout.

    Images per person are long-tailed, at least 1. Every image depends on `seed`, its person and its
    number only. Shows a bar on stdout.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    names = _names(rng, n_people)
    counts = _images_per_person(rng, n_people, n_images)
    with tqdm(total=n_images, file=sys.stdout, unit="image", leave=False, mininterval=1) as bar:
        for i, (name, count) in enumerate(zip(names, counts, strict=True)):
            person = _random_person(np.random.Generator(np.random.PCG64([seed, i])))
            (Path(root) / name).mkdir(parents=True)
            for number in range(1, count + 1):
                image = _picture(person, np.random.Generator(np.random.PCG64([seed, i, number])))
                # Pillow does not notice that a disk takes only a part of what it writes
                file = io.BytesIO()
                image.save(file, "JPEG", quality=QUALITY)
                (Path(root) / name / f"{name}_{number:04d}.jpg").write_bytes(file.getvalue())
                bar.update()


def _names(rng, n):
    """`n` different invented names like "Avel_Borin"."""
    starts = "B D F G H J K L M N P R S T V Z Br Dr Gl Kr Pl Th Tr Vr".split()
    vowels, middles, ends = (
        "a e i o u".split(),
        "b d g l m n r v z lv nd rm".split(),
        "l n r s th x m nk rd".split(),
    )
    names = {}  # a dict keeps their order
    while len(names) < n:
        first, last = (
            (
                rng.choice(starts)
                + rng.choice(vowels)
                + rng.choice(middles)
                + rng.choice(vowels)
                + rng.choice(ends)
            )
            for _ in range(2)
        )
        names[f"{first}_{last}"] = None
    return list(names)


def _images_per_person(rng, n_people, n_images):
    """int64 (n_people,), sum `n_images`, at least 1 each: Zipf-Mandelbrot, in random order."""
    share = (np.arange(n_people) + 3.0) ** -1.6
    counts = 1 + (share / share.sum() * (n_images - n_people)).astype(np.int64)
    counts[: n_images - counts.sum()] += 1
    return rng.permutation(counts)


def _random_person(rng):
    """What all images of a random person have in common."""
    bearded = rng.random() < 0.5
    style = rng.choice(
        list(STYLES)[:6] if bearded else list(STYLES)[5:], p=(0.1, 0.3, 0.2, 0.15, 0.13, 0.12)
    )
    tone = rng.uniform(0, len(SKINS) - 1)
    dark = tone > 3
    hair = HAIRS[rng.integers(3 if dark else len(HAIRS))] * rng.uniform(0.85, 1.15)
    return SimpleNamespace(
        skin=_between(SKINS, tone),
        hair=np.clip(hair, 0, 235),
        iris=IRISES[rng.integers(2 if dark else len(IRISES))],
        style=str(style),
        width=rng.uniform(0.70, 0.82),
        jaw=rng.uniform(0.16, 0.36),
        eye_gap=rng.uniform(0.29, 0.35),
        eye_size=rng.uniform(0.145, 0.185),
        eye_slant=rng.uniform(-0.03, 0.04),
        brow_width=rng.uniform(0.030, 0.055) if bearded else rng.uniform(0.018, 0.036),
        brow_arch=rng.uniform(0.02, 0.10),
        nose_length=rng.uniform(0.24, 0.34),
        nose_width=rng.uniform(0.11, 0.17),
        mouth_width=rng.uniform(0.24, 0.34),
        lips=rng.uniform(0.035, 0.06) if bearded else rng.uniform(0.05, 0.085),
        rouge=0.0 if bearded else rng.uniform(0.1, 0.8),
        ears=rng.uniform(0.15, 0.2),
        beard=str(rng.choice(["none", "none", "stubble", "full", "goatee", "moustache"]))
        if bearded
        else "none",
        glasses=str(rng.choice(["none", "none", "none", "round", "square"])),
        earrings=not bearded and rng.random() < 0.5,
        freckles=not dark and rng.random() < 0.25,
        hat=str(rng.choice(["cap", "beanie", "brim"])),
        parting=rng.uniform(-0.5, 0.5),
    )


class _Pen:
    """Draws shapes in face units onto an image, tilted by `tilt`, turned by `yaw` and `pitch`
    (radians).

    A shape has a depth, towards the viewer: near shapes move further when the head turns.
    """

    def __init__(self, image, centre, unit, tilt=0.0, yaw=0.0, pitch=0.0):
        self.draw = ImageDraw.Draw(image, "RGBA")
        self.unit, self.centre = unit, np.asarray(centre)
        turn = np.array([[np.cos(tilt), np.sin(tilt)], [-np.sin(tilt), np.cos(tilt)]])
        self.matrix = unit * np.diag([np.cos(yaw), np.cos(pitch)]) @ turn
        self.nearer = unit * np.array([np.sin(yaw), np.sin(pitch)]) @ turn

    def place(self, xy, depth=0.0):
        """Pixels, (n, 2), of the points `xy`, (n, 2) in face units."""
        return np.asarray(xy, dtype=float) @ self.matrix + depth * self.nearer + self.centre

    def shape(self, xy, colour, depth=0.0, alpha=255):
        self.draw.polygon(self.place(xy, depth).ravel().tolist(), fill=_rgba(colour, alpha))

    def blob(self, x, y, rx, ry, colour, depth=0.0, alpha=255):
        self.shape(CIRCLE * (rx, ry) + (x, y), colour, depth, alpha)

    def stroke(self, xy, width, colour, depth=0.0, alpha=255):
        """A line along `xy`, `width` thick (one number or n)."""
        xy = np.asarray(xy, dtype=float)
        along = np.gradient(xy, axis=0)
        across = np.stack([-along[:, 1], along[:, 0]], 1) / (np.hypot(*along.T)[:, None] + 1e-9)
        across *= np.reshape(width, (-1, 1)) / 2
        self.shape(np.concatenate([xy + across, (xy - across)[::-1]]), colour, depth, alpha)


def _picture(person, rng):
    """A 250 x 250 RGB image of `person` in random pose, expression, clothes, place and light."""
    image = _background(rng)
    unit = FINE * UNIT * rng.uniform(0.92, 1.12)
    centre = FINE * (np.array([125, 122]) + rng.uniform(-7, 7, 2))
    tilt, yaw, pitch = rng.normal(0, (0.08, 0.28, 0.10))
    pen = _Pen(image, centre, unit, tilt, np.clip(yaw, -0.6, 0.6), np.clip(pitch, -0.2, 0.2))
    body = _Pen(image, centre + (0, 4), unit, tilt * 0.3)
    hat = person.hat if rng.random() < 0.12 else "none"
    _hair_behind(pen, person, hat)
    _clothes(body, person, rng)
    _head(pen, person)
    _beard(pen, person, rng)
    _nose(pen, person)
    _mouth(pen, person, smile=rng.uniform(-0.25, 1), opening=max(0, rng.normal(0, 0.6)))
    _eyes(
        pen,
        person,
        opening=rng.uniform(0.7, 1.05),
        raised=rng.uniform(-0.01, 0.06),
        gaze=rng.uniform(-1, 1, 2),
    )
    if hat == "none":
        _hair(pen, person, rng)
    else:
        _hat(pen, person, hat, CLOTHES[rng.integers(len(CLOTHES))])
    if person.glasses != "none":
        _glasses(pen, person)
    return _develop(image.reduce(FINE), pen, rng)


def _background(rng):
    """An image of FINE * SIZE pixels: some place, out of focus."""
    low, high = WALLS[rng.permutation(len(WALLS))[:2]] * rng.uniform(0.6, 1.15, (2, 1))
    ramp = np.linspace(0, 1, COARSE)[:, None, None]
    image = Image.fromarray(
        np.clip((1 - ramp) * high + ramp * low, 0, 255).repeat(COARSE, 1).astype(np.uint8)
    )
    image = image.resize((2 * COARSE, 2 * COARSE))
    draw = ImageDraw.Draw(image, "RGBA")
    kind = rng.integers(7)
    tints = CLOTHES[rng.integers(len(CLOTHES), size=24)]
    x, y = rng.uniform(0, 2 * COARSE, (2, 24))
    size = rng.uniform(4, 13, 24)
    if kind == 0:  # lights at night
        for i in range(24):
            draw.ellipse(
                (x[i] - size[i], y[i] - size[i], x[i] + size[i], y[i] + size[i]),
                _rgba(tints[i] + 60, 110),
            )
    elif kind == 1:  # a window
        left, top = rng.uniform(-20, 50), rng.uniform(-10, 10)
        for column in range(3):
            for row in range(2):
                corner = left + 24 * column, top + 38 * row
                draw.rectangle(
                    (*corner, corner[0] + 20, corner[1] + 34), _rgba((226, 236, 244), 190)
                )
    elif kind == 2:  # leaves
        for i in range(24):
            green = np.array((60, 110, 50)) + rng.integers(-30, 60, 3)
            draw.ellipse(
                (x[i] - size[i], y[i] - size[i], x[i] + size[i], y[i] + size[i] * 0.6),
                _rgba(green, 180),
            )
    elif kind == 3:  # books
        edges = np.cumsum(rng.uniform(3, 8, 24))
        for i in range(23):
            for shelf in (0, 34, 68):
                tint = tints[(i + shelf) % 24]
                draw.rectangle(
                    (edges[i], shelf + 2 + size[i] / 2, edges[i + 1], shelf + 30), _rgba(tint, 220)
                )
    elif kind == 4:  # a curtain
        for edge in range(-4, 104, 9):
            draw.rectangle((edge, 0, edge + 4, 100), _rgba(high * 0.75, 150))
    elif kind == 5:  # people in the background
        for i in range(9):
            draw.ellipse((x[i] - 9, y[i] + 8, x[i] + 9, y[i] + 40), _rgba(tints[i], 220))
            draw.ellipse(
                (x[i] - 5, y[i] - 6, x[i] + 5, y[i] + 9), _rgba(SKINS[i % len(SKINS)] * 0.9, 230)
            )
    else:  # a street
        draw.rectangle((0, 62, 100, 100), _rgba((96, 94, 92), 255))
        for i in range(7):
            draw.rectangle((x[i], 62 - 4 * size[i], x[i] + size[i] * 2, 64), _rgba(WALLS[i], 255))
    image = image.filter(ImageFilter.BoxBlur(rng.uniform(0.8, 2.6)))
    return image.resize((FINE * SIZE, FINE * SIZE), Image.Resampling.BILINEAR)


def _outline(person, grow=0.0):
    """Points (32, 2) around the head, from the right ear clockwise; the chin comes first."""
    x, y = CIRCLE.T
    below = np.clip(y, 0, 1)
    x = np.sign(x) * np.abs(x) ** 0.86 * (person.width + grow) * (1 - person.jaw * below**2)
    return np.stack([x, y * (1 + grow)], 1)


def _clothes(pen, person, rng):
    main, other = CLOTHES[rng.permutation(len(CLOTHES))[:2]]
    kind = rng.integers(4)
    neck = person.skin * 0.84
    shoulders = np.array([(-2.3, 2.9), (-1.95, 1.85), (-1.35, 1.55), (-0.55, 1.32), (0.55, 1.32), (1.35, 1.55),
                          (1.95, 1.85), (2.3, 2.9)])  # fmt: skip
    pen.shape(shoulders, main)
    pen.stroke([(-1.3, 2.9), (-1.28, 2.2), (-1.4, 1.8)], (0.03, 0.03, 0.005), main * 0.7)
    pen.stroke([(1.3, 2.9), (1.28, 2.2), (1.4, 1.8)], (0.03, 0.03, 0.005), main * 0.7)
    w = person.width * 0.62
    pen.shape([(-w, 0.5), (-w * 1.02, 1.15), (-w * 1.35, 1.42), (0, 1.85), (w * 1.35, 1.42), (w * 1.02, 1.15),
               (w, 0.5)], neck)  # fmt: skip
    if kind == 0:  # a suit
        pen.shape([(-0.62, 1.3), (0, 2.9), (0.62, 1.3), (0.3, 1.55), (-0.3, 1.55)], WHITE * 0.94)
        pen.shape(
            [(-0.1, 1.62), (0.1, 1.62), (0.07, 1.78), (0.2, 2.9), (-0.2, 2.9), (-0.07, 1.78)], other
        )
        for side in ((-1, 1), (1, 1)):
            pen.shape(
                side * np.array([(0.62, 1.22), (0.30, 1.50), (0.05, 1.66), (0.42, 1.80)]), WHITE
            )
            lapel = np.array([(0.62, 1.30), (0.95, 1.75), (0.72, 1.85), (0.15, 2.9), (0.5, 2.9)])
            pen.shape(side * lapel, main * 0.8)
    elif kind == 1:  # a shirt with a collar
        pen.stroke([(0, 1.7), (0, 2.9)], 0.03, main * 0.75)
        for side in (-1, 1):
            pen.shape(
                [
                    (side * 0.56, 1.18),
                    (side * 0.02, 1.72),
                    (side * 0.40, 1.95),
                    (side * 0.74, 1.42),
                ],
                main * 1.15,
            )
    elif kind == 2:  # a polo neck
        pen.shape(
            [(-w - 0.06, 1.08), (-0.75, 1.45), (0, 1.9), (0.75, 1.45), (w + 0.06, 1.08), (0, 1.24)],
            main * 0.88,
        )
        pen.stroke([(-w - 0.06, 1.1), (0, 1.24), (w + 0.06, 1.1)], 0.03, main * 0.7)
    else:  # a jumper
        arc = np.stack([w * 1.35 * ACROSS, 1.40 + 0.42 * (1 - ACROSS**2)], 1)
        pen.stroke(arc, 0.12, main * 0.78)
        if rng.random() < 0.5:
            for y in (2.05, 2.3, 2.55):
                pen.stroke([(-1.9, y + 0.1), (0, y - 0.02), (1.9, y + 0.1)], 0.09, other)


def _head(pen, person):
    edge = person.skin * 0.90
    for side in (-1, 1):
        x = side * person.width * 0.98
        pen.blob(x, 0.02, 0.13, person.ears, edge, depth=-0.15)
        pen.blob(x, 0.02, 0.065, person.ears * 0.6, person.skin * 0.76, depth=-0.14)
        if person.earrings:
            pen.blob(x * 1.03, person.ears + 0.06, 0.035, 0.05, (236, 204, 110), depth=-0.12)
    pen.shape(_outline(person, 0.012), edge)
    pen.shape(_outline(person), person.skin)
    rosy = _between(np.array([person.skin, (214, 92, 80)]), 0.5)
    for side in (-1, 1):
        for size in (0.2, 0.15, 0.1):
            pen.blob(
                side * 0.42, 0.32, size, size * 0.7, rosy, 0.2, alpha=int(14 + 16 * person.rouge)
            )
    if person.freckles:
        for x, y in (
            (0.2, 0.2),
            (0.28, 0.27),
            (0.36, 0.2),
            (0.43, 0.28),
            (0.33, 0.34),
            (0.5, 0.22),
            (0.24, 0.36),
        ):
            for side in (-1, 1):
                pen.blob(side * x, y + 0.02 * side, 0.014, 0.014, person.skin * 0.7, 0.3, alpha=150)


def _eyes(pen, person, opening, raised, gaze):
    height = 0.62 * person.eye_size * opening
    lid, lash = person.skin * 0.88, _between(np.array([person.hair, DARK]), 0.6)
    for side in (-1, 1):
        x = side * person.eye_gap + person.eye_size * ACROSS
        y = -0.10 - person.eye_slant * side * ACROSS
        top, bottom = y - height * (1 - ACROSS**2) ** 0.7, y + 0.72 * height * (1 - ACROSS**2)
        upper, lower = np.stack([x, top], 1), np.stack([x, bottom], 1)
        pen.shape(np.concatenate([upper - (0, 0.05), lower[::-1] + (0, 0.05)]), lid, 0.3, alpha=120)
        pen.shape(np.concatenate([upper, lower[::-1]]), WHITE * 0.97, 0.3)
        iris = 0.52 * person.eye_size
        at = side * person.eye_gap + 0.30 * person.eye_size * gaze[0], -0.105 + 0.018 * gaze[1]
        pen.blob(*at, iris, iris, person.iris * 0.55, 0.3)
        pen.blob(*at, iris * 0.86, iris * 0.86, person.iris, 0.3)
        pen.blob(*at, iris * 0.46, iris * 0.46, DARK * 0.6, 0.3)
        pen.blob(at[0] - 0.4 * iris, at[1] - 0.4 * iris, iris * 0.26, iris * 0.26, WHITE, 0.3)
        # what of the iris the lids hide
        pen.shape(
            np.concatenate([upper, upper[::-1] - (0, 0.5 * iris + 0.02)]), person.skin * 0.95, 0.3
        )
        pen.shape(
            np.concatenate([lower, lower[::-1] + (0, 0.5 * iris + 0.01)]), person.skin * 0.97, 0.3
        )
        # crease
        pen.stroke(upper - (0, 0.055), 0.018 * (1 - ACROSS**2) + 0.002, person.skin * 0.72, 0.3)
        pen.stroke(upper, 0.020 + 0.016 * side * ACROSS, lash, 0.3)
        pen.stroke(lower, 0.010, person.skin * 0.66, 0.3)
        bow = -0.10 - 0.20 - raised - person.brow_arch * (1 - (ACROSS - 0.1 * side) ** 2) + 0.03
        brow = np.stack([side * person.eye_gap * 1.06 + 1.28 * person.eye_size * ACROSS, bow], 1)
        thick = (
            person.brow_width * 2 * (1 - 0.7 * np.clip(side * ACROSS, 0, 1)) * (1 - ACROSS**8 * 0.6)
        )
        pen.stroke(brow, thick, _between(np.array([person.hair * 0.8, DARK]), 0.2), 0.32, alpha=235)


def _nose(pen, person):
    tip, wide, shade = 0.02 + person.nose_length, person.nose_width, person.skin * 0.80
    pen.shape(
        [(0.05, -0.12), (0.09, tip - 0.08), (wide, tip), (0.02, tip + 0.02)],
        person.skin * 0.92,
        0.42,
        alpha=170,
    )
    pen.shape(
        [(-0.05, -0.12), (-0.02, tip - 0.1), (-wide, tip), (-0.09, tip - 0.08)],
        person.skin * 0.96,
        0.42,
    )
    pen.blob(
        0, tip - 0.03, wide * 0.62, 0.085, _between(np.array([person.skin, WHITE]), 0.12), 0.52
    )
    for side in (-1, 1):
        wing = [
            (side * wide, tip - 0.07),
            (side * wide * 1.1, tip),
            (side * wide * 0.8, tip + 0.05),
        ]
        pen.stroke(wing, 0.022, shade * 0.92, 0.42)
        pen.blob(side * wide * 0.46, tip + 0.045, wide * 0.26, 0.022, person.skin * 0.48, 0.48)
    pen.blob(-0.02, tip - 0.06, 0.03, 0.03, WHITE, 0.54, alpha=80)


def _mouth(pen, person, smile, opening):
    y, wide = 0.56, person.mouth_width * (1 + 0.14 * smile)
    line = y - 0.10 * smile * ACROSS**2 + 0.03 * smile
    gap = 0.13 * opening * (1 - ACROSS**2)
    lip = _between(np.array([person.skin * 0.82, (190, 62, 70)]), 0.28 + 0.5 * person.rouge)
    x = wide * ACROSS
    cupid = person.lips * (1 - ACROSS**2) * (1 - 0.35 * np.exp(-((ACROSS / 0.16) ** 2)))
    top, bottom = np.stack([x, line - gap * 0.3], 1), np.stack([x, line + gap], 1)
    pen.shape(np.concatenate([top - np.stack([0 * x, cupid], 1), bottom[::-1]]), lip * 0.92, 0.36)
    full = np.stack([0 * x, 1.25 * person.lips * (1 - ACROSS**2)], 1)
    pen.shape(np.concatenate([top, (bottom + full)[::-1]]), lip, 0.36)
    if opening > 0.25:
        pen.shape(np.concatenate([top, bottom[::-1]]), (74, 26, 30), 0.36)
        teeth = np.stack([0 * x, 0.62 * gap], 1)
        pen.shape(
            np.concatenate([top * (0.94, 1), (top + teeth)[::-1] * (0.94, 1)]), WHITE * 0.96, 0.36
        )
    else:
        pen.stroke(np.stack([x * 1.04, line], 1), 0.020, lip * 0.5, 0.36)
    pen.blob(0, y + gap.max() + person.lips * 0.8, 0.09, 0.02, WHITE, 0.37, alpha=46)
    if smile > 0.3:
        for side in (-1, 1):
            fold = [(side * 0.2, 0.3), (side * (wide + 0.05), 0.42), (side * (wide + 0.08), 0.56)]
            pen.stroke(fold, (0.004, 0.02, 0.004), person.skin * 0.76, 0.3)


def _beard(pen, person, rng):
    if person.beard == "none":
        return
    colour = _between(np.array([person.hair, person.skin * 0.7]), 0.15)
    alpha = 70 if person.beard == "stubble" else 240
    if person.beard in ("stubble", "full"):
        grow = 0.0 if person.beard == "stubble" else 0.06
        jaw = _outline(person, grow)[:17]  # from the right ear by the chin to the left one
        x = np.linspace(-1, 1, 13) * person.width * 0.97
        edge = np.stack([x, 0.42 - 0.38 * np.abs(ACROSS) ** 5 + 0.04 * np.cos(3 * ACROSS)], 1)
        pen.shape(np.concatenate([jaw, edge]), colour, 0.1, alpha)
    if person.beard == "goatee":
        pen.shape(CIRCLE * (0.24, 0.28) + (0, 0.80), colour, 0.25, alpha)
        pen.shape(CIRCLE * (0.13, 0.05) + (0, 0.66), person.skin, 0.30)
    if person.beard != "stubble":
        arc = np.stack([person.mouth_width * 1.12 * ACROSS, 0.475 + 0.10 * ACROSS**2], 1)
        pen.stroke(arc, 0.11 * (1.15 - ACROSS**2), colour * 0.95, 0.36, alpha)
    if person.beard == "full":
        for x, y in rng.uniform((-0.5, 0.55), (0.5, 0.98), (16, 2)):
            tint = colour * rng.uniform(0.7, 1.35)
            pen.stroke(
                [(x, y), (x * 0.97, y + 0.05), (x * 0.92, y + 0.11)],
                (0.02, 0.02, 0.004),
                tint,
                0.15,
                120,
            )


def _hair_behind(pen, person, hat):
    if person.style == "bald":
        return
    lift, _, _, end, curls = STYLES[person.style]
    shade = person.hair * 0.72
    lift = min(lift, 0.1) if hat != "none" else lift
    if person.style == "bun" and hat == "none":
        pen.blob(0.05, -1.22, 0.30, 0.27, shade, -0.3)
        pen.stroke(
            [(-0.15, -1.3), (0.05, -1.38), (0.25, -1.28)],
            (0.01, 0.05, 0.01),
            person.hair * 1.2,
            -0.3,
        )
    if end < 0:
        return
    wide = person.width + 0.10 + lift * 0.8
    if curls:
        for x, y in CIRCLE[::2] * (wide, 1 + lift * 0.8):
            if y < end + 0.35:
                pen.blob(x, y, 0.24, 0.24, shade, -0.3)
        pen.blob(0, -0.1, wide, 1 + lift * 0.6, shade, -0.3)
    else:
        down = np.array(
            [
                (-1.04, end * 0.5),
                (-1.1, end),
                (-0.5, end + 0.1),
                (0.5, end + 0.1),
                (1.1, end),
                (1.04, end * 0.5),
            ]
        )
        arc = CIRCLE[16:] * (1.0, 1 + lift)
        pen.shape(np.concatenate([arc, down[::-1]]) * (wide, 1), shade, -0.3)


def _hair(pen, person, rng):
    if person.style == "bald":
        return
    lift, middle, temple, end, curls = STYLES[person.style]
    turn = np.linspace(np.pi * 1.02, np.pi * 1.98, 25)
    up = np.clip(-np.sin(turn), 0, 1) ** 0.4
    wide = person.width + (0.05 + 0.4 * lift) * up
    outer = np.stack(
        [
            np.sign(np.cos(turn)) * np.abs(np.cos(turn)) ** 0.9 * wide,
            np.sin(turn) * (1 + lift * up),
        ],
        1,
    )
    part = person.parting if person.style in ("short", "bob", "long") else 0.0
    s = np.linspace(-1, 1, 25)
    line = middle + (temple - middle) * np.abs(s - 0.6 * part) ** 2.2
    line = np.where(np.abs(s) > 0.9, np.maximum(line, -0.02), line)  # down to the ears
    if person.style == "fringe":
        line = line + 0.025 * np.cos(np.arange(25) * 2.4)
    inner = np.stack([s * person.width * 0.97, line], 1)
    alpha = 190 if person.style == "buzz" else 255
    if person.style == "receding":
        for side in (slice(0, 7), slice(18, 25)):
            pen.shape(
                np.concatenate([outer[side], inner[side][::-1] * (0.93, 1)]),
                person.hair,
                0.05,
                alpha,
            )
        return
    pen.shape(np.concatenate([outer, inner[::-1]]), person.hair, 0.05, alpha)
    if end > 0.5:  # locks in front of the ears
        for side in (-1, 1):
            x = side * (person.width + 0.02)
            lock = [(x * 0.93, -0.45), (x * 1.04, 0.0), (x * 1.06, end * 0.5), (x * 1.02, end)]
            pen.stroke(lock, (0.10, 0.22, 0.24, 0.06), person.hair, 0.0)
    if curls:
        for i in rng.permutation(25):
            at = outer[i] + (inner[i] - outer[i]) * rng.uniform(0, 0.9)
            size = rng.uniform(0.10, 0.17)
            pen.blob(*at, size, size, person.hair * rng.uniform(0.75, 1.3), 0.05)
    elif person.style != "buzz":
        for i in rng.permutation(np.arange(2, 23))[:14]:
            root = inner[np.clip(12 + int(6 * part), 0, 24)] * 0.4 + inner[i] * 0.6
            strand = np.stack([outer[i] * 0.98, (outer[i] + root) / 2 + (0.03, -0.03), inner[i]])
            pen.stroke(
                strand, (0.004, 0.026, 0.004), person.hair * rng.choice((0.7, 1.35)) + 6, 0.05, 150
            )


def _hat(pen, person, kind, colour):
    turn = np.linspace(np.pi, 2 * np.pi, 25)
    wide = person.width + 0.10
    dome = np.stack(
        [np.cos(turn) * wide, np.sin(turn) * (0.92 if kind == "beanie" else 0.78) - 0.42], 1
    )
    pen.shape(dome, colour, 0.02)
    pen.stroke([(0, -1.2), (0.02, -0.8), (0, -0.45)], 0.02, colour * 0.8, 0.1)
    if kind == "beanie":
        pen.stroke(
            [(-wide - 0.02, -0.42), (0, -0.36), (wide + 0.02, -0.42)], 0.24, colour * 0.82, 0.05
        )
        pen.blob(0, -1.38, 0.17, 0.16, colour * 1.15)
    elif kind == "cap":
        arc = np.stack([0.9 * wide * ACROSS, -0.40 - 0.10 * (1 - ACROSS**2)], 1)
        pen.shape(np.concatenate([arc, arc[::-1] * (1.05, 1) + np.stack([0 * ACROSS, 0.24 * (1 - ACROSS**4)], 1)]),
                  colour * 0.7, 0.3)  # fmt: skip
    else:
        pen.stroke([(-wide, -0.46), (0, -0.40), (wide, -0.46)], 0.16, colour * 0.5, 0.05)
        arc = np.stack([1.6 * wide * ACROSS, -0.42 + 0.10 * (1 - ACROSS**2)], 1)
        pen.stroke(arc, 0.16 * (1.1 - ACROSS**2), colour * 0.88, 0.1)


def _glasses(pen, person):
    rim = (44, 34, 34) if person.glasses == "square" else (122, 96, 60)
    power = 0.45 if person.glasses == "square" else 1.0
    lens = np.sign(CIRCLE) * np.abs(CIRCLE) ** power * (0.235, 0.19)
    for side in (-1, 1):
        ring = lens + (side * (person.eye_gap + 0.01), -0.07)
        pen.shape(ring, (214, 232, 246), 0.45, alpha=34)
        pen.stroke(np.concatenate([ring, ring[:2]]), 0.034, rim, 0.45)
        far = side * (person.eye_gap + 0.24)
        pen.shape(
            [
                (far, -0.12),
                (side * person.width, -0.09),
                (side * person.width, -0.05),
                (far, -0.08),
            ],
            rim,
            0.3,
        )
        glint = [(side * person.eye_gap - 0.14, 0.0), (side * person.eye_gap - 0.04, -0.18)]
        pen.stroke(glint, 0.035, WHITE, 0.45, alpha=60)
    inner = person.eye_gap - 0.215
    pen.stroke([(-inner, -0.10), (0, -0.13), (inner, -0.10)], 0.034, rim, 0.48)


def _develop(image, pen, rng):
    """`image` under a lamp from one side, with soft shadows on the face, a tint, and grain."""
    x, y = np.meshgrid(*2 * [(np.arange(COARSE) + 0.5) * SIZE / COARSE * FINE])
    # where (face units, depth), how far, how much
    spots = [
        ((0.0, 1.28), 0.0, (0.62, 0.30), -0.30),  # under the chin
        ((-0.33, -0.16), 0.3, (0.24, 0.14), -0.12),
        ((0.33, -0.16), 0.3, (0.24, 0.14), -0.12),
        ((0.0, 0.42), 0.4, (0.18, 0.08), -0.12),  # under the nose
        ((0.0, 0.74), 0.3, (0.20, 0.07), -0.10),  # under the lip
        ((0.0, -0.50), 0.3, (0.45, 0.25), 0.08),
        ((0.0, 0.10), 0.5, (0.10, 0.30), 0.08),
        ((-0.40, 0.22), 0.3, (0.18, 0.16), 0.07),
        ((0.40, 0.22), 0.3, (0.18, 0.16), 0.07),
    ]
    lamp = rng.choice((-1, 1)) * rng.uniform(0.3, 1)
    spots.append(((-0.72 * lamp, 0.2), 0.0, (0.38, 0.95), -0.32 * abs(lamp)))
    spots.append(((0.45 * lamp, 0.0), 0.2, (0.35, 0.7), 0.10 * abs(lamp)))
    shade = rng.uniform(0.86, 1.1) + 0.10 * lamp * (x / x.max() - 0.5) + 0.12 * (0.5 - y / y.max())
    for where, depth, size, amount in spots:
        (px, py), (rx, ry) = pen.place([where], depth)[0], np.array(size) * pen.unit
        shade += amount * np.exp(-(((x - px) / rx) ** 2) - ((y - py) / ry) ** 2)
    shade = Image.fromarray(shade.astype(np.float32)).resize(
        (SIZE, SIZE), Image.Resampling.BILINEAR
    )
    warmth = rng.uniform(-0.05, 0.06)
    tint = np.array([1 + warmth, 1, 1 - warmth], dtype=np.float32)
    grain = rng.uniform(2.5, 6.5) * rng.standard_normal((SIZE, SIZE), dtype=np.float32)
    pixels = (
        np.asarray(image, dtype=np.float32) * np.asarray(shade)[..., None] * tint + grain[..., None]
    )
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _between(colours, t):
    """The colour at `t`, 0 to n - 1, between the neighbours in `colours`, (n, 3)."""
    low = min(int(t), len(colours) - 2)
    return colours[low] + (t - low) * (np.asarray(colours[low + 1]) - colours[low])


def _rgba(colour, alpha=255):
    return *(min(255, max(0, int(c))) for c in colour), int(alpha)
