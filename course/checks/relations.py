"""In which way a value is off: two pieces of plain data that differ -> *a sentence that is true of them*.

A sentence speaks of the values, not of their cause.  Many numbers in one relation are no accident; of a single number
only what hardly happens by chance is said, and nothing where two relations hold.  `apart` sees to it that the two texts
of a report are never the same.
"""

import torch

from course.checks.compare import differs, tolerance

MANY = 3  # so many different numbers in one relation are no accident
LARGEST = 2e9  # a larger ratio, as of memory that nobody has written to, is not made whole
CLOSE = 1e-4  # relative: numbers in float32 as one relation of many
NEAR = 1e-5  # and of one
FACTORS = {2**k for k in (*range(1, 21), 30)} | {10**k for k in range(1, 10)} | {*range(2, 17)} | {60, 3600}
ROUNDED = {torch.float32: 1e-6, torch.bfloat16: 3e-2, torch.float16: 5e-3}  # to what, and how far that may lead
MOST = 100_000  # numbers of a value that is looked at
EXTREME = 1e150  # larger numbers are left alone


def relation(seen, expected) -> str | None:
    """A sentence on how `seen` follows from `expected`; None if no relation is known that holds."""
    if _is_readable(seen) and _is_readable(expected) and seen.dim() and expected.dim():
        found = _of_arrangement(seen.cpu(), expected.cpu())
        if found or seen.shape != expected.shape:
            return found
    yours, right = numbers_in(seen), numbers_in(expected)
    if not yours or not right or len(yours) != len(right) or max(map(abs, yours + right)) >= EXTREME:
        return None
    yours, right = (torch.tensor(numbers, dtype=torch.float64) for numbers in (yours, right))
    off = ~torch.isclose(yours, right, rtol=CLOSE, atol=1e-9)
    if not off.any():
        return _of_rounding(yours, right)
    found = _of_factor(yours[off], right[off])
    each = "Each value that differs" if len(off) > 1 else "Yours"
    one = "the expected one" if len(off) > 1 else "the expected value"
    return f"{each} is {found.format(one)}." if found else _of_order(yours, right) or _of_rounding(yours, right)


def numbers_in(value):
    """The numbers in `value`, in order, as a list; None if anything else is in it, or one that is not finite."""
    if isinstance(value, torch.Tensor):
        fine = _is_readable(value) and value.dtype != torch.bool and value.isfinite().all()
        return value.flatten().tolist() if fine else None
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        found = [numbers_in(item) for item in value]
        return None if None in found else [number for part in found for number in part]
    return [value] if type(value) in (int, float) and -EXTREME < value < EXTREME else None


def _is_readable(value):
    """Whether `value` is a tensor of real numbers that can be looked at, not one of the meta device or a sparse one."""
    if not isinstance(value, torch.Tensor) or value.device.type == "meta" or value.layout != torch.strided:
        return False
    return not value.is_complex() and not value.is_quantized and value.numel() <= MOST


def _of_factor(yours, right):
    """By which number all of `right` is multiplied, with {} where the expected number is named; None if by none.

    Of one or two numbers, which must not be round ones, only a factor in FACTORS is told.
    """
    if (right == 0).any() or (yours == 0).any():
        return None
    few = len({*right.tolist()}) < MANY
    close = NEAR if few else CLOSE
    ratio = float((yours / right).median())
    sign, times, over = "-" if ratio < 0 else "", round(min(abs(ratio), LARGEST)), round(min(abs(1 / ratio), LARGEST))
    part = f"{sign}1/{over} of {{}}" if times < over else f"{sign}{times} times {{}}"
    whole = float(f"{sign}1") * (1 / over if times < over else times)
    if whole not in (0, 1) and _same(yours, whole * right, close):
        is_rare = whole == -1 or max(times, over) in FACTORS and min(map(digits, right.tolist())) > 2
        return (part if abs(whole) != 1 else "{} with the other sign") if is_rare or not few else None
    return f"{ratio:.5g} times {{}}" if not few and ratio != 1 and _same(yours, ratio * right, close) else None


def digits(number):
    """How many digits a number has, without zeros at its ends."""
    return len(f"{abs(number):.6e}".partition("e")[0].replace(".", "").rstrip("0"))


def _same(a, b, close):
    return bool(torch.isclose(a, b, rtol=close, atol=1e-9).all())


