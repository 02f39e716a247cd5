"""Probe of exercise Ceiling: its sources write down what is asked of them."""

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader

from course.checks.parallel_loading.workers import Asked
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import kind_and_device


class _Source:
    """`n` batches, other ones in each pass; `drawn` counts them."""

    def __init__(self, n: int, seed: int, device: torch.device) -> None:
        self.n = n
        self.rng = torch.Generator().manual_seed(seed)
        self.device = device
        self.drawn = 0

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.n):
            self.drawn += 1
            yield torch.rand(2, 3, generator=self.rng).to(self.device)


class _Stage:
    """Moves a batch to a device where nothing computes, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return batch.to("meta")


@exercise(returns_no_number=True)
def Ceiling(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A source of random batches, a stage, and a DataLoader whose items are counted."""
    n = 3 + seed % 3
    length = 2 * n + 1 + seed % 2
    source = _Source(length, seed, device)
    replay = answer(source, n)
    yield "len() is the number of batches of the source", len(replay)
    first = _numbers(replay)
    yield "batches of a pass", len(first)
    yield "the batches of a pass, in order", first
    yield "a batch stays where the source left it", kind_and_device(next(iter(replay)))
    yield "the batches of the next pass", _numbers(replay)
    yield "batches drawn from the source", source.drawn
    yield "two passes do not disturb each other", _two_at_a_time(replay)
    yield from _with_stage(answer, n, length, seed, device)
    yield from _of_a_loader(answer, n, length)


def _numbers(batches: object) -> list[list]:
    """The batches of a pass, as lists."""
    return [batch.tolist() for batch in batches]


def _two_at_a_time(replay: object) -> list[list]:
    ahead = iter(replay)
    next(ahead)
    behind = iter(replay)
    return [next(behind).tolist(), next(ahead).tolist(), next(behind).tolist()]


def _with_stage(answer: Answer, n: int, length: int, seed: int, device: torch.device) -> Facts:
    stage = _Stage()
    replay = answer(_Source(length, seed + 1, device), n, stage)
    passes = [list(replay), list(replay)]
    yield "with a stage, a batch is what the stage returns", kind_and_device(passes[0][0])
    yield "calls of the stage in two passes", stage.calls
    is_kept = [a is b for a, b in zip(*passes, strict=True)]
    yield "the next pass has the same tensors, not copies of them", all(is_kept)


def _of_a_loader(answer: Answer, n: int, length: int) -> Facts:
    """A source as it is in a training: a DataLoader, whose dataset counts."""
    asked = []

    def item(i: int) -> int:
        asked.append(i)
        return range(2 * length)[i]  # IndexError at the end, as a list

    replay = answer(DataLoader(Asked(2 * length, item), batch_size=2), n)
    kept = [_numbers(replay), _numbers(replay)]
    yield "two passes in place of a DataLoader", kept
    yield "items that its dataset was asked for", asked
