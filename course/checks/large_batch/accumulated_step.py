"""Probe of exercise accumulated_step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from course.checks.large_batch.spies import CountingSGD, SpyModel, loss_kind, random_batch
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried


class _Run(NamedTuple):
    """What some steps left; `loss` and `batch` are those of the last one."""

    loss: Any
    model: SpyModel
    optimizer: CountingSGD
    batch: tuple[torch.Tensor, ...] | None


@exercise()
def accumulated_step(answer: Answer, device: torch.device, seed: int) -> Facts:
    """One update from several pieces, against the update of the whole batch."""
    micro = 5 + seed % 3

    def run(n: int, steps: int = 1, stale: bool = False) -> _Run:
        """The model after some steps on batches of n rows."""
        rng = torch.Generator().manual_seed(seed)
        model = SpyModel(rng, device)
        # logits small enough for a sigmoid in float32, for who takes it before the loss
        model.mix.data *= 0.3
        optimizer = CountingSGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=0.1)
        loss = None
        batch = None
        for _ in range(steps):
            if stale:
                model.leave_stale_gradients()
            batch = random_batch(rng, device, n)
            loss = answer(model, *batch, optimizer, micro_batch=micro)
        return _Run(loss, model, optimizer, batch)

    yield from _equal_parts(run, micro)
    yield from _smaller_last_part(run, micro)
    yield from _stale_and_unused(run, micro)
    small = run(micro - 1)
    yield "micro_batch larger than the batch: forward passes", len(small.model.rows)
    result = {"loss": small.loss} | small.model.used_parameters()
    yield "micro_batch larger than the batch: the loss and the parameters", result


def _equal_parts(run: Callable[..., _Run], micro: int) -> Facts:
    """A batch that micro_batch divides."""
    loss, model, optimizer, batch = run(4 * micro)
    yield "returns the loss as a detached float32 scalar", loss_kind(loss)
    yield "no forward pass has more than micro_batch rows", max(model.rows) <= micro
    yield "every row goes through the model once", _rows_once(model, batch)
    yield "no more forward passes than needed", len(model.rows)
    yield "each piece has its backward pass before the next piece begins", tried(model.fed, micro)
    yield "the optimizer steps once", optimizer.steps
    yield "four equal pieces: the loss is the mean over the batch", loss
    yield "four equal pieces: the parameters after one step", model.used_parameters()


def _smaller_last_part(run: Callable[..., _Run], micro: int) -> Facts:
    """A batch whose last piece is smaller."""
    loss, model, _, batch = run(3 * micro + 2)
    fits = max(model.rows) <= micro
    fact = "a smaller last piece: no forward pass has more than micro_batch rows"
    yield fact, tried(fits, micro)
    yield "a smaller last piece: every row goes through the model once", _rows_once(model, batch)
    yield "a smaller last piece: the loss is the mean over the batch", loss
    yield "a smaller last piece: the parameters after one step", model.used_parameters()


def _stale_and_unused(run: Callable[..., _Run], micro: int) -> Facts:
    """Gradients of an earlier batch, several steps, and a parameter without a gradient."""
    after_stale = run(2 * micro, stale=True).model.used_parameters()
    yield "gradients of an earlier batch do not count", after_stale
    three = run(2 * micro + 1, steps=3)
    result = {"loss": three.loss} | three.model.used_parameters()
    yield "a last piece of one row, three steps", result
    after = run(micro, stale=True).model.unused
    before = run(0, steps=0).model.unused
    stays = bool((after == before).all())
    yield "a parameter that the model does not use stays: its grad is None", stays


def _rows_once(model: SpyModel, batch: tuple[torch.Tensor, ...]) -> bool:
    """True if the model saw every row of the batch exactly once, in whatever order."""

    def sorted_pairs(pairs: torch.Tensor) -> torch.Tensor:
        return (pairs[0] * 1000 + pairs[1]).sort().values

    seen = torch.cat(model.batches, 1)
    given = torch.stack(batch[:2])
    return torch.equal(sorted_pairs(seen), sorted_pairs(given))
