"""Drawn faces of invented people: *random_person* -> *picture* -> the stand-in of lfw.py.

Each person has one face, in varying pose, expression, clothes, light and place. The pictures have
the size and, as JPEG files, the number of bytes of Labeled Faces in the Wild.
"""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIZE = 250  # pixels, width and height
FINE = 2  # drawn at twice the size for smooth edges
# pixels from the middle of a face to its chin; faces are drawn in these units, x to the right, y
# down
UNIT = 62
TURN = np.linspace(0, 2 * np.pi, 33)[:-1]
CIRCLE = np.stack([np.cos(TURN), np.sin(TURN)], 1)
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
CLOTHES = np.array(
    [
        (38, 44, 64),
        (70, 70, 76),
        (150, 40, 48),
        (44, 96, 84),
        (60, 92, 150),
        (196, 168, 120),
        (232, 228, 220),
        (122, 72, 120),
        (210, 128, 60),
        (30, 30, 34),
    ]
)
WALLS = np.array(
    [
        (150, 162, 176),
        (176, 160, 140),
        (104, 124, 118),
        (190, 182, 168),
        (92, 96, 120),
        (170, 128, 112),
        (66, 72, 84),
        (120, 152, 178),
        (198, 176, 150),
        (84, 104, 84),
    ]
)
DARK = np.array((24, 18, 18))
WHITE = np.array((250, 248, 244))
BEARDS = ("none", "none", "stubble", "full", "goatee", "moustache")
THINGS = 24  # in the background, at most
FRECKLES = (  # of the right cheek
    (0.2, 0.2),
    (0.28, 0.27),
    (0.36, 0.2),
    (0.43, 0.28),
    (0.33, 0.34),
    (0.5, 0.22),
    (0.24, 0.36),
)


class HairStyle(NamedTuple):
    """A way to wear one's hair, in face units."""

    lift: float  # over the skull
    middle: float  # hairline in the middle
    temple: float  # hairline at the temples
    end: float = -1  # of the hair behind the head; -1: none there
    curls: bool = False


STYLES = {
    "buzz": HairStyle(0.03, -0.66, -0.40),
    "short": HairStyle(0.12, -0.60, -0.42),
    "quiff": HairStyle(0.26, -0.66, -0.46),
    "receding": HairStyle(0.06, -0.88, -0.62),
    "bald": None,
    "curls": HairStyle(0.20, -0.58, -0.40, 0.25, curls=True),
    "fringe": HairStyle(0.14, -0.30, -0.26, 0.55),
    "bob": HairStyle(0.14, -0.58, -0.30, 0.85),
    "long": HairStyle(0.13, -0.64, -0.30, 1.75),
    "bun": HairStyle(0.08, -0.66, -0.40),
    "afro": HairStyle(0.46, -0.60, -0.40, 0.35, curls=True),
}


def random_person(rng: np.random.Generator) -> SimpleNamespace:
    """What all images of a random person have in common."""
    bearded = rng.random() < 0.5
    styles = list(STYLES)[:6] if bearded else list(STYLES)[5:]
    style = rng.choice(styles, p=(0.1, 0.3, 0.2, 0.15, 0.13, 0.12))
    tone = rng.uniform(0, len(SKINS) - 1)
    dark = tone > 3
    hair = HAIRS[rng.integers(3 if dark else len(HAIRS))] * rng.uniform(0.85, 1.15)
    # the order of the draws decides how a person looks
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
        beard=str(rng.choice(BEARDS)) if bearded else "none",
        glasses=str(rng.choice(["none", "none", "none", "round", "square"])),
        earrings=not bearded and rng.random() < 0.5,
        freckles=not dark and rng.random() < 0.25,
        hat=str(rng.choice(["cap", "beanie", "brim"])),
        parting=rng.uniform(-0.5, 0.5),
    )


