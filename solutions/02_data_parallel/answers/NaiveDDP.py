"""Known mistakes of exercise NaiveDDP, and right answers in other styles."""

import torch
import torch.distributed as dist
from torch import distributed, nn
from torch.distributed import ReduceOp, all_reduce, get_world_size
from torch.nn import Module

from course.checks.engine import alternative, mistake


class _Naive(nn.Module):
    """A right wrapper in pieces, so that each mistake can spoil one of them."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.share()

    def share(self):
        for tensor in self.shared():
            dist.broadcast(tensor.detach(), src=0)

    def shared(self):
        return [*self.module.parameters(), *self.module.buffers()]

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def trainable(self):
        return [p for p in self.module.parameters() if p.requires_grad]

    def average_gradients(self):
        for p in self.trainable():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            self.average(p.grad)

    def average(self, gradient):
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


@mistake(
    "NaiveDDP",
    "Gradients are summed, not averaged: divide by world_size, or the learning rate is that much larger. Divide in "
    "place: `g = g / n` only names a new tensor.",
)
class SumOfRanks(_Naive):
    def average(self, gradient):
        dist.all_reduce(gradient)


@mistake("NaiveDDP", "Gradients are divided by world_size before the all-reduce and again after it. Once is enough.")
class DividedTwice(_Naive):
    def average(self, gradient):
        gradient /= dist.get_world_size()
        super().average(gradient)


@mistake(
    "NaiveDDP",
    "Each rank keeps the weights that it was made with. Broadcast all parameters and buffers in the constructor.",
)
class OwnStart(_Naive):
    def share(self):
        pass


@mistake("NaiveDDP", "Buffers stay those of the rank; only parameters are broadcast. Go through module.buffers() too.")
class BuffersForgotten(_Naive):
    def shared(self):
        return self.module.parameters()


@mistake(
    "NaiveDDP",
    "What is broadcast is the state_dict, which leaves out buffers that are not persistent. Take module.buffers().",
)
class OnlyTheStateDict(_Naive):
    def shared(self):
        return self.module.state_dict().values()


@mistake(
    "NaiveDDP",
    "Frozen parameters are not broadcast, but the model computes with them as well. Broadcast all parameters.",
)
class FrozenStayApart(_Naive):
    def shared(self):
        return [*self.trainable(), *self.module.buffers()]


@mistake(
    "NaiveDDP",
    "Frozen parameters are averaged too and get a gradient of zeros. Leave out those without requires_grad.",
)
class FrozenToo(_Naive):
    def trainable(self):
        return self.module.parameters()


@mistake(
    "NaiveDDP",
    "A tied parameter is averaged once for each of its names. module.parameters() gives it once.",
)
class TiedTwice(_Naive):
    def trainable(self):
        found = [p for layer in self.module.modules() for p in layer.parameters(recurse=False)]
        return [p for p in found if p.requires_grad]


@mistake(
    "NaiveDDP",
    "A rank makes no call for a parameter that it did not use, so its next call meets another parameter of the others. "
    "All ranks must make the same calls: send zeros for a gradient that is None.",
)
class UnusedLeftOut(_Naive):
    def trainable(self):
        return [p for p in super().trainable() if p.grad is not None]


@mistake(
    "NaiveDDP",
    "The mean is computed in a copy, and the gradient stays that of the rank. Write it back into p.grad.",
)
class MeanOfACopy(_Naive):
    def average(self, gradient):
        super().average(gradient.clone())


@mistake(
    "NaiveDDP",
    "The all-reduce leaves the sum in the gradient, and the mean gets a new name: `g = g / n`. Divide p.grad in place, "
    "and give a parameter without a gradient one of zeros.",
)
class MeanOfANewName(_Naive):
    def average_gradients(self):
        for p in self.trainable():
            dist.all_reduce(torch.zeros_like(p) if p.grad is None else p.grad)


@mistake("NaiveDDP", "Rank 0 broadcasts its gradients, so the other ranks compute for nothing. Use all_reduce.")
class GradientsOfRank0(_Naive):
    def average(self, gradient):
        dist.broadcast(gradient, src=0)


@mistake("NaiveDDP", "The module is given its inputs, not the keyword arguments. Hand on *args and **kwargs.")
class WithoutKeywords(_Naive):
    def forward(self, *args, **kwargs):
        return self.module(*args)


def _send_from_rank_0(module):
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            distributed.broadcast(tensor, 0)
            assert tensor.is_contiguous(), name


@alternative("NaiveDDP")
class AllAtOnce(Module):
    def __init__(self, module):
        Module.__init__(self)
        self.module = module
        _send_from_rank_0(module)

    def forward(self, *inputs, **options):
        return self.module.forward(*inputs, **options)

    @torch.no_grad()
    def average_gradients(self):
        trainable = [p for p in self.parameters() if p.requires_grad]
        for p in trainable:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad / get_world_size()
        for work in [all_reduce(p.grad, async_op=True) for p in trainable]:
            work.wait()


@alternative("NaiveDDP")
class NewTensors(Module):
    def __init__(self, module):
        super().__init__()
        self.add_module("module", module)
        self.world_size = distributed.get_world_size()
        for p in module.parameters():
            distributed.broadcast(p.data, src=0)
        for b in module.buffers():
            received = b.clone()
            distributed.broadcast(received, src=0)
            b.copy_(received)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def average_gradients(self):
        done = set()
        for _, p in sorted(self.module.named_parameters(), key=lambda pair: pair[0]):
            if p in done or not p.requires_grad:
                continue
            done.add(p)
            total = torch.zeros(p.shape, dtype=p.dtype, device=p.device)
            if p.grad is not None:
                total += p.grad
            all_reduce(total, op=ReduceOp.SUM)
            p.grad = total * (1 / self.world_size)
