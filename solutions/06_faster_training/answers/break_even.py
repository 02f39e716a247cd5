"""Known mistakes of exercise break_even, and right answers in other styles."""

import math

from course.checks.known_answers import alternative

MISTAKES = {
    "by_the_new_step": (
        "The compile time was divided by the time of a step. What pays it back is the time saved per step.",
        ("(before - after)", "after"),
    ),
    "by_the_new_step_always": (
        "The compile time was divided by the time of a step, also where nothing is saved. Divide by the time saved; "
        "without any, return math.inf.",
        ("after >= before", "False"),
        ("(before - after)", "after"),
    ),
    "by_the_old_step": (
        "The compile time was divided by the old time of a step, not by the time saved per step.",
        ("(before - after)", "before"),
    ),
    "rounded_down": (
        "Rounded down: after so many steps something is still owed. Round up.",
        ("math.ceil", "math.floor"),
    ),
    "rounded": (
        "Rounded to the nearest number: below one half, something is still owed. Round up.",
        ("math.ceil", "round"),
    ),
    "not_rounded": ("Not rounded: a part of a step saves nothing. Round up to whole steps.", ("math.ceil", "")),
    "one_too_many": (
        "A step too many: where the time saved equals the compile time, it is paid back.",
        ("math.ceil", "1 + math.floor"),
    ),
    "one_too_many_but_of_nothing": (
        "A step too many: where the time saved equals the compile time, it is paid back.",
        ("math.ceil", "(compile_seconds > 0) + math.floor"),
    ),
    "divides_by_zero": (
        "Steps that are no faster divide by zero. They never pay back: return math.inf.",
        ("after >= before", "after > before"),
    ),
    "negative": (
        "Slower steps give a negative number of steps. They never pay back: return math.inf.",
        ("after >= before", "after == before"),
    ),
    "minus_one": (
        "No number of steps is -1. Never is math.inf, which compares rightly with every number.",
        ("return math.inf", "return -1"),
    ),
}


@alternative
def by_floor_division(compile_seconds, before, after):
    saved = before - after
    return -(-compile_seconds // saved) if saved > 0 else float("inf")


@alternative
def by_counting(compile_seconds, before, after):
    if after >= before:
        return math.inf
    steps = int(compile_seconds / (before - after))
    while steps * before < compile_seconds + steps * after:
        steps += 1
    return steps
