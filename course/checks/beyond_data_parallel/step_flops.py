"""Probe of exercise step_flops."""

from dataclasses import replace

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import number_kind
from course.training.plans import Gpt

SMALL = Gpt(vocabulary=96, width=64, layers=3, heads=4, columns=24)
NO_SCORES = replace(SMALL, vocabulary=0)
LARGE = Gpt(vocabulary=32_000, width=4096, layers=32, heads=32, columns=2048)


@exercise()
def step_flops(answer: Answer, device: torch.device, seed: int) -> Facts:
    """FLOPs of a training step of GPTs of several sizes."""
    yield "returns a number", number_kind(answer(SMALL, 2))
    no_blocks = replace(SMALL, layers=0, vocabulary=100 + seed % 41)
    yield "no block: the scores alone", answer(no_blocks, 2)
    short = replace(NO_SCORES, layers=1, columns=1)
    yield "one block, no scores, sequences of one token", answer(short, 2 + seed % 7)
    yield "one block, no scores, sequences of 24 tokens", answer(replace(NO_SCORES, layers=1), 2)
    yield "three blocks and the scores", answer(SMALL, 2)
    for name, value in (("width", 128), ("heads", 8), ("columns", 48 + seed % 11)):
        yield f"{name} {value}", answer(replace(SMALL, **{name: value}), 2)
    yield "five sequences", answer(SMALL, 5)
    yield "a model of 7 billion parameters, 512 sequences", answer(LARGE, 512)
