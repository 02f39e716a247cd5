"""In which way a value is off: two pieces of plain data that differ -> *a sentence that is true of
them*.

A sentence speaks of the values, not of their cause. Many numbers in one relation are no accident;
of a single number only what hardly happens by chance is said.  `distinguish` makes sure that the
two texts of a report are never the same.
"""

import math
import os

import torch

from course.engine.compare import differs, tolerance

MANY = 3  # so many different numbers in one relation are no accident
CLOSE = 1e-4  # relative: numbers in float32 as one relation of many
NEAR = 1e-5  # and of one
FACTORS = (
    {2**k for k in (*range(1, 21), 30)}
    | {10**k for k in range(1, 10)}
    | {*range(2, 17)}
    | {60, 3600}
)
# to what, and how far that may lead
ROUNDED = {
    torch.float32: 1e-6,
    torch.bfloat16: 3e-2,
    torch.float16: 5e-3,
}
MOST = 100_000  # numbers of a value that is looked at
EXTREME = 1e150  # larger numbers are left alone


def relation(seen, expected) -> str | None:
    """A sentence on how `seen` follows from `expected`; None if no relation is known that holds."""
    yours, right = numbers_in(seen), numbers_in(expected)
    if not yours or not right or len(yours) != len(right):
        return None
    yours, right = (torch.tensor(numbers, dtype=torch.float64) for numbers in (yours, right))
    is_few = len(right.unique()) < MANY
    if (
        isinstance(seen, torch.Tensor)
        and isinstance(expected, torch.Tensor)
        and seen.dim()
        and expected.dim()
    ):
        if not is_few and seen.dim() == 2 and seen.T.shape == expected.shape:
            if _same(yours.view(seen.shape).T, right.view(expected.shape), NEAR):
                return "Yours is the expected tensor, transposed."
        if seen.shape != expected.shape:
            is_right = not is_few and _same(yours, right, NEAR)
            return "The values are right, only their shape is not." if is_right else None
    off = ~torch.isclose(yours, right, rtol=CLOSE, atol=1e-9)
    if off.any() and (factor := _of_factor(yours[off], right[off])):
        each, one = ("Each value that differs", "one") if len(off) > 1 else ("Yours", "value")
        return f"{each} is {factor.format(f'the expected {one}')}."
    return _of_order(yours, right) or _of_rounding(yours, right, is_few)


def numbers_in(value):
    """The numbers in `value`, in order, as a list; None if anything else is in it, or one that is
    not finite.
    """
    if isinstance(value, torch.Tensor):
        is_plain = (
            value.device.type != "meta" and value.layout == torch.strided and value.numel() <= MOST
        )
        is_real = (
            is_plain
            and not value.is_quantized
            and not value.is_complex()
            and value.dtype != torch.bool
        )
        return numbers_in(value.flatten().tolist()) if is_real else None
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        parts = [numbers_in(item) for item in value]
        return None if None in parts else [number for part in parts for number in part]
    return [value] if type(value) in (int, float) and -EXTREME < value < EXTREME else None


def digits(number):
    """How many digits a number has, without zeros at its ends."""
    return len(f"{abs(number):.6e}".partition("e")[0].replace(".", "").rstrip("0"))


def _same(a, b, close):
    return torch.allclose(a, b, rtol=close, atol=1e-9)


def _of_factor(yours, right):
    """By which number all of `right` is multiplied, with {} where the expected number is named;
    None if by none.

    Of one or two numbers, which must not be round ones, only a factor in FACTORS is named.
    """
    if (right == 0).any() or (yours == 0).any():
        return None
    is_few = len(right.unique()) < MANY
    ratio = float((yours / right).median())
    size = abs(ratio)
    whole = round(max(size, 1 / size))
    exact = math.copysign(whole if size >= 1 else 1 / whole, ratio)
    if exact != 1 and _same(yours, exact * right, NEAR if is_few else CLOSE):
        if (
            is_few
            and exact != -1
            and not (whole in FACTORS and min(map(digits, right.tolist())) > 2)
        ):
            return None
        if exact == -1:
            return "{} with the other sign"
        return (
            f"{exact:.0f} times {{}}"
            if size >= 1
            else f"{'-' if ratio < 0 else ''}1/{whole} of {{}}"
        )
    return (
        f"{ratio:.5g} times {{}}"
        if not is_few and ratio != 1 and _same(yours, ratio * right, CLOSE)
        else None
    )


