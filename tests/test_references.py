"""Reference answers equal torch's own, or one process with all the data; probes compare answers with references."""

import contextlib
import itertools
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DistributedSampler

from course.checks.data_parallel import networks
from course.checks.data_parallel.ranks import in_threads
from course.notebook.solutions import load_reference, load_solutions
from course.parallel.distributed import Transfers

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


def whole_batches(classes=2):
    rng = torch.Generator().manual_seed(0)
    shapes = (8, 6), (8, classes)
    return [[torch.randn(shape, generator=rng, dtype=torch.float64) for shape in shapes] for _ in range(5)]


@pytest.mark.parametrize("name", ["NaiveDDP", "OverlappedDDP"])
def test_wrapped_ranks_take_the_steps_of_one_process_on_whole_batches(name):
    wrapper, alone = load_reference("02_data_parallel", name), networks.Net(0)

    def train(rank, world_size):
        module = networks.Net(rank)
        mine = [[part.chunk(world_size)[rank] for part in batch] for batch in whole_batches()]
        return networks.trained(wrapper(module), module, mine)

    expected = networks.trained(alone, alone, whole_batches())
    torch.testing.assert_close(in_threads(train, 2), [expected] * 2)


def test_data_parallel_computes_what_the_module_alone_does():
    module, (batch, targets) = networks.Net(0), whole_batches()[0]
    alone, parts = deepcopy(module), load_solutions("02_data_parallel").data_parallel
    losses = [F.mse_loss(alone(batch), targets), F.mse_loss(parts(module, batch, Transfers(["cpu"] * 3)), targets)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(networks.gradients(module), networks.gradients(alone))


def test_accumulate_takes_the_steps_of_whole_batches():
    models = [nn.Linear(6, 2).double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.4) for model in models]
    sizes, whole = (3, 1, 4), whole_batches()[:2]
    pieces = [pair for batch in whole for pair in zip(*(part.split(sizes) for part in batch), strict=True)]
    accumulate = load_reference("02_data_parallel", "accumulate")
    assert accumulate(models[0], pieces, F.mse_loss, optimizers[0], 3, contextlib.nullcontext) == 2
    for inputs, targets in whole:
        optimizers[1].zero_grad()
        F.mse_loss(models[1](inputs), targets).backward()
        optimizers[1].step()
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())
