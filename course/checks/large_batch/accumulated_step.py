"""Probe of exercise accumulated_step."""

import torch

from course.checks.large_batch.spies import CountingSGD, SpyModel, loss_kind, random_batch
from course.engine.exercise import Answer, Facts, exercise


@exercise()
def accumulated_step(answer: Answer, device: torch.device, seed: int) -> Facts:
    """One update from several parts, against the update of the whole batch."""
    micro = 5 + seed % 3

    def run(n, steps=1, stale=False):
        """(what the last step returned, model, optimizer) after some steps on batches of n rows."""
        rng = torch.Generator().manual_seed(seed)
        model, loss = SpyModel(rng, device), None
        model.mix.data *= (
            0.3  # logits small enough for a sigmoid in float32, for who takes it before the loss
        )
        optimizer = CountingSGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=0.1)
        for _ in range(steps):
            if stale:
                model.leave_stale_gradients()
            batch = random_batch(rng, device, n)
            loss = answer(model, *batch, optimizer, micro_batch=micro)
        return loss, model, optimizer, batch if steps else None

    loss, model, optimizer, batch = run(4 * micro)
    yield "returns the loss as a detached float32 scalar", loss_kind(loss)
    yield "no forward pass has more than micro_batch rows", max(model.rows) <= micro
    yield "every row goes through the model once", _rows_once(model, batch)
    yield "no more forward passes than needed", len(model.rows)
    yield "each part has its backward pass before the next part begins", model.fed
    yield "the optimizer steps once", optimizer.steps
    yield "four equal parts: the loss is the mean over the batch", loss
    yield "four equal parts: the parameters after one step", model.used_parameters()
    loss, model, optimizer, batch = run(3 * micro + 2)
    yield (
        "a smaller last part: no forward pass has more than micro_batch rows",
        max(model.rows) <= micro,
    )
    yield "a smaller last part: every row goes through the model once", _rows_once(model, batch)
    yield "a smaller last part: the loss is the mean over the batch", loss
    yield "a smaller last part: the parameters after one step", model.used_parameters()
    yield (
        "gradients of an earlier batch do not count",
        run(2 * micro, stale=True)[1].used_parameters(),
    )
    loss, model, optimizer, batch = run(2 * micro + 1, steps=3)
    yield "a last part of one row, three steps", {"loss": loss} | model.used_parameters()
    stays = bool((run(micro, stale=True)[1].unused == run(0, steps=0)[1].unused).all())
    yield "a parameter that the model does not use stays: its grad is None", stays
    loss, model, *_ = run(micro - 1)
    yield "micro_batch larger than the batch: forward passes", len(model.rows)
    yield (
        "micro_batch larger than the batch: the loss and the parameters",
        {"loss": loss} | model.used_parameters(),
    )


def _rows_once(model, batch):
    """True if the model saw every row of the batch exactly once, in whatever order."""
    pairs = [
        (t[0] * 1000 + t[1]).sort().values
        for t in (torch.cat(model.batches, 1), torch.stack(batch[:2]))
    ]
    return torch.equal(*pairs)
