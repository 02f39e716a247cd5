"""Probe of exercise activation_bytes."""

from dataclasses import replace

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import number_kind
from course.training.plans import Gpt, Plan

LARGE = Gpt(vocabulary=32_000, width=4096, layers=32, heads=32, columns=2048)


@exercise()
def activation_bytes(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Bytes that the blocks of a rank save under several plans."""
    gpt = Gpt(vocabulary=96, width=64, layers=12, heads=4, columns=8 * (3 + seed % 29))
    one = replace(gpt, layers=1)
    yield "returns a number", number_kind(answer(one, 1, Plan()))
    yield "one block, one sequence", answer(one, 1, Plan())
    yield "8 heads", answer(replace(one, heads=8), 1, Plan())
    yield "in float32", answer(one, 1, Plan(), size=4)
    yield "12 blocks, 4 sequences", answer(gpt, 4, Plan())
    yield "2 data ranks share the 4 sequences", answer(gpt, 4, Plan(data=2))
    yield "4 micro-batches of one sequence", answer(gpt, 4, Plan(micro_batches=4))
    yield "4 tensor ranks", answer(gpt, 4, Plan(tensor=4))
    yield "3 pipeline ranks, 6 micro-batches", answer(gpt, 6, Plan(pipeline=3, micro_batches=6))
    yield "3 pipeline ranks, 2 micro-batches", answer(gpt, 6, Plan(pipeline=3, micro_batches=2))
    yield "checkpointing, one block", answer(one, 4, Plan(checkpointing=True))
    yield "checkpointing, 12 blocks", answer(gpt, 4, Plan(checkpointing=True))
    all_of_it = Plan(2, 4, 3, 0, 6, True)
    yield "checkpointing on 2 data, 4 tensor and 3 pipeline ranks", answer(gpt, 24, all_of_it)
    yield "7 billion parameters on 64 devices", answer(LARGE, 512, Plan(8, 4, 2, 1, 16))
