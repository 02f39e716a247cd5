"""Probe of exercise OverlappedDDP."""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F

from course.checks.data_parallel.networks import (
    Branches,
    Net,
    backward,
    batches_of,
    copied,
    gradients,
)
from course.checks.data_parallel.ranks import in_threads, together
from course.checks.data_parallel.wrappers import wrapper_facts
from course.engine.exercise import Answer, Facts, exercise
from course.parallel.distributed import counted
from course.parallel.network import advance, now

LATE = 1e9  # virtual seconds: no message takes as long


LAYER_BYTES = (36 + 6) * 8  # of one layer of Branches


def _overlap(rank, world_size, answer, seed):
    """Facts of a rank about what is sent when."""
    facts = {}
    batch, *_ = batches_of(rank, seed, outputs=6)
    with counted() as traffic:

        def started(order):
            """{layer: all-reduces that are started before its gradient comes}, the layers called in
            this order.
            """
            module, seen, before = Branches(seed), {}, traffic.calls("all_reduce")

            def note(layer):  # before the hooks of the answer, which are registered later
                seen.setdefault(layer, traffic.calls("all_reduce") - before)

            for name, parameter in module.named_parameters():
                parameter.register_post_accumulate_grad_hook(lambda p, layer=name[7]: note(layer))
            backward(answer(module, bucket_bytes=LAYER_BYTES), batch, order)
            return seen

        facts["all-reduces started before the gradient of each layer"] = started("abcd")
        facts["the same where gradients come in the order b, c, d, a"] = started("adcb")

        module = Net(seed)
        model, sent = answer(module), len(traffic)
        model(batch[0]).sum().backward()
        facts["bytes of each bucket, in order"] = [size for _, size in traffic[sent:]]
        module = nn.Sequential(*(nn.Linear(300, 300) for _ in range(3)))
        model, sent = answer.answer(module), len(traffic)
        model(torch.ones(1, 300)).sum().backward()
        facts["bytes of each bucket at the default, 1 MiB"] = [size for _, size in traffic[sent:]]

    module = Branches(seed + rank)
    backward(answer(module, bucket_bytes=LAYER_BYTES), batch, "abcd" if rank == 0 else "dbca")
    facts["layers come in another order on each rank"] = gradients(module)

    module, clocks = Branches(seed + rank), []
    model = answer(module, bucket_bytes=LAYER_BYTES)
    module.layers["a"].bias.register_post_accumulate_grad_hook(lambda p: clocks.append(now()))
    start = now()
    if rank == 1:
        advance(LATE)
    backward(model, batch, "abcd")
    facts["rank 0 computes its last gradient while rank 1 sleeps"] = (
        rank == 1 or clocks[0] - start < LATE
    )
    facts["then its backward waits for rank 1"] = copied(gradients(module))

    modules = [Branches(seed + rank), Branches(seed + rank + 9)]
    models = [answer(module, bucket_bytes=LAYER_BYTES) for module in modules]
    (models[0](batch[0], "ab") + models[1](batch[0], "cd")).square().sum().backward()
    facts["two wrappers in one backward"] = [gradients(module) for module in modules]
    return facts


def _unsent(rank, world_size, answer, seed):
    """Facts of a rank about no_sync."""
    batch, again, *_ = batches_of(rank, seed)
    facts, module = {}, Net(seed + rank)
    with counted() as traffic:
        model = answer(module)
        sent = len(traffic)
        with model.no_sync():
            backward(model, batch)
        facts["no_sync: calls of a backward inside"] = len(traffic) - sent
        facts["no_sync: the rank's own gradients pile up"] = copied(gradients(module))
        with model.no_sync():
            ahead = F.mse_loss(model(again[0]), again[1])
        ahead.backward()
        facts["the next backward: its calls"] = len(traffic) - sent
        facts["the next backward sends the sum"] = copied(gradients(module))
        module.zero_grad(set_to_none=False)
        sent = len(traffic)
        behind = F.mse_loss(model(batch[0]), batch[1])
        with model.no_sync():
            with model.no_sync():
                backward(model, again)
            behind.backward()
        facts["nested no_sync, forward outside: calls"] = len(traffic) - sent
        with contextlib.suppress(ZeroDivisionError), model.no_sync():
            backward(model, again)
            raise ZeroDivisionError
        facts["no_sync left by an exception: calls inside"] = len(traffic) - sent
        backward(model, batch)
        facts["no_sync left by an exception: calls after it"] = len(traffic) - sent
        facts["all four backward passes add up"] = gradients(module)
    return facts


class _Capped:
    """Makes wrappers with small buckets, so that even the small models of a check have several."""

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, module, bucket_bytes=200):
        return self.answer(module, bucket_bytes=bucket_bytes)


@exercise(forbids=("torch.nn.parallel.DistributedDataParallel",))
def OverlappedDDP(answer: Answer, device: torch.device, seed: int) -> Facts:
    """As for the naive version, with buckets of few bytes; then the order of events, and
    no_sync.
    """
    yield from wrapper_facts(_Capped(answer), seed, _overlap)
    yield from together(in_threads(_unsent, 2, _Capped(answer), seed))
