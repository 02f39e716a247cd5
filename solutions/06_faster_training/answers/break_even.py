"""Known mistakes of exercise break_even, and right answers in other styles."""

import math

from course.checks.engine import alternative, mistake


@mistake(
    "break_even", "The compile time was divided by the time of a step. What pays it back is the time saved per step."
)
def by_the_new_step(compile_seconds, before, after):
    return math.ceil(compile_seconds / after) if after < before else math.inf


@mistake(
    "break_even",
    "The compile time was divided by the time of a step, also where nothing is saved. Divide by the time saved; "
    "without any, return math.inf.",
)
def by_the_new_step_always(compile_seconds, before, after):
    return math.ceil(compile_seconds / after)


@mistake("break_even", "The compile time was divided by the old time of a step, not by the time saved per step.")
def by_the_old_step(compile_seconds, before, after):
    return math.ceil(compile_seconds / before) if after < before else math.inf


@mistake("break_even", "Rounded down: after so many steps something is still owed. Round up.")
def rounded_down(compile_seconds, before, after):
    return math.floor(compile_seconds / (before - after)) if after < before else math.inf


@mistake("break_even", "Rounded to the nearest number: below one half, something is still owed. Round up.")
def rounded(compile_seconds, before, after):
    return round(compile_seconds / (before - after)) if after < before else math.inf


@mistake("break_even", "Not rounded: a part of a step saves nothing. Round up to whole steps.")
def not_rounded(compile_seconds, before, after):
    return compile_seconds / (before - after) if after < before else math.inf


@mistake("break_even", "A step too many: where the time saved equals the compile time, it is paid back.")
def one_too_many(compile_seconds, before, after):
    return math.floor(compile_seconds / (before - after)) + 1 if after < before else math.inf


@mistake("break_even", "A step too many: where the time saved equals the compile time, it is paid back.")
def one_too_many_but_of_nothing(compile_seconds, before, after):
    if compile_seconds == 0 or after >= before:
        return 0 if after < before else math.inf
    return int(compile_seconds / (before - after)) + 1


@mistake("break_even", "Steps that are no faster divide by zero. They never pay back: return math.inf.")
def divides_by_zero(compile_seconds, before, after):
    return math.ceil(compile_seconds / (before - after)) if after <= before else math.inf


@mistake("break_even", "Slower steps give a negative number of steps. They never pay back: return math.inf.")
def negative(compile_seconds, before, after):
    return math.inf if before == after else math.ceil(compile_seconds / (before - after))


@mistake("break_even", "No number of steps is -1. Never is math.inf, which compares rightly with every number.")
def minus_one(compile_seconds, before, after):
    return math.ceil(compile_seconds / (before - after)) if after < before else -1


@alternative("break_even")
def by_floor_division(compile_seconds, before, after):
    saved = before - after
    return -(-compile_seconds // saved) if saved > 0 else float("inf")


@alternative("break_even")
def by_counting(compile_seconds, before, after):
    if after >= before:
        return math.inf
    steps = int(compile_seconds / (before - after))
    while steps * before < compile_seconds + steps * after:
        steps += 1
    return steps