class _Pen:
    """Draws shapes in face units onto an image.

    They are tilted by `tilt`, turned by `yaw` and `pitch` (radians). A shape has a depth, towards
    the viewer: near shapes move further when the head turns.
    """

    def __init__(self, image, centre, unit, tilt=0.0, yaw=0.0, pitch=0.0):
        self.draw = ImageDraw.Draw(image, "RGBA")
        self.unit = unit
        self.centre = np.asarray(centre)
        turn = np.array([[np.cos(tilt), np.sin(tilt)], [-np.sin(tilt), np.cos(tilt)]])
        self.matrix = unit * np.diag([np.cos(yaw), np.cos(pitch)]) @ turn
        self.nearer = unit * np.array([np.sin(yaw), np.sin(pitch)]) @ turn

    def place(self, xy, depth=0.0):
        """Pixels, (n, 2), of the points `xy`, (n, 2) in face units."""
        return np.asarray(xy, dtype=float) @ self.matrix + depth * self.nearer + self.centre

    def shape(self, xy, colour, depth=0.0, alpha=255):
        """Fill the polygon `xy`, (n, 2) in face units."""
        self.draw.polygon(self.place(xy, depth).ravel().tolist(), fill=_rgba(colour, alpha))

    def blob(self, x, y, rx, ry, colour, depth=0.0, alpha=255):
        """Fill an ellipse around (x, y) with the radii `rx` and `ry`."""
        self.shape(CIRCLE * (rx, ry) + (x, y), colour, depth, alpha)

    def stroke(self, xy, width, colour, depth=0.0, alpha=255):
        """A line along `xy`, `width` thick (one number or n)."""
        xy = np.asarray(xy, dtype=float)
        along = np.gradient(xy, axis=0)
        across = np.stack([-along[:, 1], along[:, 0]], 1) / (np.hypot(*along.T)[:, None] + 1e-9)
        across *= np.reshape(width, (-1, 1)) / 2
        self.shape(np.concatenate([xy + across, (xy - across)[::-1]]), colour, depth, alpha)


def picture(person: SimpleNamespace, rng: np.random.Generator) -> Image.Image:
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
    opening = rng.uniform(0.7, 1.05)
    raised = rng.uniform(-0.01, 0.06)
    _eyes(pen, person, opening, raised, gaze=rng.uniform(-1, 1, 2))
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
    wall = np.clip((1 - ramp) * high + ramp * low, 0, 255).repeat(COARSE, 1)
    image = Image.fromarray(wall.astype(np.uint8)).resize((2 * COARSE, 2 * COARSE))
    scene = SCENES[rng.integers(len(SCENES))]
    tints = CLOTHES[rng.integers(len(CLOTHES), size=THINGS)]
    x, y = rng.uniform(0, 2 * COARSE, (2, THINGS))
    size = rng.uniform(4, 13, THINGS)
    scene(ImageDraw.Draw(image, "RGBA"), _Things(tints, x, y, size, high), rng)
    image = image.filter(ImageFilter.BoxBlur(rng.uniform(0.8, 2.6)))
    return image.resize((FINE * SIZE, FINE * SIZE), Image.Resampling.BILINEAR)


class _Things(NamedTuple):
    """What a scene may be made of: THINGS random things, and the colour of a wall."""

    tints: np.ndarray  # (THINGS, 3)
    x: np.ndarray  # (THINGS,), pixels of an image of 2 * COARSE, as y and size
    y: np.ndarray
    size: np.ndarray
    wall: np.ndarray  # (3,)


def _lights_at_night(draw, things, rng):
    for tint, x, y, size in zip(things.tints, things.x, things.y, things.size, strict=True):
        draw.ellipse((x - size, y - size, x + size, y + size), _rgba(tint + 60, 110))


def _window(draw, things, rng):
    left = rng.uniform(-20, 50)
    top = rng.uniform(-10, 10)
    for column in range(3):
        for row in range(2):
            x = left + 24 * column
            y = top + 38 * row
            draw.rectangle((x, y, x + 20, y + 34), _rgba((226, 236, 244), 190))


def _leaves(draw, things, rng):
    for x, y, size in zip(things.x, things.y, things.size, strict=True):
        green = np.array((60, 110, 50)) + rng.integers(-30, 60, 3)
        draw.ellipse((x - size, y - size, x + size, y + size * 0.6), _rgba(green, 180))


