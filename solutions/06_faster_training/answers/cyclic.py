"""Known mistakes of exercise cyclic, and right answers in other styles."""

import math

from course.checks.engine import alternative, mistake


def _known(mode):
    if mode not in ("triangular", "triangular2"):
        raise ValueError(mode)


def _height(step, half):
    return 1 - abs(step % (2 * half) / half - 1)


@mistake("cyclic", "The learning rate jumps from high to low. It falls in as many steps as it rose.")
def sawtooth(step, half, low, high, mode="triangular"):
    _known(mode)
    triangle, place = divmod(step, half)
    return low + (high - low) * place / half / (2**triangle if mode == "triangular2" else 1)


@mistake("cyclic", "`half` is taken for a whole triangle. It is the way up alone; the way down takes as many steps.")
def half_is_the_period(step, half, low, high, mode="triangular"):
    _known(mode)
    divisor = 2 ** (step // half) if mode == "triangular2" else 1
    return low + (high - low) * _height(step, half / 2) / divisor


@mistake("cyclic", "triangular2 halves the learning rate, `low` too. Halve the height above low alone.")
def halves_all(step, half, low, high, mode="triangular"):
    _known(mode)
    value = low + (high - low) * _height(step, half)
    return value / 2 ** (step // (2 * half)) if mode == "triangular2" else value


@mistake("cyclic", "The first triangle of triangular2 is already halved. Only those after it are.")
def halved_from_the_first(step, half, low, high, mode="triangular"):
    _known(mode)
    divisor = 2 ** (1 + step // (2 * half)) if mode == "triangular2" else 1
    return low + (high - low) * _height(step, half) / divisor


@mistake("cyclic", "triangular2 halves at each top and each bottom. Halve once per triangle, of 2 * half steps.")
def halves_at_each_turn(step, half, low, high, mode="triangular"):
    _known(mode)
    divisor = 2 ** (step // half) if mode == "triangular2" else 1
    return low + (high - low) * _height(step, half) / divisor


@mistake(
    "cyclic", "The heights of triangular2 are 1, 1/2, 1/3, ... Each is half the one before: divide by a power of 2."
)
def divides_by_the_number(step, half, low, high, mode="triangular"):
    _known(mode)
    divisor = 1 + step // (2 * half) if mode == "triangular2" else 1
    return low + (high - low) * _height(step, half) / divisor


@mistake("cyclic", "The triangles begin at the top. They begin at low.")
def begins_high(step, half, low, high, mode="triangular"):
    _known(mode)
    divisor = 2 ** (step // (2 * half)) if mode == "triangular2" else 1
    return low + (high - low) * (1 - _height(step, half)) / divisor


@mistake("cyclic", "An unknown mode is taken for one of the two. Raise ValueError, so that a misspelling is noticed.")
def any_mode(step, half, low, high, mode="triangular"):
    divisor = 2 ** (step // (2 * half)) if mode == "triangular2" else 1
    return low + (high - low) * _height(step, half) / divisor


@alternative("cyclic")
def as_in_the_paper(step, half, low, high, mode="triangular"):
    scale = {"triangular": lambda cycle: 1.0, "triangular2": lambda cycle: 1 / 2 ** (cycle - 1)}
    if mode not in scale:
        raise ValueError(f"unknown mode {mode}")
    cycle = math.floor(1 + step / (2 * half))
    x = abs(step / half - 2 * cycle + 1)
    return low + (high - low) * max(0.0, 1 - x) * scale[mode](cycle)


@alternative("cyclic")
def up_or_down(step, half, low, high, mode="triangular"):
    if mode == "triangular2":
        while step >= 2 * half:
            step, high = step - 2 * half, (low + high) / 2
    elif mode != "triangular":
        raise ValueError(mode)
    place = step % (2 * half)
    steps_from_the_bottom = place if place < half else 2 * half - place
    return low + (high - low) * steps_from_the_bottom / half
