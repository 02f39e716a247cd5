"""Known mistakes of exercise NaiveDDP, and right answers in other styles."""

import torch
from torch import distributed
from torch.distributed import ReduceOp, all_reduce, get_world_size
from torch.nn import Module

from course.engine.known_answers import alternative

MISTAKES = {
    "NoDetach": (
        "The broadcast writes into a parameter, which autograd refuses while it records. Broadcast `p.detach()`, which "
        "shares its memory, or write under torch.no_grad().",
        ("tensor.detach()", "tensor"),
    ),
    "NoSuperInit": (
        "An nn.Module must be set up before anything is stored in it. Call super().__init__() first.",
        ("super().__init__()", "pass"),
    ),
    "WeightsAveraged": (
        "The weights are averaged, and the gradients stay those of the rank. Reduce p.grad, not p.data.",
        ("dist.all_reduce(p.grad)", "dist.all_reduce(p.data)"),
        ("p.grad /=", "p.data /="),
    ),
    "NoneIsSent": (
        "A parameter that this rank did not use has the gradient None, which cannot be sent. Set it to zeros first.",
        ("if p.grad is None", "if False"),
    ),
    "SumOfRanks": (
        "Gradients are summed, not averaged: divide by world_size, or the learning rate is that much larger. Divide "
        "in place: `g = g / n` only names a new tensor.",
        ("p.grad /= dist.get_world_size()", "pass"),
    ),
    "DividedTwice": (
        "Gradients are divided by world_size before the all-reduce and again after it. Once is enough.",
        ("p.grad)", "p.grad.div_(dist.get_world_size()))"),
    ),
    "OwnStart": (
        "Each rank keeps the weights that it was made with. Broadcast all parameters and buffers in the constructor.",
        ("dist.broadcast(tensor.detach(), src=0)", "pass"),
    ),
    "BuffersForgotten": (
        "Buffers stay those of the rank; only parameters are broadcast. Go through module.buffers() too.",
        (", module.buffers())", ")"),
    ),
    "OnlyTheStateDict": (
        "What is broadcast is the state_dict, which leaves out buffers that are not persistent. Take module.buffers().",
        ("itertools.chain(module.parameters(), module.buffers())", "module.state_dict().values()"),
    ),
    "FrozenStayApart": (
        "Frozen parameters are not broadcast, but the model computes with them as well. Broadcast all parameters.",
        ("chain(module.parameters()", "chain((p for p in module.parameters() if p.requires_grad)"),
    ),
    "FrozenToo": (
        "Frozen parameters are averaged too and get a gradient of zeros. Leave out those without requires_grad.",
        ("p.requires_grad", "True"),
    ),
    "TiedTwice": (
        "A tied parameter is averaged once for each of its names. module.parameters() gives it once.",
        (
            "p in self.module.parameters()",
            "_, p in self.module.named_parameters(remove_duplicate=False)",
        ),
    ),
    "UnusedLeftOut": (
        "A rank makes no call for a parameter that it did not use, so its next call meets another parameter of the "
        "others. All ranks must make the same calls: send zeros for a gradient that is None.",
        ("p.requires_grad", "p.requires_grad and p.grad is not None"),
    ),
    "MeanOfACopy": (
        "The mean is computed in a copy, and the gradient stays that of the rank. Write it back into p.grad.",
        ("p.grad)", "copied := p.grad.clone())"),
        ("p.grad /=", "copied /="),
    ),
    "MeanOfANewName": (
        "The all-reduce leaves the sum in the gradient, and the mean gets a new name: `g = g / n`. Divide p.grad in "
        "place, and give a parameter without a gradient one of zeros.",
        (
            "if p.grad is None:\n                    p.grad = ",
            "g = p.grad\n                if g is None:\n                    g = ",
        ),
        ("p.grad)", "g)"),
        ("p.grad /= ", "g = g / "),
    ),
    "ResultOfTheCall": (
        "The gradient becomes None: dist.all_reduce writes the sum into its argument and returns None. Call it, and "
        "divide p.grad afterwards.",
        ("dist.all_reduce(p.grad)", "p.grad = dist.all_reduce(p.grad)"),
    ),
    "ResultKept": (
        "The gradient is None: dist.all_reduce writes the sum into its argument and returns None. Call it, and divide "
        "p.grad afterwards.",
        ("dist.all_reduce(p.grad)", "p.grad = dist.all_reduce(p.grad)"),
        ("p.grad /= dist.get_world_size()", "pass"),
    ),
    "GradientsOfRank0": (
        "Rank 0 broadcasts its gradients, so the other ranks compute for nothing. Use all_reduce.",
        ("all_reduce(p.grad)", "broadcast(p.grad, src=0)"),
        ("p.grad /= dist.get_world_size()", "pass"),
    ),
    "WithoutKeywords": (
        "The keyword arguments do not reach the module. Pass on *args and **kwargs.",
        ("module(*args, **kwargs)", "module(*args)"),
    ),
}


def _send_from_rank_0(module):
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            distributed.broadcast(tensor, 0)
            assert tensor.is_contiguous(), name


@alternative
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


@alternative
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