def _books(draw, things, rng):
    edges = np.cumsum(rng.uniform(3, 8, THINGS))
    for i in range(THINGS - 1):
        for shelf in (0, 34, 68):
            tint = things.tints[(i + shelf) % THINGS]
            top = shelf + 2 + things.size[i] / 2
            draw.rectangle((edges[i], top, edges[i + 1], shelf + 30), _rgba(tint, 220))


def _curtain(draw, things, rng):
    for edge in range(-4, 104, 9):
        draw.rectangle((edge, 0, edge + 4, 100), _rgba(things.wall * 0.75, 150))


def _people(draw, things, rng):
    for i in range(9):
        x = things.x[i]
        y = things.y[i]
        skin = SKINS[i % len(SKINS)] * 0.9
        draw.ellipse((x - 9, y + 8, x + 9, y + 40), _rgba(things.tints[i], 220))
        draw.ellipse((x - 5, y - 6, x + 5, y + 9), _rgba(skin, 230))


def _street(draw, things, rng):
    draw.rectangle((0, 62, 100, 100), _rgba((96, 94, 92), 255))
    for i in range(7):
        x = things.x[i]
        size = things.size[i]
        draw.rectangle((x, 62 - 4 * size, x + size * 2, 64), _rgba(WALLS[i], 255))


SCENES = (_lights_at_night, _window, _leaves, _books, _curtain, _people, _street)


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
    left = [(-2.3, 2.9), (-1.95, 1.85), (-1.35, 1.55), (-0.55, 1.32)]
    right = [(0.55, 1.32), (1.35, 1.55), (1.95, 1.85), (2.3, 2.9)]
    pen.shape([*left, *right], main)  # the shoulders
    pen.stroke([(-1.3, 2.9), (-1.28, 2.2), (-1.4, 1.8)], (0.03, 0.03, 0.005), main * 0.7)
    pen.stroke([(1.3, 2.9), (1.28, 2.2), (1.4, 1.8)], (0.03, 0.03, 0.005), main * 0.7)
    w = person.width * 0.62  # of the neck
    left = [(-w, 0.5), (-w * 1.02, 1.15), (-w * 1.35, 1.42)]
    right = [(w * 1.35, 1.42), (w * 1.02, 1.15), (w, 0.5)]
    pen.shape([*left, (0, 1.85), *right], neck)
    if kind == 0:
        _suit(pen, main, other)
    elif kind == 1:
        _collar(pen, main)
    elif kind == 2:
        _polo_neck(pen, main, w)
    else:
        _jumper(pen, main, other, w, rng)


def _suit(pen, main, other):
    pen.shape([(-0.62, 1.3), (0, 2.9), (0.62, 1.3), (0.3, 1.55), (-0.3, 1.55)], WHITE * 0.94)
    tie = [(-0.1, 1.62), (0.1, 1.62), (0.07, 1.78), (0.2, 2.9), (-0.2, 2.9), (-0.07, 1.78)]
    pen.shape(tie, other)
    collar = np.array([(0.62, 1.22), (0.30, 1.50), (0.05, 1.66), (0.42, 1.80)])
    lapel = np.array([(0.62, 1.30), (0.95, 1.75), (0.72, 1.85), (0.15, 2.9), (0.5, 2.9)])
    for side in ((-1, 1), (1, 1)):
        pen.shape(side * collar, WHITE)
        pen.shape(side * lapel, main * 0.8)


def _collar(pen, main):
    pen.stroke([(0, 1.7), (0, 2.9)], 0.03, main * 0.75)
    collar = np.array([(0.56, 1.18), (0.02, 1.72), (0.40, 1.95), (0.74, 1.42)])
    for side in ((-1, 1), (1, 1)):
        pen.shape(side * collar, main * 1.15)


def _polo_neck(pen, main, w):
    lower = [(-0.75, 1.45), (0, 1.9), (0.75, 1.45)]
    pen.shape([(-w - 0.06, 1.08), *lower, (w + 0.06, 1.08), (0, 1.24)], main * 0.88)
    pen.stroke([(-w - 0.06, 1.1), (0, 1.24), (w + 0.06, 1.1)], 0.03, main * 0.7)


