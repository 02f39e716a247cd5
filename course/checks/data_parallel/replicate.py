"""Probe of exercise replicate."""

import functools
import warnings

import torch
from torch import nn

from course.checks.data_parallel.shared import (
    READY_MADE,
    _alone,
    _bytes,
    _equal,
    _gradients,
    _module,
    _same_state,
    _sizes,
    _Stamping,
    _state,
    _ways,
)
from course.checks.engine import exercise
from course.distributed import Transfers


def _at(module, name):
    """What stands in `module` under a dotted name."""
    return functools.reduce(getattr, name.split("."), module)


@exercise(forbids=READY_MADE)
def replicate(answer, device, seed):
    """Copies of a module with tied, frozen and changing tensors."""
    n = 2 + seed % 2
    warnings.filterwarnings("ignore", "The .grad attribute")  # an answer may put copies into the module
    module = _module(device, seed)
    module[2].weight.grad = torch.ones_like(module[2].weight)
    x = torch.randn(3, 4, dtype=torch.float64).to(device)
    expected, _ = _alone(module, x, torch.sum)
    before, modes = _state(module), [m.training for m in module.modules()]
    names = {name: p.requires_grad for name, p in module.named_parameters(remove_duplicate=False)}
    buffers = [name for name, _ in module.named_buffers()]

    transfers = Transfers([device] * n)
    replicas = answer(module, transfers)
    yield "returns a list", type(replicas).__name__
    yield "one replica a device", len(replicas)
    yield "a replica is of the module's class", [type(replica).__name__ for replica in replicas]
    yield "each replica is an object of its own", len({id(r) for r in (module, *replicas)}) == n + 1
    pieces = [id(m) for r in (module, *replicas) for m in r.modules()]
    yield "so is each submodule", len(set(pieces)) == len(pieces)
    yield "parameters have the values of the module", [{k: _at(r, k) for k in names} for r in replicas]
    yield "buffers have the values of the module", [{k: _at(r, k) for k in buffers} for r in replicas]
    owned = [{_at(r, k).data_ptr() for k in (*names, *buffers)} for r in (module, *replicas)]
    yield (
        "no replica shares memory with another or the module",
        not any(owned[i] & owned[j] for i in range(n + 1) for j in range(i)),
    )
    yield "frozen or not, each as in the module", [{k: _at(r, k).requires_grad for k in names} for r in replicas]
    leaves = [name for name, trained in names.items() if trained and any(_at(r, name).is_leaf for r in replicas)]
    yield "the parameters that are leaves, and should not be", leaves
    yield (
        "every submodule keeps its mode, train or eval",
        [[m.training for m in r.modules()] for r in replicas] == [modes] * n,
    )
    yield "tied parameters are one", all(_at(r, "0.inner.weight") is _at(r, "0.outer.weight") for r in replicas)
    yield "one message a replica, from place 0", sorted(_ways(transfers.log))
    yield "each message has all parameters and buffers, each once", _sizes(transfers.log) == [_bytes(module)] * n

    outputs = [replica(x) for replica in replicas]
    yield "the outputs of the replicas", outputs
    yield "equal to those of the module", all(_equal(output, expected) for output in outputs)
    yield "a buffer that one changes changes in it alone", [int(_at(r, "0.calls")) for r in (module, *replicas)]
    yield "the module keeps its parameters, buffers and grad", _same_state(module, before)
    grad = torch.autograd.grad(
        outputs[-1].sum(), [p for p in module.parameters() if p.requires_grad], retain_graph=True
    )
    yield "gradients of the last replica, for the module's parameters", list(grad)
    module.zero_grad()
    sum((k + 1) * output.sum() for k, output in enumerate(outputs)).backward()
    yield "gradients of all replicas add up in the module", _gradients(module)
    many = n * (n + 1) // 2
    _, alone = _alone(module, x, lambda outputs: many * outputs.sum())
    yield "equal to those of the module alone", _equal(_gradients(module), alone)

    with torch.no_grad():
        stamped = answer(module, _Stamping([device] * n))
    yield (
        "what is sent is what stands in the replica",
        [{k: _at(r, k) for k in ("2.bias", "0.scale", "0.calls")} for r in stamped],
    )
    yield (
        "under torch.no_grad nothing needs a gradient",
        not any(_at(r, k).requires_grad for r in stamped for k in names),
    )
    transfers = Transfers([device] * 4)
    yield "n = 2 of four devices: two replicas", len(answer(module, transfers, 2))
    yield "n = 2 of four devices: messages", sorted(_ways(transfers.log))
    module = nn.Sequential(nn.Flatten()).eval()
    transfers = Transfers([device] * n)
    found = [type(r[0]).__name__ for r in answer(module, transfers)]
    yield "a module without parameters", found
    yield "a module without parameters: messages", sorted(transfers.log)
