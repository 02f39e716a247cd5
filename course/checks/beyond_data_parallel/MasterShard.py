"""Probe of exercise MasterShard."""

import torch

from course.engine.exercise import Answer, Facts, exercise

SMALL_STEPS = 50


@exercise(returns_no_number=True)
def MasterShard(answer: Answer, device: torch.device, seed: int) -> Facts:
    """What is sent and what is kept, before and after steps."""
    rng = torch.Generator().manual_seed(seed)
    values = torch.randn(4 + seed % 3, generator=rng).to(device)
    before = values.clone()
    shard = answer(values)
    yield "dtypes of what is kept and sent", [str(shard.master.dtype), str(shard.to_send().dtype)]
    yield "the master", shard.master.clone()
    yield "what is sent", shard.to_send().float()
    grad = torch.randn(len(values), generator=rng).to(device)
    shard.step(grad, 0.5)
    yield "the master after a step", shard.master.clone()
    yield "what is sent after a step", shard.to_send().float()
    yield "the values that were given stay as they are", torch.equal(values, before)
    shard.to_send().zero_()
    yield "the master if what was sent is overwritten", shard.master.clone()

    ones = answer(torch.ones(3, device=device))
    small = torch.full((3,), (1 + seed % 4) * 0.25, device=device)
    for _ in range(SMALL_STEPS):
        ones.to_send()
        ones.step(small, 1e-3)
    yield f"the master after {SMALL_STEPS} small steps from 1", ones.master.clone()
    yield "then what is sent", ones.to_send().float()
    half = answer(values.bfloat16())
    rounded = grad.bfloat16()
    half.step(rounded, 0.1234)
    yield "from 16-bit values: dtype of the master", str(half.master.dtype)
    yield "from 16-bit values: the master after a step with a 16-bit gradient", half.master.clone()
