"""Probe of exercise sent_bytes."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.training.plans import Gpt, Plan

LARGE = Gpt(vocabulary=32_000, width=4096, layers=32, heads=32, columns=2048)


@exercise()
def sent_bytes(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Bytes that a device sends per step under several plans."""
    width = 64 * (1 + seed % 7)
    gpt = Gpt(vocabulary=96, width=width, layers=12, heads=4, columns=8 * (3 + seed % 29))
    yield "is a dict with three keys", sorted(answer(gpt, 4, Plan()))
    yield "one device sends nothing", tried(answer(gpt, 4, Plan()), gpt.columns)
    for data in (2, 4):
        yield f"data: {data} ranks", answer(gpt, 4, Plan(data))["data"]
    for stage in (1, 2, 3):
        plan = Plan(2, stage=stage)
        yield f"data: stage {stage}, one micro-batch", answer(gpt, 4, plan)["data"]
    for stage in range(4):
        plan = Plan(2, stage=stage, micro_batches=4)
        yield f"data: stage {stage}, 4 micro-batches", answer(gpt, 8, plan)["data"]
    yield "data: each rank has a third of the layers", answer(gpt, 8, Plan(2, pipeline=3))["data"]
    yield "data: each rank has a half of each layer", answer(gpt, 8, Plan(2, tensor=2))["data"]
    for tensor in (2, 4):
        yield f"tensor: {tensor} ranks", answer(gpt, 4, Plan(tensor=tensor))["tensor"]
    yield "tensor: with checkpointing", answer(gpt, 4, Plan(tensor=2, checkpointing=True))["tensor"]
    plan = Plan(tensor=2, pipeline=3, micro_batches=4)
    yield "tensor: a third of the layers, 4 micro-batches", answer(gpt, 4, plan)["tensor"]
    yield "tensor: 2 data ranks", answer(gpt, 4, Plan(data=2, tensor=2))["tensor"]
    for pipeline in (2, 3):
        plan = Plan(data=2, pipeline=pipeline, micro_batches=2)
        yield f"pipeline: {pipeline} ranks", answer(gpt, 4, plan)["pipeline"]
    plan = Plan(tensor=4, pipeline=3, micro_batches=2)
    yield "pipeline: 3 ranks, 4 tensor ranks", answer(gpt, 4, plan)["pipeline"]
    of_large = answer(LARGE, 512 * (1 + seed % 3), Plan(8, 4, 2, 1, 16))
    yield "7 billion parameters on 64 devices", of_large
