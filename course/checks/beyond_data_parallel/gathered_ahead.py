"""Probe of exercise gathered_ahead."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from course.engine.exercise import Answer, Facts, exercise

RANKS = 3  # whose shards the gathers pretend to bring


class _Gathers:
    """Pretended gathers that note when each starts and is waited for, and how many layers live."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.living: list[StorageWeakRef] = []
        self.live_max = 0

    def start(self, shard: Tensor) -> "_Handle":
        layer = int(shard[0])
        self.log.append(f"start {layer}")
        whole = torch.cat([shard + rank / 4 for rank in range(RANKS)])
        self.living.append(StorageWeakRef(whole.untyped_storage()))
        live = sum(not storage.expired() for storage in self.living)
        self.live_max = max(self.live_max, live)
        return _Handle(self, layer, whole)


class _Handle:
    def __init__(self, gathers: _Gathers, layer: int, whole: Tensor) -> None:
        self.gathers = gathers
        self.layer = layer
        self.whole: Tensor | None = whole

    def wait(self) -> Tensor:
        self.gathers.log.append(f"wait {self.layer}")
        assert self.whole is not None
        return self.whole


def _shards(n: int, seed: int) -> list[Tensor]:
    """Shards of `n` layers; the first number of each is the number of its layer."""
    rng = torch.Generator().manual_seed(seed)
    shards = []
    for layer in range(n):
        rest = torch.randn(2 + seed % 3, generator=rng)
        shards.append(torch.cat([torch.tensor([float(layer)]), rest]))
    return shards


def _used(wholes: Iterator[Tensor], gathers: _Gathers) -> list[Tensor]:
    """What is yielded, of which copies alone are kept."""
    copies = []
    wholes = iter(wholes)
    while True:
        whole = next(wholes, None)
        if whole is None:
            return copies
        gathers.log.append(f"compute {int(whole[0])}")
        copies.append(whole.clone())
        del whole


@exercise()
def gathered_ahead(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The whole layers, the order of events, and how many layers live at a time."""
    for n in (3, 1, 2, 5 + seed % 3):
        shards = [shard.to(device) for shard in _shards(n, seed)]
        gathers = _Gathers()
        wholes = _used(answer(shards, gathers.start), gathers)
        yield f"{n} layers: the whole layers", wholes
        yield f"{n} layers: what happens in which order", gathers.log
        yield f"{n} layers: whole layers that live at most", gathers.live_max
    backwards = _shards(4, seed)[::-1]
    gathers = _Gathers()
    yield "in reverse order", _used(answer(backwards, gathers.start), gathers)
    gathers = _Gathers()
    wholes = iter(answer(_shards(5, seed), gathers.start))
    next(wholes)
    next(wholes)
    yield "a caller that stops after two layers", gathers.log
