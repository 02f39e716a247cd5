"""Probe of exercise replicate."""

import functools
import itertools
import warnings

import torch
from torch import nn

from course.checks.data_parallel.devices import (
    READY_MADE,
    StampingTransfers,
    gradients_or_text,
    message_sizes,
    module_bytes,
    module_state,
    nearly_equal,
    odd_module,
    on_one_device,
    same_state,
    ways,
)
from course.checks.engine import exercise
from course.parallel.distributed import Transfers


def _at(module, name):
    """What stands in `module` under a dotted name."""
    return functools.reduce(getattr, name.split("."), module)


def _all_at(replicas, names):
    """What stands in each replica under these names."""
    return [{name: _at(replica, name) for name in names} for replica in replicas]


class _Original:
    """What a module is before it is replicated."""

    def __init__(self, module, x):
        self.module = module
        self.outputs, _ = on_one_device(module, x, torch.sum)
        self.modes = [m.training for m in module.modules()]
        # requires_grad of all parameters, a tied one under each of its names
        self.trained = {name: p.requires_grad for name, p in module.named_parameters(remove_duplicate=False)}
        self.buffers = [name for name, _ in module.named_buffers()]


class _Made:
    """The replicas of a module, and what is seen of both where they are."""

    def __init__(self, answer, module, transfers):
        self.module, self.state = module, module_state(module)
        self.replicas = answer(module, transfers)

    def own(self, names):
        """What of the replicas is none other's and not the module's."""
        everyone = self.module, *self.replicas
        pieces = [id(m) for r in everyone for m in r.modules()]
        owned = [{_at(r, name).data_ptr() for name in names} for r in everyone]
        return {
            "objects": len({id(r) for r in everyone}) == len(everyone),
            "submodules": len(set(pieces)) == len(pieces),
            "memory": not any(a & b for a, b in itertools.combinations(owned, 2)),
            "tied": all(_at(r, "0.inner.weight") is _at(r, "0.outer.weight") for r in self.replicas),
        }

    def calls(self):
        """How often the module and each replica count that they were called."""
        return [int(_at(r, "0.calls")) for r in (self.module, *self.replicas)]

    def module_stays(self):
        """Whether the module is what it was."""
        return same_state(self.module, self.state)


@exercise(forbids=READY_MADE)
def replicate(answer, device, seed):
    """Copies of a module with tied, frozen and changing tensors."""
    n = 2 + seed % 2
    warnings.filterwarnings("ignore", "The .grad attribute")  # an answer may put copies into the module
    module = odd_module(device, seed)
    module[2].weight.grad = torch.ones_like(module[2].weight)
    x = torch.randn(3, 4, dtype=torch.float64).to(device)
    original, transfers = _Original(module, x), Transfers([device] * n)
    made = _Made(answer, module, transfers)
    replicas = made.replicas
    yield "returns a list", type(replicas).__name__
    yield "one replica a device", len(replicas)
    yield from _copies(original, replicas, made.own([*original.trained, *original.buffers]))
    yield "one message a replica, from place 0", sorted(ways(transfers.log))
    sizes = message_sizes(transfers.log)
    yield "each message has all parameters and buffers, each once", sizes == [module_bytes(module)] * n
    yield from _computing(original, made, replicas, x)
    with torch.no_grad():
        stamped = answer(module, StampingTransfers([device] * n))
    yield "what is sent is what stands in the replica", _all_at(stamped, ("2.bias", "0.scale", "0.calls"))
    learned = any(_at(r, name).requires_grad for r in stamped for name in original.trained)
    yield "under torch.no_grad nothing needs a gradient", not learned
    transfers = Transfers([device] * 4)
    yield "n = 2 of four devices: two replicas", len(answer(module, transfers, 2))
    yield "n = 2 of four devices: messages", sorted(ways(transfers.log))
    module = nn.Sequential(nn.Flatten()).eval()
    transfers = Transfers([device] * n)
    found = [type(r[0]).__name__ for r in answer(module, transfers)]
    yield "a module without parameters", found
    yield "a module without parameters: messages", sorted(transfers.log)


def _copies(original, replicas, own):
    """What the replicas are and share, before they compute; `own` is as `_Made` says it."""
    yield "a replica is of the module's class", [type(replica).__name__ for replica in replicas]
    yield "each replica is an object of its own", own["objects"]
    yield "so is each submodule", own["submodules"]
    names, buffers = original.trained, original.buffers
    yield "parameters have the values of the module", _all_at(replicas, names)
    yield "buffers have the values of the module", _all_at(replicas, buffers)
    yield "no replica shares memory with another or the module", own["memory"]
    yield "frozen or not, each as in the module", [{k: _at(r, k).requires_grad for k in names} for r in replicas]
    leaves = [name for name, trained in names.items() if trained and any(_at(r, name).is_leaf for r in replicas)]
    yield "the parameters that are leaves, and should not be", leaves
    modes = [[m.training for m in r.modules()] for r in replicas]
    yield "every submodule keeps its mode, train or eval", all(mode == original.modes for mode in modes)
    yield "tied parameters are one", own["tied"]


def _computing(original, made, replicas, x):
    """What the replicas compute, and the gradients of the module."""
    module = original.module
    outputs = [replica(x) for replica in replicas]
    yield "the outputs of the replicas", outputs
    yield "equal to those of the module", all(nearly_equal(output, original.outputs) for output in outputs)
    yield "a buffer that one changes changes in it alone", made.calls()
    yield "the module keeps its parameters, buffers and grad", made.module_stays()
    trained = [p for p in module.parameters() if p.requires_grad]
    last = torch.autograd.grad(outputs[-1].sum(), trained, retain_graph=True)
    yield "gradients of the last replica, for the module's parameters", list(last)
    module.zero_grad()
    sum((k + 1) * output.sum() for k, output in enumerate(outputs)).backward()
    yield "gradients of all replicas add up in the module", gradients_or_text(module)
    many = len(replicas) * (len(replicas) + 1) // 2
    _, alone = on_one_device(module, x, lambda outputs: many * outputs.sum())
    yield "equal to those of the module alone", nearly_equal(gradients_or_text(module), alone)