def _jumper(pen, main, other, w, rng):
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
    alpha = int(14 + 16 * person.rouge)
    for side in (-1, 1):
        for size in (0.2, 0.15, 0.1):
            pen.blob(side * 0.42, 0.32, size, size * 0.7, rosy, 0.2, alpha)
    if person.freckles:
        for x, y in FRECKLES:
            for side in (-1, 1):
                pen.blob(side * x, y + 0.02 * side, 0.014, 0.014, person.skin * 0.7, 0.3, alpha=150)


def _eyes(pen, person, opening, raised, gaze):
    height = 0.62 * person.eye_size * opening
    for side in (-1, 1):
        _eye(pen, person, side, height, gaze)
        _brow(pen, person, side, raised)


def _eye(pen, person, side, height, gaze):
    lid = person.skin * 0.88
    lash = _between(np.array([person.hair, DARK]), 0.6)
    x = side * person.eye_gap + person.eye_size * ACROSS
    y = -0.10 - person.eye_slant * side * ACROSS
    upper = np.stack([x, y - height * (1 - ACROSS**2) ** 0.7], 1)
    lower = np.stack([x, y + 0.72 * height * (1 - ACROSS**2)], 1)
    pen.shape(np.concatenate([upper - (0, 0.05), lower[::-1] + (0, 0.05)]), lid, 0.3, alpha=120)
    pen.shape(np.concatenate([upper, lower[::-1]]), WHITE * 0.97, 0.3)
    iris = 0.52 * person.eye_size
    at_x = side * person.eye_gap + 0.30 * person.eye_size * gaze[0]
    at_y = -0.105 + 0.018 * gaze[1]
    pen.blob(at_x, at_y, iris, iris, person.iris * 0.55, 0.3)
    pen.blob(at_x, at_y, iris * 0.86, iris * 0.86, person.iris, 0.3)
    pen.blob(at_x, at_y, iris * 0.46, iris * 0.46, DARK * 0.6, 0.3)
    pen.blob(at_x - 0.4 * iris, at_y - 0.4 * iris, iris * 0.26, iris * 0.26, WHITE, 0.3)
    # what of the iris the lids hide
    above = np.concatenate([upper, upper[::-1] - (0, 0.5 * iris + 0.02)])
    below = np.concatenate([lower, lower[::-1] + (0, 0.5 * iris + 0.01)])
    pen.shape(above, person.skin * 0.95, 0.3)
    pen.shape(below, person.skin * 0.97, 0.3)
    crease = upper - (0, 0.055)
    pen.stroke(crease, 0.018 * (1 - ACROSS**2) + 0.002, person.skin * 0.72, 0.3)
    pen.stroke(upper, 0.020 + 0.016 * side * ACROSS, lash, 0.3)
    pen.stroke(lower, 0.010, person.skin * 0.66, 0.3)


def _brow(pen, person, side, raised):
    x = side * person.eye_gap * 1.06 + 1.28 * person.eye_size * ACROSS
    y = -0.10 - 0.20 - raised - person.brow_arch * (1 - (ACROSS - 0.1 * side) ** 2) + 0.03
    thinner_outside = 1 - 0.7 * np.clip(side * ACROSS, 0, 1)
    thick = person.brow_width * 2 * thinner_outside * (1 - ACROSS**8 * 0.6)
    colour = _between(np.array([person.hair * 0.8, DARK]), 0.2)
    pen.stroke(np.stack([x, y], 1), thick, colour, 0.32, alpha=235)


