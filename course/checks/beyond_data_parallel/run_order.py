"""Probe of exercise run_order."""

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.parallel.pipeline import Order, gpipe_order

WIDTH = 3
MOST_ALIVE = 2  # before the last pass: its own micro-batch, and perhaps a name for the one before
ALTERNATING = [("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("B", 2)]


class _Layers(nn.Module):
    """Layers of one rank that note how often they run, and which outputs are still alive."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=rng, dtype=torch.float64))
        self.bias = nn.Parameter(torch.randn(WIDTH, generator=rng, dtype=torch.float64))
        self.runs = 0
        self.made: list[StorageWeakRef] = []

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        y = torch.tanh(x @ self.weight + self.bias)
        self.made.append(StorageWeakRef(y.untyped_storage()))
        return y

    def alive(self) -> int:
        """How many outputs are still held."""
        return sum(not each.expired() for each in self.made)


class _Wire:
    """A wire that notes what is received and sent, and has everything that is asked for."""

    def __init__(self, seed: int, layers: _Layers) -> None:
        self.seed = seed
        self.layers = layers
        self.log: list[str] = []
        self.sent: dict[str, Tensor] = {}
        self.alive = 0  # outputs, at the latest receive

    def receive(self, kind: str, micro_batch: int) -> Tensor:
        self.log.append(f"receive {kind}{micro_batch}")
        self.alive = self.layers.alive()
        rng = torch.Generator().manual_seed(100 * self.seed + 10 * micro_batch + (kind == "F"))
        return torch.randn(2, WIDTH, generator=rng, dtype=torch.float64)

    def send(self, kind: str, micro_batch: int, tensor: Tensor) -> None:
        self.log.append(f"send {kind}{micro_batch}")
        self.sent[f"{kind}{micro_batch}"] = tensor.detach().clone()

    def values(self, kind: str) -> dict[str, Tensor]:
        """What was sent of this kind, by micro-batch."""
        return {name: self.sent[name] for name in sorted(self.sent) if name.startswith(kind)}


def _ran(answer: Answer, order: Order, seed: int) -> tuple[_Layers, _Wire]:
    """The layers and the wire after `order`."""
    layers = _Layers(seed)
    wire = _Wire(seed, layers)
    answer(order, layers, wire)
    return layers, wire


@exercise(changes_inputs=True, given_modules_only=True, returns_no_number=True)
def run_order(answer: Answer, device: torch.device, seed: int) -> Facts:
    """What a rank receives, sends and keeps while it runs its order, and its gradients."""
    layers, wire = _ran(answer, [("F", 0), ("B", 0)], seed)
    yield "one micro-batch: what is received and sent", wire.log
    yield "one micro-batch: the output that is sent", wire.sent.get("F0")
    yield "one micro-batch: the gradient that is sent", wire.sent.get("B0")
    yield "one micro-batch: gradient of the weight", layers.weight.grad
    yield "one micro-batch: gradient of the bias", layers.bias.grad
    weights = [layers.weight.detach(), layers.bias.detach()]
    yield "one micro-batch: the weights, which an optimizer changes later", weights
    last_first = gpipe_order(0, 1, 4)[:4] + gpipe_order(0, 1, 4)[:3:-1]
    orders = {"GPipe": gpipe_order(0, 1, 4), "1F1B": ALTERNATING, "last one back first": last_first}
    for name, order in orders.items():
        layers, wire = _ran(answer, order, seed + 1)
        drawn = layers.weight.tolist()
        yield f"{name}: what is received and sent", tried(wire.log, drawn)
        yield f"{name}: outputs", wire.values("F")
        yield f"{name}: gradients that are sent", wire.values("B")
        yield f"{name}: gradients of the weights", [layers.weight.grad, layers.bias.grad]
        yield f"{name}: how often the layers run", tried(layers.runs, drawn)
        dropped = wire.alive <= MOST_ALIVE
        yield f"{name}: what a pass back no longer needs is dropped", tried(dropped, drawn)
