"""Known mistakes of exercise shares_memory, and right answers in other styles."""

import numpy as np
import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "same_first_address": (
        "Only the addresses of the first values are compared. A part of `source` that begins later shares memory, too.",
        ("made[...] = made + 1", "return torch.as_tensor(made).data_ptr() == torch.as_tensor(source).data_ptr()"),
    ),
    "equal_values": (
        "Equal values are taken for shared memory. A copy is equal, too: change one, look at the other.",
        ("made[...] = made + 1", "return torch.equal(torch.as_tensor(made).cpu(), torch.as_tensor(source))"),
    ),
    "leaves_the_change": ("`source` keeps the changed values. Write the old ones back.", ("source[...] = before", "")),
    "same_object": (
        "The identity of the objects is compared. Two tensors may be different objects and lie in the same memory.",
        ("made[...] = made + 1", "return made is source"),
    ),
    "not_a_bool": (
        "The result is a tensor or a NumPy bool. Return a Python bool: bool(...).",
        ("bool((source != before).any())", "(source != before).any()"),
    ),
    "all_values": (
        "`.all()` asks whether every value changed. One shared value is enough: `.any()`.",
        (".any()", ".all()"),
    ),
    "nothing_in_place": (
        "`source` and `before` never differ. Either the result is not changed in place (`made = made + 1` makes a new "
        "one; write `made[...] = made + 1`), or `before` is `source` itself and no copy.",
        ("made[...] =", "made ="),
    ),
    "writes_zero": (
        "0 is written, which changes nothing where `source` holds 0 already. Write what differs from each value: "
        "made + 1.",
        ("made + 1", "0"),
    ),
    "before_is_source": (
        "`before = source` copies nothing, so the two never differ and the old values are lost. Use .copy() or "
        ".clone().",
        ("source.copy() if isinstance(source, np.ndarray) else source.clone()", "source"),
    ),
    "converts_twice": (
        "`convert` is called more than once. Call it once, and look at that result.",
        ("made = convert", "convert(source)\n    made = convert"),
    ),
}


@alternative
def by_ranges_of_addresses(convert, source):
    def ends(x):
        x = torch.as_tensor(x)
        last = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
        return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size(), x.device

    (a, b, here), (c, d, there) = ends(source), ends(convert(source))
    return here == there and a < d and c < b


@alternative
def by_writing_zeros_and_ones(convert, source):
    copy = np.copy if isinstance(source, np.ndarray) else torch.clone
    made, before = convert(source), copy(source)
    seen = []
    for value in (0, 1):
        made[...] = value
        seen.append(copy(source))
    source[...] = before
    return not (seen[0] == seen[1]).all().item()