def _nose(pen, person):
    tip = 0.02 + person.nose_length
    wide = person.nose_width
    shade = person.skin * 0.80
    right = [(0.05, -0.12), (0.09, tip - 0.08), (wide, tip), (0.02, tip + 0.02)]
    left = [(-0.05, -0.12), (-0.02, tip - 0.1), (-wide, tip), (-0.09, tip - 0.08)]
    pen.shape(right, person.skin * 0.92, 0.42, alpha=170)
    pen.shape(left, person.skin * 0.96, 0.42)
    light = _between(np.array([person.skin, WHITE]), 0.12)
    pen.blob(0, tip - 0.03, wide * 0.62, 0.085, light, 0.52)
    for side in (-1, 1):
        x = side * wide
        wing = [(x, tip - 0.07), (x * 1.1, tip), (x * 0.8, tip + 0.05)]
        pen.stroke(wing, 0.022, shade * 0.92, 0.42)
        pen.blob(side * wide * 0.46, tip + 0.045, wide * 0.26, 0.022, person.skin * 0.48, 0.48)
    pen.blob(-0.02, tip - 0.06, 0.03, 0.03, WHITE, 0.54, alpha=80)


def _mouth(pen, person, smile, opening):
    y = 0.56
    wide = person.mouth_width * (1 + 0.14 * smile)
    line = y - 0.10 * smile * ACROSS**2 + 0.03 * smile
    gap = 0.13 * opening * (1 - ACROSS**2)
    lip = _between(np.array([person.skin * 0.82, (190, 62, 70)]), 0.28 + 0.5 * person.rouge)
    x = wide * ACROSS
    cupid = person.lips * (1 - ACROSS**2) * (1 - 0.35 * np.exp(-((ACROSS / 0.16) ** 2)))
    top = np.stack([x, line - gap * 0.3], 1)
    bottom = np.stack([x, line + gap], 1)
    pen.shape(np.concatenate([top - np.stack([0 * x, cupid], 1), bottom[::-1]]), lip * 0.92, 0.36)
    full = np.stack([0 * x, 1.25 * person.lips * (1 - ACROSS**2)], 1)
    pen.shape(np.concatenate([top, (bottom + full)[::-1]]), lip, 0.36)
    if opening > 0.25:
        pen.shape(np.concatenate([top, bottom[::-1]]), (74, 26, 30), 0.36)
        teeth = np.stack([0 * x, 0.62 * gap], 1)
        row = np.concatenate([top * (0.94, 1), (top + teeth)[::-1] * (0.94, 1)])
        pen.shape(row, WHITE * 0.96, 0.36)
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
            strand = [(x, y), (x * 0.97, y + 0.05), (x * 0.92, y + 0.11)]
            pen.stroke(strand, (0.02, 0.02, 0.004), tint, 0.15, alpha=120)


def _hair_behind(pen, person, hat):
    if person.style == "bald":
        return
    lift = STYLES[person.style].lift
    end = STYLES[person.style].end
    shade = person.hair * 0.72
    if hat != "none":
        lift = min(lift, 0.1)
    if person.style == "bun" and hat == "none":
        pen.blob(0.05, -1.22, 0.30, 0.27, shade, -0.3)
        shine = [(-0.15, -1.3), (0.05, -1.38), (0.25, -1.28)]
        pen.stroke(shine, (0.01, 0.05, 0.01), person.hair * 1.2, -0.3)
    if end < 0:
        return
    wide = person.width + 0.10 + lift * 0.8
    if STYLES[person.style].curls:
        for x, y in CIRCLE[::2] * (wide, 1 + lift * 0.8):
            if y < end + 0.35:
                pen.blob(x, y, 0.24, 0.24, shade, -0.3)
        pen.blob(0, -0.1, wide, 1 + lift * 0.6, shade, -0.3)
    else:
        left = [(-1.04, end * 0.5), (-1.1, end), (-0.5, end + 0.1)]
        right = [(0.5, end + 0.1), (1.1, end), (1.04, end * 0.5)]
        down = np.array([*left, *right])
        arc = CIRCLE[16:] * (1.0, 1 + lift)
        pen.shape(np.concatenate([arc, down[::-1]]) * (wide, 1), shade, -0.3)


