"""Probe of exercise amp_step."""

import torch

from course.checks.large_batch.spies import CountingSGD, SpyModel, loss_kind, random_batch
from course.engine.exercise import Answer, Facts, exercise


@exercise()
def amp_step(answer: Answer, device: torch.device, seed: int) -> Facts:
    """One training step in mixed precision, watched from the model and from the scaler."""
    n = 24 + seed % 9

    def run(steps=1, scaled=False, inf=False, stale=False, **settings):
        """(what the last step returned, model, optimizer, the scaler's scale or None) after some
        steps.
        """
        rng = torch.Generator().manual_seed(seed)
        model, loss = SpyModel(rng, device, inf=inf), None
        optimizer = CountingSGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=0.1)
        if scaled:
            settings["scaler"] = torch.amp.GradScaler(
                device.type, init_scale=2.0**6, growth_interval=2
            )
        if stale:
            model.leave_stale_gradients()
        for _ in range(steps):
            loss = answer(model, *random_batch(rng, device, n), optimizer, **settings)
        return loss, model, optimizer, settings["scaler"].get_scale() if scaled else None

    loss, model, optimizer, _ = run()
    yield "returns the loss as a detached float32 scalar", loss_kind(loss)
    yield (
        "the model runs once, on the whole batch",
        {"calls": len(model.rows), "rows": sum(model.rows)},
    )
    yield "the model runs under autocast", all(model.autocast)
    yield "in bf16 unless told otherwise", " ".join(model.dtypes)
    backward = {
        "times": len(model.backward_autocast),
        "under autocast": any(model.backward_autocast),
    }
    yield "the backward pass runs once, outside autocast", backward
    yield "the optimizer steps once", optimizer.steps
    yield "the loss is computed from float32 logits", loss
    yield "without a scaler, the backward pass sees the loss itself", torch.cat(model.slopes).norm()
    yield "the parameters after one step", model.used_parameters()
    half = dict(scaled=True, dtype=torch.float16)
    loss, model, optimizer, _ = run(**half)
    yield "in fp16 where that is asked for", " ".join(model.dtypes)
    yield "with a scaler, the backward pass sees the scaled loss", torch.cat(model.slopes).norm()
    yield "the loss that is returned is not scaled", loss
    yield "with a scaler, the parameters after one step", model.used_parameters()
    yield (
        "in bf16 with a scaler, where that is asked for",
        " ".join(run(scaled=True, dtype=torch.bfloat16)[1].dtypes),
    )
    loss, model, _, scale = run(steps=3, **half)
    yield "after three steps", {"loss": loss} | model.used_parameters()
    yield "the scaler is updated once a step, so that its scale can grow", scale
    yield "gradients of an earlier batch do not count", run(stale=True)[1].used_parameters()
    model = run(stale=True)[1]
    stays = bool((model.unused == run(0)[1].unused).all())
    yield "a parameter that the model does not use stays: its grad is None", stays
    _, model, _, scale = run(inf=True, **half)
    yield (
        "an overflow: no parameter changes",
        bool((model.mix == run(0, inf=True, **half)[1].mix).all()),
    )
    yield "an overflow: the scale falls", scale
