"""In which way a value is off: two pieces of plain data that differ -> *a Relation that holds*.

A Relation speaks of the values, not of their cause. Many numbers are not in one relation by chance;
a relation of a single number counts only if chance hardly explains it. report.py words it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import torch

from course.engine.compare import differs

MANY = 3  # so many different numbers are not in one relation by chance
CLOSE = 1e-4  # relative: numbers in float32 as one relation of many
NEAR = 1e-5  # and of one
# the factors that are believed of one or two numbers
FACTORS = (
    {2**k for k in (*range(1, 21), 30)}
    | {10**k for k in range(1, 10)}
    | {*range(2, 17)}
    | {60, 3600}
)
# a dtype, and how far rounding to it may lead; the first one alone for one or two numbers
ROUNDING_ERRORS = {
    torch.float32: 1e-6,
    torch.bfloat16: 3e-2,
    torch.float16: 5e-3,
}
NUMBERS_MAX = 100_000  # of a value that is looked at
NUMBER_MAX = 1e150  # larger numbers are left alone
DIGITS_MIN = 3  # an expected number with fewer digits may be a multiple by accident


class RelationKind(Enum):
    """How a wrong value follows from the expected one."""

    TRANSPOSED = "transposed"
    RESHAPED = "reshaped"  # the right values in another shape
    FACTOR = "factor"
    ONE_PLACE_EARLIER = "one place earlier"  # each value is expected one place earlier
    ONE_PLACE_LATER = "one place later"
    REORDERED = "reordered"
    ROUNDED = "rounded"
    EXPECTED_ELSEWHERE = "expected elsewhere"  # it is right for another fact


@dataclass(frozen=True)
class Relation:
    """How a wrong value follows from the expected one.

    Attributes:
        factor: of FACTOR; a Fraction n or 1/n where it is that exactly, else a float.
        is_of_several: of FACTOR: whether the value holds several numbers; the factor is that of
            each number that differs.
        dtype: of ROUNDED, what the values were rounded to.
        fact: of EXPECTED_ELSEWHERE, the other fact.
    """

    kind: RelationKind
    factor: Fraction | float | None = None
    is_of_several: bool = False
    dtype: torch.dtype | None = None
    fact: str = ""


def relation(seen: Any, expected: Any) -> Relation | None:
    """How `seen` follows from `expected`; None if no relation is known that holds."""
    yours_in_order = numbers_in(seen)
    right_in_order = numbers_in(expected)
    if not yours_in_order or not right_in_order or len(yours_in_order) != len(right_in_order):
        return None
    yours = torch.tensor(yours_in_order, dtype=torch.float64)
    right = torch.tensor(right_in_order, dtype=torch.float64)
    is_few = len(right.unique()) < MANY
    if _has_axes(seen) and _has_axes(expected):
        if not is_few and _is_transposed(seen, expected, yours, right):
            return Relation(RelationKind.TRANSPOSED)
        if seen.shape != expected.shape:
            is_right = not is_few and _same(yours, right, NEAR)
            return Relation(RelationKind.RESHAPED) if is_right else None
    wrong = ~torch.isclose(yours, right, rtol=CLOSE, atol=1e-9)
    if wrong.any():
        factor = _factor(yours[wrong], right[wrong])
        if factor is not None:
            return Relation(RelationKind.FACTOR, factor, is_of_several=len(wrong) > 1)
    return _order(yours, right) or _rounding(yours, right, is_few)


def expected_elsewhere(fact: str, seen: Any, expected: Mapping[str, Any]) -> Relation | None:
    """The Relation that `seen`, the value of `fact`, is what `expected` has for another fact."""
    numbers = numbers_in(seen)
    if not numbers:
        return None
    if len({*numbers}) < MANY and all(digits(number) <= 3 for number in numbers):
        return None
    for other, value in expected.items():
        if other != fact and not differs(seen, value):
            return Relation(RelationKind.EXPECTED_ELSEWHERE, fact=other)
    return None


def numbers_in(value: Any) -> list[float] | None:
    """The numbers in `value`, in order; None if it holds anything else, or one that is not finite.

    None as well for more than NUMBERS_MAX of a tensor, and for numbers beyond NUMBER_MAX.
    """
    if isinstance(value, torch.Tensor):
        return numbers_in(value.flatten().tolist()) if _is_plain(value) else None
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        numbers: list[float] = []
        for item in value:
            part = numbers_in(item)
            if part is None:
                return None
            numbers += part
        return numbers
    is_number = type(value) in (int, float) and -NUMBER_MAX < value < NUMBER_MAX
    return [value] if is_number else None


def digits(number: float) -> int:
    """How many digits a number has, without zeros at its ends."""
    mantissa = f"{abs(number):.6e}".partition("e")[0]
    return len(mantissa.replace(".", "").rstrip("0"))


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor holds a moderate number of real numbers that can be listed."""
    if tensor.device.type == "meta" or tensor.layout != torch.strided:
        return False
    if tensor.is_quantized or tensor.is_complex() or tensor.dtype == torch.bool:
        return False
    return tensor.numel() <= NUMBERS_MAX