def _of_order(yours, right):
    """Of two rows of numbers: whether they are the same in another order, or one place further."""
    if len(right.unique()) <= MANY:
        return None
    for place, a, b in (("earlier", yours[1:], right[:-1]), ("later", yours[:-1], right[1:])):
        if _same(a, b, CLOSE):
            return f"Each value is the one that is expected one place {place}."
    is_same = _same(yours.sort().values, right.sort().values, NEAR) and not _same(
        yours, right, CLOSE
    )
    return "Yours are the expected values in another order." if is_same else None


def _of_rounding(yours, right, is_few):
    """Whether `yours` are the numbers `right` as a shorter format holds them, which hold more
    digits themselves.
    """
    for dtype, error in list(ROUNDED.items())[
        : 1 if is_few else None
    ]:  # a single number may be that short by accident
        rounded = torch.equal(yours.to(dtype).double(), yours) and not torch.equal(
            right.to(dtype).double(), right
        )
        if rounded and _same(yours, right, error):
            return f"Yours has the digits of {str(dtype)[6:]}. Is a part computed or kept in it?"
    return None


def expected_elsewhere(fact, seen, expected) -> str | None:
    """A sentence if `seen`, the value of `fact`, is what {fact: value} `expected` has for another
    fact.
    """
    numbers = numbers_in(seen)
    if not numbers or len({*numbers}) < MANY and not any(digits(number) > 3 for number in numbers):
        return None
    same = (
        other for other, value in expected.items() if other != fact and differs(seen, value) is None
    )
    return next((f'Yours is what is expected under "{other}".' for other in same), None)


def distinguish(lines, seen, expected):
    """The `lines` of a difference, "yours" and "expected" with enough digits that their texts
    differ.
    """
    yours, right = (
        (line.partition(" ")[2].strip() for line in lines[-2:]) if len(lines) > 1 else ("", None)
    )
    if yours.partition(" at [")[0] != right:
        return lines
    pair = _first_pair(seen, expected)
    texts = [repr(value) for value in pair]
    if texts[0] == texts[1]:
        texts = [
            f"{text[:60]} of type {type(value).__name__}"
            for text, value in zip(texts, pair, strict=True)
        ]
    else:
        begin = max(0, len(os.path.commonprefix(texts)) - 30)
        texts = [
            f"{'... ' * (begin > 0)}{t[begin:][:60]}{' ...' * (len(t) > begin + 60)}" for t in texts
        ]
    return [*lines[:-2], f"yours    {texts[0]}{yours.removeprefix(right)}", f"expected {texts[1]}"]


def _first_pair(seen, expected):
    """The first two numbers, or other values, in which `seen` and `expected` differ."""
    kinds = (list, tuple)
    if isinstance(expected, dict) and isinstance(seen, dict) and seen.keys() == expected.keys():
        seen, expected = [seen[key] for key in expected], list(expected.values())
    if isinstance(expected, kinds) and isinstance(seen, kinds) and len(seen) == len(expected):
        pairs = (_first_pair(*pair) for pair in zip(seen, expected, strict=True) if differs(*pair))
        return next(pairs, (seen, expected))
    if (
        isinstance(expected, torch.Tensor)
        and isinstance(seen, torch.Tensor)
        and seen.shape == expected.shape
    ):
        relative, absolute = tolerance(expected.dtype, expected.device)
        off = ~torch.isclose(seen, expected.to(seen), rtol=relative, atol=absolute, equal_nan=True)
        return seen[off][0].item(), expected[off][0].item()
    return seen, expected