def _of_arrangement(seen, expected):
    """Of two tensors: whether the same values stand in another shape, or along other dimensions."""
    if seen.dtype != expected.dtype or seen.numel() != expected.numel() or len(seen.unique()) < MANY:
        return None
    if seen.dim() == expected.dim() == 2 and differs(seen.T.contiguous(), expected) is None:
        return "Yours is the expected tensor, transposed."
    if seen.shape != expected.shape and differs(seen.reshape(expected.shape), expected) is None:
        return "The values are right, only their shape is not."
    return None


def _of_order(yours, right):
    """Of two rows of numbers: whether the same stand in another order, or one place further."""
    if len({*right.tolist()}) <= MANY:
        return None
    if _same(yours[1:], right[:-1], CLOSE):
        return "Each value is the one that is expected one place earlier."
    if _same(yours[:-1], right[1:], CLOSE):
        return "Each value is the one that is expected one place later."
    if _same(yours.sort().values, right.sort().values, NEAR):
        return "Yours are the expected values in another order."
    return None


def _of_rounding(yours, right):
    """Whether `yours` are the numbers `right` as a shorter format holds them, which hold more digits themselves."""
    few = len({*right.tolist()}) < MANY
    for dtype, error in list(ROUNDED.items())[: 1 if few else None]:  # a single number may be that short by accident
        rounded = torch.equal(yours.to(dtype).double(), yours) and not torch.equal(right.to(dtype).double(), right)
        if rounded and _same(yours, right, error):
            return f"Yours has the digits of {str(dtype)[6:]}. Is a part computed or kept in it?"
    return None


def expected_elsewhere(fact, seen, expected) -> str | None:
    """A sentence if `seen`, what was found of `fact`, is what {fact: value} `expected` holds of another fact."""
    numbers = numbers_in(seen)
    if not numbers or len({*numbers}) < MANY and not any(digits(number) > 3 for number in numbers):
        return None
    same = (other for other, value in expected.items() if other != fact and differs(seen, value) is None)
    return next((f'Yours is what is expected under "{other}".' for other in same), None)


def apart(lines, seen, expected):
    """The `lines` of a difference, "yours" and "expected" with as many digits as make their texts differ."""
    yours, right = (line.partition(" ")[2].strip() for line in lines[-2:]) if len(lines) > 1 else ("", None)
    if yours.partition(" at [")[0] != right:
        return lines
    where, texts = yours.removeprefix(right), _different_texts(*first_pair(seen, expected))
    return [*lines[:-2], f"yours    {texts[0]}{where}", f"expected {texts[1]}"]


def first_pair(seen, expected):
    """The first two numbers, or other values, in which `seen` and `expected` differ."""
    kinds = (list, tuple)
    if isinstance(expected, dict) and isinstance(seen, dict) and seen.keys() == expected.keys():
        seen, expected = [seen[key] for key in expected], list(expected.values())
    if isinstance(expected, kinds) and isinstance(seen, kinds) and len(seen) == len(expected):
        found = (first_pair(*pair) for pair in zip(seen, expected, strict=True) if differs(*pair))
        return next(found, (seen, expected))
    if isinstance(expected, torch.Tensor) and isinstance(seen, torch.Tensor) and seen.shape == expected.shape:
        relative, absolute = tolerance(expected.dtype, expected.device)
        off = ~torch.isclose(seen, expected.to(seen), rtol=relative, atol=absolute, equal_nan=True)
        return seen[off][0].item(), expected[off][0].item()
    return seen, expected


def _different_texts(seen, expected):
    if type(seen) in (int, float) and type(expected) in (int, float):
        for digits in range(7, 18):
            texts = f"{seen:.{digits}g}", f"{expected:.{digits}g}"
            if texts[0] != texts[1]:
                return texts
    texts = repr(seen), repr(expected)
    if texts[0] == texts[1]:
        return tuple(f"{text[:60]} of type {type(v).__name__}" for text, v in zip(texts, (seen, expected), strict=True))
    pairs = enumerate(zip(*texts, strict=False))
    begin = max(0, next((i for i, (a, b) in pairs if a != b), min(map(len, texts))) - 30)
    return tuple(f"{'... ' if begin else ''}{text[begin:][:60]}{' ...' if text[begin:][60:] else ''}" for text in texts)
