"""Known mistakes of exercise cyclic, and right answers in other styles."""

import math

from course.checks.known_answers import alternative

MISTAKES = {
    "sawtooth": (
        "The learning rate jumps from high to low. It falls in as many steps as it rose.",
        ("2 * half", "half"),
        ("1 - abs(place / half - 1)", "place / half"),
    ),
    "half_is_the_period": (
        "`half` is taken for a whole triangle. It is the way up alone; the way down takes as many steps.",
        ("### BEGIN SOLUTION", "half = half / 2"),
    ),
    "halves_all": (
        "triangular2 halves the learning rate, `low` too. Halve the height above low alone.",
        ("low + (high - low) * height /", "(low + (high - low) * height) /"),
    ),
    "halved_from_the_first": (
        "The first triangle of triangular2 is already halved. Only those after it are.",
        ("2**triangle", "2 ** (1 + triangle)"),
    ),
    "halves_at_each_turn": (
        "triangular2 halves at each top and each bottom. Halve once per triangle, of 2 * half steps.",
        ("2**triangle", "2 ** (step // half)"),
    ),
    "divides_by_the_number": (
        "The heights of triangular2 are 1, 1/2, 1/3, ... Each is half the one before: divide by a power of 2.",
        ("2**triangle", "1 + triangle"),
    ),
    "begins_high": ("The triangles begin at the top. They begin at low.", ("1 - abs", "abs")),
    "any_mode": (
        "An unknown mode is taken for one of the two. Raise ValueError, so that a misspelling is noticed.",
        ('mode not in ("triangular", "triangular2")', "False"),
    ),
}


@alternative
def as_in_the_paper(step, half, low, high, mode="triangular"):
    scale = {"triangular": lambda cycle: 1.0, "triangular2": lambda cycle: 1 / 2 ** (cycle - 1)}
    if mode not in scale:
        raise ValueError(f"unknown mode {mode}")
    cycle = math.floor(1 + step / (2 * half))
    x = abs(step / half - 2 * cycle + 1)
    return low + (high - low) * max(0.0, 1 - x) * scale[mode](cycle)


@alternative
def up_or_down(step, half, low, high, mode="triangular"):
    if mode == "triangular2":
        while step >= 2 * half:
            step, high = step - 2 * half, (low + high) / 2
    elif mode != "triangular":
        raise ValueError(mode)
    place = step % (2 * half)
    steps_from_the_bottom = place if place < half else 2 * half - place
    return low + (high - low) * steps_from_the_bottom / half
