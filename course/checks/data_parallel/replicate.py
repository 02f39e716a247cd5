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
    odd_module,
    ways,
)
from course.checks.engine import exercise
from course.parallel.distributed import Transfers


def _at(module, name):
    """What is in `module` under a dotted name."""
    return functools.reduce(getattr, name.split("."), module)


def _all_at(replicas, names):
    """What is in each replica under these names."""
    return [{name: _at(replica, name) for name in names} for replica in replicas]


@exercise(forbids=READY_MADE)
def replicate(answer, device, seed):
    """Copies of a module with tied, frozen and changing tensors."""
    n = 2 + seed % 2
    warnings.filterwarnings("ignore", "The .grad attribute")  # an answer may put copies into the module
    module = odd_module(device, seed)
    module[2].weight.grad = torch.ones_like(module[2].weight)
    x = torch.randn(3, 4, dtype=torch.float64).to(device)
    state, transfers = module_state(module), Transfers([device] * n)
    replicas = answer(module, transfers)
    yield "returns a list", type(replicas).__name__
    yield "one replica a device", len(replicas)
    yield from _copies(module, replicas)
    yield "one message a replica, from place 0", sorted(ways(transfers.log))
    sizes = message_sizes(transfers.log)
    yield "each message has all parameters and buffers, each once", sizes == [module_bytes(module)] * n
    yield from _computing(module, replicas, x, state)
    with torch.no_grad():
        stamped = answer(module, StampingTransfers([device] * n))
    yield "what is sent is what stands in the replica", _all_at(stamped, ("2.bias", "0.scale", "0.calls"))
    learned = any(_at(r, name).requires_grad for r in stamped for name, _ in module.named_parameters())
    yield "under torch.no_grad nothing needs a gradient", not learned
    transfers = Transfers([device] * 4)
    yield "n = 2 of four devices: two replicas", len(answer(module, transfers, 2))
    yield "n = 2 of four devices: messages", sorted(ways(transfers.log))
    transfers = Transfers([device] * n)
    replicas = answer(nn.Sequential(nn.Flatten()).eval(), transfers)
    yield "a module without parameters", [type(replica[0]).__name__ for replica in replicas]
    yield "a module without parameters: messages", sorted(transfers.log)


def _copies(module, replicas):
    """What the replicas are and share, before they compute."""
    everyone = module, *replicas
    trained = {name: p.requires_grad for name, p in module.named_parameters(remove_duplicate=False)}  # tied ones too
    buffers = [name for name, _ in module.named_buffers()]
    yield "a replica is of the module's class", [type(replica).__name__ for replica in replicas]
    yield "each replica is a separate object", len({id(r) for r in everyone}) == len(everyone)
    pieces = [id(m) for r in everyone for m in r.modules()]
    yield "so is each submodule", len(set(pieces)) == len(pieces)
    yield "parameters have the values of the module", _all_at(replicas, trained)
    yield "buffers have the values of the module", _all_at(replicas, buffers)
    owned = [{_at(r, name).data_ptr() for name in (*trained, *buffers)} for r in everyone]
    shared = any(a & b for a, b in itertools.combinations(owned, 2))
    yield "no replica shares memory with another or the module", not shared
    yield "frozen or not, each as in the module", [{k: _at(r, k).requires_grad for k in trained} for r in replicas]
    leaves = [name for name, learns in trained.items() if learns and any(_at(r, name).is_leaf for r in replicas)]
    yield "the parameters that are leaves, and should not be", leaves
    yield "every submodule keeps its mode, train or eval", [[m.training for m in r.modules()] for r in replicas]
    tied = [_at(r, "0.inner.weight") is _at(r, "0.outer.weight") for r in replicas]
    yield "tied parameters are one", all(tied)


def _computing(module, replicas, x, state):
    """What the replicas compute, and the gradients of the module, whose `state` was this before."""
    outputs = [replica(x) for replica in replicas]
    yield "the outputs of the replicas", outputs
    yield "a buffer that one changes changes in it alone", [int(_at(r, "0.calls")) for r in (module, *replicas)]
    yield "the module keeps its parameters, buffers and grad", module_state(module) == state
    trained = [p for p in module.parameters() if p.requires_grad]
    last = torch.autograd.grad(outputs[-1].sum(), trained, retain_graph=True)
    yield "gradients of the last replica, for the module's parameters", list(last)
    module.zero_grad()
    sum((k + 1) * output.sum() for k, output in enumerate(outputs)).backward()
    yield "gradients of all replicas add up in the module", gradients_or_text(module)
