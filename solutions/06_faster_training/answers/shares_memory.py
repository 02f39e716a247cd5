"""Known mistakes of exercise shares_memory, and right answers in other styles."""

import numpy as np
import torch

from course.checks.engine import alternative, mistake


def _copy(x):
    return x.copy() if isinstance(x, np.ndarray) else x.clone()


def _address(x):
    return x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr()


@mistake(
    "shares_memory",
    "Only the addresses of the first values are compared. A part of `source` that begins later shares memory, too.",
)
def same_first_address(convert, source):
    return _address(convert(source)) == _address(source)


@mistake(
    "shares_memory", "Equal values are taken for shared memory. A copy is equal, too: change one, look at the other."
)
def equal_values(convert, source):
    made = torch.as_tensor(convert(source))
    return bool(made.numel() == torch.as_tensor(source).numel() and (made.cpu() == torch.as_tensor(source)).all())


@mistake("shares_memory", "`source` keeps the changed values. Write the old ones back.")
def leaves_the_change(convert, source):
    made, before = convert(source), _copy(source)
    made[...] = made + 1
    return bool((source != before).any())


@mistake(
    "shares_memory",
    "The identity of the objects is compared. Two tensors may be different objects and lie in the same memory.",
)
def same_object(convert, source):
    return convert(source) is source


@mistake(
    "shares_memory", "The kind of number returned is not bool: `.any()` gives a tensor or a NumPy bool. Use bool(...)."
)
def not_a_bool(convert, source):
    made, before = convert(source), _copy(source)
    made[...] = made + 1
    shared = (source != before).any()
    source[...] = before
    return shared


@mistake("shares_memory", "`.all()` asks whether every value changed. One shared value is enough: `.any()`.")
def all_values(convert, source):
    made, before = convert(source), _copy(source)
    made[...] = made + 1
    shared = bool((source != before).all())
    source[...] = before
    return shared


@mistake(
    "shares_memory",
    "`source` and `before` never differ. Either the result is not changed in place (`made = made + 1` makes a new one; "
    "write `made[...] = made + 1`), or `before` is `source` itself and no copy.",
)
def nothing_in_place(convert, source):
    made, before = convert(source), _copy(source)
    made = made + 1
    return bool((source != before).any())


@mistake(
    "shares_memory",
    "`before = source` copies nothing, so the two never differ and the old values are lost. Use .copy() or .clone().",
)
def before_is_source(convert, source):
    made, before = convert(source), source
    made[...] = made + 1
    shared = bool((source != before).any())
    source[...] = before
    return shared


@mistake("shares_memory", "`convert` is called more than once. Call it once, and look at that result.")
def converts_twice(convert, source):
    convert(source)
    made, before = convert(source), _copy(source)
    made[...] = made + 1
    shared = bool((source != before).any())
    source[...] = before
    return shared


@alternative("shares_memory")
def by_ranges_of_addresses(convert, source):
    def ends(x):
        x = torch.as_tensor(x)
        last = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
        return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size(), x.device

    (a, b, here), (c, d, there) = ends(source), ends(convert(source))
    return here == there and a < d and c < b


@alternative("shares_memory")
def by_writing_zeros_and_ones(convert, source):
    made, before = convert(source), _copy(source)
    seen = []
    for value in (0, 1):
        made[...] = value
        seen.append(_copy(source))
    source[...] = before
    return not (seen[0] == seen[1]).all().item()