def _has_axes(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _is_transposed(
    seen: torch.Tensor, expected: torch.Tensor, yours: torch.Tensor, right: torch.Tensor
) -> bool:
    """Whether `seen` is `expected` with its two axes exchanged; `yours`, `right` in float64."""
    if seen.dim() != 2 or seen.T.shape != expected.shape:
        return False
    return _same(yours.view(seen.shape).T, right.view(expected.shape), NEAR)


def _same(a: torch.Tensor, b: torch.Tensor, close: float) -> bool:
    return torch.allclose(a, b, rtol=close, atol=1e-9)


def _factor(yours: torch.Tensor, right: torch.Tensor) -> Fraction | float | None:
    """By which number all of `right` is multiplied to give `yours`; None if by none.

    Of one or two numbers, which must not be round ones, only a factor in FACTORS counts.
    """
    if (right == 0).any() or (yours == 0).any():
        return None
    is_few = len(right.unique()) < MANY
    ratio = float((yours / right).median())
    size = abs(ratio)
    if not 0 < size < math.inf:
        return None
    whole = round(max(size, 1 / size))
    factor = Fraction(whole) if size >= 1 else Fraction(1, whole)
    exact = math.copysign(float(factor), ratio)
    if exact != 1 and _same(yours, exact * right, NEAR if is_few else CLOSE):
        is_certain = not is_few or exact == -1 or _is_no_accident(whole, right)
        signed = factor if ratio > 0 else -factor
        return signed if is_certain else None
    if not is_few and ratio != 1 and _same(yours, ratio * right, CLOSE):
        return ratio
    return None


def _is_no_accident(factor: int, right: torch.Tensor) -> bool:
    """Whether a factor of one or two numbers is a usual one, and the numbers are not round."""
    return factor in FACTORS and min(map(digits, right.tolist())) >= DIGITS_MIN


def _order(yours: torch.Tensor, right: torch.Tensor) -> Relation | None:
    """Of two rows of numbers: whether they are the same in another order, or shifted."""
    if len(right.unique()) <= MANY:
        return None
    if _same(yours[1:], right[:-1], CLOSE):
        return Relation(RelationKind.ONE_PLACE_EARLIER)
    if _same(yours[:-1], right[1:], CLOSE):
        return Relation(RelationKind.ONE_PLACE_LATER)
    has_same_numbers = _same(yours.sort().values, right.sort().values, NEAR)
    if has_same_numbers and not _same(yours, right, CLOSE):
        return Relation(RelationKind.REORDERED)
    return None


def _rounding(yours: torch.Tensor, right: torch.Tensor, is_few: bool) -> Relation | None:
    """Whether `yours` are the numbers `right` as a shorter format holds them."""
    for dtype, error in ROUNDING_ERRORS.items():
        is_short = torch.equal(yours.to(dtype).double(), yours)
        is_right_longer = not torch.equal(right.to(dtype).double(), right)
        if is_short and is_right_longer and _same(yours, right, error):
            return Relation(RelationKind.ROUNDED, dtype=dtype)
        if is_few:  # a single number may be that short by accident
            break
    return None
