"""Known mistakes of exercise flushed_share, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "share_of_all": (
        "Values that were zero before are counted as well. Take the share of the non-zero values.",
        ("len(alive), 1", "len(values), 1"),
    ),
    "below_normal": (
        "Values below 6.1e-5, the smallest normal number, are counted as lost; fp16 keeps them as subnormals. Cast.",
        (
            "(alive * loss_scale).half() == 0",
            "(alive * loss_scale).abs() < torch.finfo(torch.float16).tiny",
        ),
    ),
    "cast_first": (
        "The cast comes before the multiplication, and no scale restores what is zero by then. Multiply in float32.",
        ("(alive * loss_scale).half()", "alive.half() * loss_scale"),
    ),
    "surviving_share": (
        "The share that survives is returned. Count the zeros after the cast.",
        (".half() == 0", ".half() != 0"),
    ),
    "below_the_smallest": (
        "Values below 2^-24 are counted as zero, but rounding keeps those above half of it. Cast, then count zeros.",
        ("(alive * loss_scale).half() == 0", "(alive * loss_scale).abs() < 2.0**-24"),
    ),
    "cast_to_bf16": (
        "The cast goes to bf16, whose range is far wider than that of fp16. Use .half().",
        (".half()", ".bfloat16()"),
    ),
    "zeros_after_the_scale": (
        "Values that the scale makes 0 in float32 are not counted. Choose the non-zero ones before you multiply.",
        ("values[values != 0]", "values[values * loss_scale != 0]"),
    ),
}


@mistake(
    "The shares of the tensors are averaged. A large tensor has more values: count over all of them together."
)
def mean_of_shares(gradients, loss_scale=1.0):
    shares = []
    for g in gradients:
        alive = g[g != 0]
        shares.append(((alive * loss_scale).half() == 0).sum().item() / max(len(alive), 1))
    return sum(shares) / len(shares)


@alternative
def tensor_by_tensor(gradients, loss_scale=1.0):
    before = sum(g.count_nonzero().item() for g in gradients)
    after = sum((g * loss_scale).to(torch.float16).count_nonzero().item() for g in gradients)
    return 1 - after / before if before else 0.0


@alternative
def by_the_limit(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients]).abs()
    lost = (values > 0) & (
        values * loss_scale <= 2.0**-25
    )  # half of the smallest subnormal rounds to even, which is 0
    return float(lost.sum()) / max(1, int((values > 0).sum()))