def _hair(pen, person, rng):
    if person.style == "bald":
        return
    style = STYLES[person.style]
    outer = _top_of_hair(person.width, style.lift)
    part = person.parting if person.style in ("short", "bob", "long") else 0.0
    inner = _hairline(person, style, part)
    if person.style == "receding":
        for side in (slice(0, 7), slice(18, 25)):
            strip = np.concatenate([outer[side], inner[side][::-1] * (0.93, 1)])
            pen.shape(strip, person.hair, 0.05)
        return
    alpha = 190 if person.style == "buzz" else 255
    pen.shape(np.concatenate([outer, inner[::-1]]), person.hair, 0.05, alpha)
    if style.end > 0.5:
        _locks(pen, person, style.end)
    if style.curls:
        _curls(pen, person, outer, inner, rng)
    elif person.style != "buzz":
        _strands(pen, person, outer, inner, part, rng)


def _top_of_hair(width, lift):
    """Points (25, 2) of the edge of the hair over the skull, from ear to ear."""
    turn = np.linspace(np.pi * 1.02, np.pi * 1.98, 25)
    up = np.clip(-np.sin(turn), 0, 1) ** 0.4
    wide = width + (0.05 + 0.4 * lift) * up
    x = np.sign(np.cos(turn)) * np.abs(np.cos(turn)) ** 0.9 * wide
    return np.stack([x, np.sin(turn) * (1 + lift * up)], 1)


def _hairline(person, style, part):
    """Points (25, 2) of the edge of the hair on the forehead, from ear to ear; parted at `part`."""
    s = np.linspace(-1, 1, 25)
    line = style.middle + (style.temple - style.middle) * np.abs(s - 0.6 * part) ** 2.2
    line = np.where(np.abs(s) > 0.9, np.maximum(line, -0.02), line)  # down to the ears
    if person.style == "fringe":
        line = line + 0.025 * np.cos(np.arange(25) * 2.4)
    return np.stack([s * person.width * 0.97, line], 1)


def _locks(pen, person, end):
    """Draw a lock in front of each ear, down to `end`."""
    for side in (-1, 1):
        x = side * (person.width + 0.02)
        lock = [(x * 0.93, -0.45), (x * 1.04, 0.0), (x * 1.06, end * 0.5), (x * 1.02, end)]
        pen.stroke(lock, (0.10, 0.22, 0.24, 0.06), person.hair, 0.0)


def _curls(pen, person, outer, inner, rng):
    for i in rng.permutation(25):
        at = outer[i] + (inner[i] - outer[i]) * rng.uniform(0, 0.9)
        size = rng.uniform(0.10, 0.17)
        pen.blob(*at, size, size, person.hair * rng.uniform(0.75, 1.3), 0.05)


def _strands(pen, person, outer, inner, part, rng):
    for i in rng.permutation(np.arange(2, 23))[:14]:
        root = inner[np.clip(12 + int(6 * part), 0, 24)] * 0.4 + inner[i] * 0.6
        middle = (outer[i] + root) / 2 + (0.03, -0.03)
        strand = np.stack([outer[i] * 0.98, middle, inner[i]])
        tint = person.hair * rng.choice((0.7, 1.35)) + 6
        pen.stroke(strand, (0.004, 0.026, 0.004), tint, 0.05, alpha=150)


def _hat(pen, person, kind, colour):
    turn = np.linspace(np.pi, 2 * np.pi, 25)
    wide = person.width + 0.10
    high = 0.92 if kind == "beanie" else 0.78
    dome = np.stack([np.cos(turn) * wide, np.sin(turn) * high - 0.42], 1)
    pen.shape(dome, colour, 0.02)
    pen.stroke([(0, -1.2), (0.02, -0.8), (0, -0.45)], 0.02, colour * 0.8, 0.1)
    if kind == "beanie":
        brim = [(-wide - 0.02, -0.42), (0, -0.36), (wide + 0.02, -0.42)]
        pen.stroke(brim, 0.24, colour * 0.82, 0.05)
        pen.blob(0, -1.38, 0.17, 0.16, colour * 1.15)
    elif kind == "cap":
        arc = np.stack([0.9 * wide * ACROSS, -0.40 - 0.10 * (1 - ACROSS**2)], 1)
        down = np.stack([0 * ACROSS, 0.24 * (1 - ACROSS**4)], 1)
        peak = np.concatenate([arc, arc[::-1] * (1.05, 1) + down])
        pen.shape(peak, colour * 0.7, 0.3)
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
        ear = side * person.width
        pen.shape([(far, -0.12), (ear, -0.09), (ear, -0.05), (far, -0.08)], rim, 0.3)
        glint = [(side * person.eye_gap - 0.14, 0.0), (side * person.eye_gap - 0.04, -0.18)]
        pen.stroke(glint, 0.035, WHITE, 0.45, alpha=60)
    inner = person.eye_gap - 0.215
    pen.stroke([(-inner, -0.10), (0, -0.13), (inner, -0.10)], 0.034, rim, 0.48)


