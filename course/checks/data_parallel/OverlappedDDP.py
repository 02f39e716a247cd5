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
from course.checks.data_parallel.wrappers import bytes_of_calls, wrapper_facts
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.parallel.counting import OperationLog, counted
from course.parallel.network import advance, now

LATE_SECONDS = 1e9  # on the virtual clock: no message takes as long
LAYER_BYTES = (36 + 6) * 8  # of one layer of Branches
SMALL_BUCKET_BYTES = 200


class _SmallBuckets:
    """Makes wrappers with small buckets, so that even the small models of a check have several."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def __call__(self, module: nn.Module, bucket_bytes: int = SMALL_BUCKET_BYTES) -> nn.Module:
        return self.answer(module, bucket_bytes=bucket_bytes)


@exercise(forbids=("torch.nn.parallel.DistributedDataParallel",))
def OverlappedDDP(answer: Answer, device: torch.device, seed: int) -> Facts:
    """As for the naive version, with small buckets; then the order of events, and no_sync."""
    with_small_buckets = _SmallBuckets(answer)
    yield from wrapper_facts(with_small_buckets, seed, _overlap)
    yield from together(in_threads(_unsent, 2, with_small_buckets, seed))


def _overlap(rank: int, world_size: int, answer: _SmallBuckets, seed: int) -> dict[str, object]:
    """Facts of a rank about what is sent when."""
    batch = batches_of(rank, seed, outputs=6)[0]
    with counted() as traffic:
        facts = _started_early(answer, batch, seed, traffic)
        facts |= _bucket_sizes(answer, batch[0], seed, traffic)

    module = Branches(seed + rank)
    model = answer(module, bucket_bytes=LAYER_BYTES)
    backward(model, batch, "abcd" if rank == 0 else "dbca")
    facts["layers come in another order on each rank"] = gradients(module)

    facts |= _one_rank_sleeps(answer, batch, seed, rank)

    one = Branches(seed + rank)
    other = Branches(seed + rank + 9)
    one_model = answer(one, bucket_bytes=LAYER_BYTES)
    other_model = answer(other, bucket_bytes=LAYER_BYTES)
    outputs = one_model(batch[0], "ab") + other_model(batch[0], "cd")
    outputs.square().sum().backward()
    facts["two wrappers in one backward"] = [gradients(one), gradients(other)]
    return facts


def _started_early(
    answer: _SmallBuckets, batch: list[torch.Tensor], seed: int, traffic: OperationLog
) -> dict[str, object]:
    """Facts of a rank about the all-reduces that start before a layer has its gradient."""

    def started(order: str) -> dict[str, int]:
        """{layer: all-reduces started before its gradient comes}, the layers called in `order`."""
        module = Branches(seed)
        calls_of_layer = {}
        before = traffic.calls("all_reduce")

        def note(layer: str) -> None:
            calls_of_layer.setdefault(layer, traffic.calls("all_reduce") - before)

        # before the hooks of the answer, which are registered later
        for name, parameter in module.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda p, layer=name[7]: note(layer))
        backward(answer(module, bucket_bytes=LAYER_BYTES), batch, order)
        return calls_of_layer

    on = float(batch[0][0, 0])
    return {
        "all-reduces started before the gradient of each layer": tried(started("abcd"), on),
        "the same where gradients come in the order b, c, d, a": tried(started("adcb"), on),
    }


def _bucket_sizes(
    answer: _SmallBuckets, inputs: torch.Tensor, seed: int, traffic: OperationLog
) -> dict[str, object]:
    """Facts of a rank about the buckets that one backward sends."""
    facts = {}
    model = answer(Net(seed))
    sent = len(traffic)
    model(inputs).sum().backward()
    facts["bytes of each bucket, in order"] = bytes_of_calls(traffic[sent:])
    module = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300), nn.Linear(300, 300))
    model = answer.answer(module)
    sent = len(traffic)
    model(torch.ones(1, 300)).sum().backward()
    facts["bytes of each bucket at the default, 1 MiB"] = bytes_of_calls(traffic[sent:])
    return facts


def _one_rank_sleeps(
    answer: _SmallBuckets, batch: list[torch.Tensor], seed: int, rank: int
) -> dict[str, object]:
    """Facts of a rank about a backward that rank 1 begins late."""
    module = Branches(seed + rank)
    clocks = []
    model = answer(module, bucket_bytes=LAYER_BYTES)
    last = module.layers["a"].bias  # its gradient comes last
    last.register_post_accumulate_grad_hook(lambda p: clocks.append(now()))
    start = now()
    if rank == 1:
        advance(LATE_SECONDS)
    backward(model, batch, "abcd")
    in_time = rank == 1 or clocks[0] - start < LATE_SECONDS
    return {
        "rank 0 computes its last gradient while rank 1 sleeps": tried(
            in_time, float(batch[0][0, 0])
        ),
        "then its backward waits for rank 1": copied(gradients(module)),
    }


def _unsent(rank: int, world_size: int, answer: _SmallBuckets, seed: int) -> dict[str, object]:
    """Facts of a rank about no_sync."""
    batch, again, *_ = batches_of(rank, seed)
    facts = {}
    module = Net(seed + rank)
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
