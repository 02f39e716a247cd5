"""Probe of exercise amp_step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from course.checks.large_batch.spies import CountingSGD, SpyModel, loss_kind, random_batch
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried

HALF = dict(scaled=True, dtype=torch.float16)


class _Run(NamedTuple):
    """What some steps left; `loss` is what the last one returned, `scale` None without scaler."""

    loss: Any
    model: SpyModel
    optimizer: CountingSGD
    scale: float | None


@exercise()
def amp_step(answer: Answer, device: torch.device, seed: int) -> Facts:
    """One training step in mixed precision, watched from the model and from the scaler."""
    n = 24 + seed % 9

    def run(
        steps: int = 1,
        scaled: bool = False,
        inf: bool = False,
        stale: bool = False,
        **settings: Any,
    ) -> _Run:
        """The model, optimizer and scaler after some steps."""
        rng = torch.Generator().manual_seed(seed)
        model = SpyModel(rng, device, inf=inf)
        optimizer = CountingSGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=0.1)
        if scaled:
            scaler = torch.amp.GradScaler(device.type, init_scale=2.0**6, growth_interval=2)
            settings["scaler"] = scaler
        if stale:
            model.leave_stale_gradients()
        loss = None
        for _ in range(steps):
            loss = answer(model, *random_batch(rng, device, n), optimizer, **settings)
        return _Run(loss, model, optimizer, scaler.get_scale() if scaled else None)

    yield from _without_scaler(run, n)
    yield from _with_scaler(run, n)
    yield from _stale_and_unused(run)
    yield from _overflow(run)


def _without_scaler(run: Callable[..., _Run], n: int) -> Facts:
    """One step in bfloat16, on a batch of `n` rows."""
    loss, model, optimizer, _ = run()
    yield "returns the loss as a detached float32 scalar", loss_kind(loss)
    calls = {"calls": len(model.rows), "rows": sum(model.rows)}
    yield "the model runs once, on the whole batch", calls
    yield "the model runs under autocast", all(model.autocast)
    yield "in bf16 unless told otherwise", " ".join(model.dtypes)
    autocast = model.backward_autocast
    backward = {"times": len(autocast), "under autocast": any(autocast)}
    yield "the backward pass runs once, outside autocast", tried(backward, n)
    yield "the optimizer steps once", optimizer.steps
    yield "the loss is computed from float32 logits", loss
    yield "without a scaler, backward sees the loss of fp32 logits", torch.cat(model.slopes).norm()
    yield "the parameters after one step", model.used_parameters()


def _with_scaler(run: Callable[..., _Run], n: int) -> Facts:
    """Steps in float16, and in bfloat16 with a scaler, on batches of `n` rows."""
    loss, model, _, _ = run(**HALF)
    yield "in fp16 where that is asked for", " ".join(model.dtypes)
    yield "with a scaler, the backward pass sees the scaled loss", torch.cat(model.slopes).norm()
    yield "the loss that is returned is not scaled", loss
    yield "with a scaler, the parameters after one step", model.used_parameters()
    dtypes = run(scaled=True, dtype=torch.bfloat16).model.dtypes
    yield "in bf16 with a scaler, where that is asked for", tried(" ".join(dtypes), n)
    three = run(steps=3, **HALF)
    yield "after three steps", {"loss": three.loss} | three.model.used_parameters()
    yield "the scaler is updated once a step, so that its scale can grow", three.scale


def _stale_and_unused(run: Callable[..., _Run]) -> Facts:
    """Gradients of an earlier batch, of parameters in use and of one that is not."""
    after_stale = run(stale=True).model.used_parameters()
    yield "gradients of an earlier batch do not count", after_stale
    after = run(stale=True).model.unused
    before = run(0).model.unused
    stays = bool((after == before).all())
    yield "a parameter that the model does not use stays: its grad is None", stays


def _overflow(run: Callable[..., _Run]) -> Facts:
    """A step whose gradients overflow."""
    overflown = run(inf=True, **HALF)
    before = run(0, inf=True, **HALF).model.mix
    stays = bool((overflown.model.mix == before).all())
    yield "an overflow: no parameter changes", stays
    yield "an overflow: the scale falls", overflown.scale
