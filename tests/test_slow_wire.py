"""The slow network card: what it hands out is right and late, one message after the other, for torch's DDP too."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from course.parallel.distributed import run_ranks
from course.parallel.slow_wire import slow_wire


def over_the_wire(rank, world_size):
    """What one rank finds out in a block of slow_wire."""
    with slow_wire(latency=0.002, bandwidth=4e6) as wire:
        tensors = [torch.full((1000 * (i + 1),), float(rank + 1)) for i in range(3)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        early = works[-1].is_completed()
        for work in works:
            work.wait()
        sums = [tensor.unique().tolist() for tensor in tensors]
        first, late = list(wire.messages), works[-1].is_completed()
        wire.messages.clear()
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(3, 2))
        model(torch.full((1, 3), float(rank + 1))).sum().backward()
        gradient = model.module.weight.grad
    outside = torch.ones(1)
    dist.all_reduce(outside)
    return sums, early, late, first, gradient, len(wire.messages), outside.item()


def test_results_are_right_and_come_when_the_card_has_sent_them():
    for sums, early, late, messages, gradient, of_ddp, outside in run_ranks(over_the_wire, 2, backend="gloo"):
        assert sums == [[3.0]] * 3 and (early, late) == (False, True)
        assert [m.bytes for m in messages] == [4000, 8000, 12000]
        for message, before in zip(messages, [None, *messages[:-1]], strict=True):
            assert message.ended - message.started >= 0.002 + message.bytes / 4e6
            assert message.started >= message.launched and message.waited is not None
            assert before is None or message.started >= before.ended
        assert torch.equal(gradient, torch.full((2, 3), 1.5)) and of_ddp >= 1
        assert outside == 2.0, "outside of the block the group is the old one"
