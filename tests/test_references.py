"""Reference answers equal torch's own, where a task forbids torch's: their probes cannot call it beside an answer."""

import itertools

import pytest
import torch
from torch.utils.data import DistributedSampler

from course.checks.expected import load_reference

pytestmark = pytest.mark.check


CASES = [*itertools.product((1, 5, 8, 11), (1, 2, 4), (False, True), (False, True))]


@pytest.mark.parametrize("n_items, world_size, shuffle, drop_last", CASES)
def test_shard_sampler_gives_the_indices_of_torchs(n_items, world_size, shuffle, drop_last):
    made = load_reference("02_data_parallel", "ShardSampler")
    for rank, epoch in itertools.product(range(world_size), (0, 3)):
        ours = made(n_items, world_size, rank, shuffle=shuffle, drop_last=drop_last)
        theirs = DistributedSampler(range(n_items), world_size, rank, shuffle=shuffle, drop_last=drop_last)
        ours.set_epoch(epoch)
        theirs.set_epoch(epoch)
        assert list(ours) == list(theirs) and len(ours) == len(theirs)


@pytest.mark.parametrize("theirs, decoupled", [(torch.optim.AdamW, True), (torch.optim.Adam, False)])
def test_adamw_step_equals_torchs_with_learning_rates_that_change(theirs, decoupled):
    step_of = load_reference("06_faster_training", "adamw_step")
    rng = torch.Generator().manual_seed(0)
    params = [torch.randn(shape, generator=rng, dtype=torch.float64) for shape in ((3, 4), (5,), ())]
    means, squares = ([torch.zeros_like(p) for p in params] for _ in range(2))
    copies = [p.clone().requires_grad_() for p in params]
    optimizer = theirs(copies, lr=1.0, weight_decay=0.2)
    for step, lr in enumerate((0.1, 0.1, 0.4, 0.02, 0.2), 1):
        for copy in copies:
            copy.grad = torch.randn(copy.shape, generator=rng, dtype=torch.float64)
        optimizer.param_groups[0]["lr"] = lr
        step_of(params, [c.grad for c in copies], means, squares, step, lr, weight_decay=0.2, decoupled=decoupled)
        optimizer.step()
    torch.testing.assert_close(params, [c.detach() for c in copies])
