"""Probe of exercise amp_step."""

import torch

from course.checks.engine import exercise
from course.checks.large_batch.spies import CountingSGD, SpyModel, loss_kind, random_batch


@exercise()
def amp_step(answer, device, seed):
    """One training step in mixed precision, watched from the model and from the scaler."""
    n = 24 + seed % 9

    def run(steps=1, enabled=True, inf=False, stale=False):
        """(what the last step returned, model, optimizer, scaler) after some steps."""
        rng = torch.Generator().manual_seed(seed)
        model = SpyModel(rng, device, inf=inf)
        optimizer = CountingSGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=0.1)
        scaler = torch.amp.GradScaler(device.type, init_scale=2.0**6, growth_interval=2, enabled=enabled)
        loss = None
        for _ in range(steps):
            if stale:
                model.leave_stale_gradients()
            batch = random_batch(rng, device, n)
            loss = answer(model, *batch, optimizer, scaler=scaler)
        return loss, model, optimizer, scaler

    loss, model, optimizer, scaler = run(enabled=device.type == "cuda")
    yield "returns the loss as a detached float32 scalar", loss_kind(loss)
    yield "the model runs once, on the whole batch", {"calls": len(model.rows), "rows": sum(model.rows)}
    yield "the model runs under autocast", all(model.autocast)
    yield "in fp16 on CUDA, in bf16 on the CPU", " ".join(model.dtypes)
    backward = {"times": len(model.backward_autocast), "under autocast": any(model.backward_autocast)}
    yield "the backward pass runs once, outside autocast", backward
    yield "the optimizer steps once", optimizer.steps
    yield "the loss is computed from float32 logits", loss
    yield "the parameters after one step", model.used_parameters()
    loss, model, optimizer, scaler = run()
    yield "with an enabled scaler, the backward pass sees the scaled loss", torch.cat(model.slopes).norm()
    yield "the loss that is returned is not scaled", loss
    yield "with an enabled scaler, the parameters after one step", model.used_parameters()
    loss, model, optimizer, scaler = run(steps=3)
    yield "after three steps", {"loss": loss} | model.used_parameters()
    yield "the scaler is updated once a step, so that its scale can grow", scaler.get_scale()
    loss, model, optimizer, scaler = run(stale=True)
    yield "gradients of an earlier batch do not count", model.used_parameters()
    yield (
        "a parameter that the model does not use stays: its grad is None",
        bool((model.unused == run(0)[1].unused).all()),
    )
    _, model, optimizer, scaler = run(inf=True)
    yield "an overflow: no parameter changes", bool((model.mix == run(0, inf=True)[1].mix).all())
    yield "an overflow: the scale is halved", scaler.get_scale()