class Spot(NamedTuple):
    """A soft light or shadow on a face, in face units."""

    xy: tuple[float, float]
    depth: float
    radii: tuple[float, float]
    amount: float  # negative: a shadow


SPOTS = (
    Spot((0.0, 1.28), 0.0, (0.62, 0.30), -0.30),  # under the chin
    Spot((-0.33, -0.16), 0.3, (0.24, 0.14), -0.12),
    Spot((0.33, -0.16), 0.3, (0.24, 0.14), -0.12),
    Spot((0.0, 0.42), 0.4, (0.18, 0.08), -0.12),  # under the nose
    Spot((0.0, 0.74), 0.3, (0.20, 0.07), -0.10),  # under the lip
    Spot((0.0, -0.50), 0.3, (0.45, 0.25), 0.08),
    Spot((0.0, 0.10), 0.5, (0.10, 0.30), 0.08),
    Spot((-0.40, 0.22), 0.3, (0.18, 0.16), 0.07),
    Spot((0.40, 0.22), 0.3, (0.18, 0.16), 0.07),
)


def _shade(pen, rng):
    """An image of SIZE pixels, float32: the factor of brightness under a lamp from one side."""
    pixels = (np.arange(COARSE) + 0.5) * SIZE / COARSE * FINE
    x, y = np.meshgrid(pixels, pixels)
    lamp = rng.choice((-1, 1)) * rng.uniform(0.3, 1)
    far_side = Spot((-0.72 * lamp, 0.2), 0.0, (0.38, 0.95), -0.32 * abs(lamp))
    near_side = Spot((0.45 * lamp, 0.0), 0.2, (0.35, 0.7), 0.10 * abs(lamp))
    shade = rng.uniform(0.86, 1.1) + 0.10 * lamp * (x / x.max() - 0.5) + 0.12 * (0.5 - y / y.max())
    for spot in (*SPOTS, far_side, near_side):
        at_x, at_y = pen.place([spot.xy], spot.depth)[0]
        radius_x, radius_y = np.array(spot.radii) * pen.unit
        away = -(((x - at_x) / radius_x) ** 2) - ((y - at_y) / radius_y) ** 2
        shade += spot.amount * np.exp(away)
    image = Image.fromarray(shade.astype(np.float32))
    return image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)


def _develop(image, pen, rng):
    """`image` under a lamp from one side, with soft shadows on the face, a tint, and grain."""
    shade = np.asarray(_shade(pen, rng))
    warmth = rng.uniform(-0.05, 0.06)
    tint = np.array([1 + warmth, 1, 1 - warmth], dtype=np.float32)
    grain = rng.uniform(2.5, 6.5) * rng.standard_normal((SIZE, SIZE), dtype=np.float32)
    pixels = np.asarray(image, dtype=np.float32) * shade[..., None] * tint + grain[..., None]
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _between(colours, t):
    """The colour at `t`, 0 to n - 1, between the neighbours in `colours`, (n, 3)."""
    low = min(int(t), len(colours) - 2)
    return colours[low] + (t - low) * (np.asarray(colours[low + 1]) - colours[low])


def _rgba(colour, alpha=255):
    """The tuple (red, green, blue, alpha), 0 to 255 each, that Pillow takes."""
    red, green, blue = [min(255, max(0, int(value))) for value in colour]
    return red, green, blue, int(alpha)
