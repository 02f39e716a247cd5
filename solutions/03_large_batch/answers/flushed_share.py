"""Known mistakes of exercise flushed_share, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


@mistake("flushed_share", "Values that were zero before are counted as well. Take the share of the non-zero values.")
def share_of_all(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients])
    flushed = (values != 0) & ((values * loss_scale).half() == 0)
    return flushed.sum().item() / len(values)


@mistake(
    "flushed_share",
    "The shares of the tensors are averaged. A large tensor has more values: count over all of them together.",
)
def mean_of_shares(gradients, loss_scale=1.0):
    shares = []
    for g in gradients:
        alive = g[g != 0]
        shares.append(((alive * loss_scale).half() == 0).sum().item() / max(len(alive), 1))
    return sum(shares) / len(shares)


@mistake(
    "flushed_share",
    "Values below 6.1e-5, the smallest normal number, are counted as lost; fp16 keeps them as subnormals. Cast.",
)
def below_normal(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients])
    alive = values[values != 0]
    lost = (alive * loss_scale).abs() < torch.finfo(torch.float16).tiny
    return lost.sum().item() / max(len(alive), 1)


@mistake(
    "flushed_share",
    "The cast comes before the multiplication, and no scale restores what is zero by then. Multiply in float32.",
)
def cast_first(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients])
    alive = values[values != 0]
    return (alive.half() * loss_scale == 0).sum().item() / max(len(alive), 1)


@mistake("flushed_share", "The share that survives is returned. Count the zeros after the cast.")
def surviving_share(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients])
    alive = values[values != 0]
    return ((alive * loss_scale).half() != 0).sum().item() / max(len(alive), 1)


@mistake(
    "flushed_share",
    "Values below 2^-24 are counted as zero, but rounding keeps those above half of it. Cast, then count zeros.",
)
def below_the_smallest(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients]).abs()
    alive = values[values != 0] * loss_scale
    return (alive < 2.0**-24).sum().item() / max(len(alive), 1)


@mistake("flushed_share", "The cast goes to bf16, which has the range of float32 and loses nothing. Use .half().")
def cast_to_bf16(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients])
    alive = values[values != 0]
    return ((alive * loss_scale).bfloat16() == 0).sum().item() / max(len(alive), 1)


@alternative("flushed_share")
def tensor_by_tensor(gradients, loss_scale=1.0):
    before = sum(g.count_nonzero().item() for g in gradients)
    after = sum((g * loss_scale).to(torch.float16).count_nonzero().item() for g in gradients)
    return 1 - after / before if before else 0.0


@alternative("flushed_share")
def by_the_limit(gradients, loss_scale=1.0):
    values = torch.cat([g.flatten() for g in gradients]).abs()
    lost = (values > 0) & (values * loss_scale <= 2.0**-25)  # half of the smallest subnormal rounds to even, which is 0
    return float(lost.sum()) / max(1, int((values > 0).sum()))
