"""Probe of exercise ddp_facts."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_word

DDP_TOPICS = {
    "A": "what wrapping a model sends",
    "B": "who divides the batch",
    "C": "when gradients are exchanged",
    "D": "what is in p.grad",
    "E": "the state of the optimizers",
    "F": "whose loss it is",
    "G": "the statistics of BatchNorm",
    "H": "a barrier before the batch",
    "I": "a barrier after the download",
    "J": "who shuffles",
    "K": "what padding does to an accuracy",
    "L": "one batch fewer on one rank",
    "M": "what torchrun sets",
    "N": "what MASTER_ADDR is for",
}


@exercise(quiz=True, same_facts_at_all_seeds=True)
def ddp_facts(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The verdicts one by one; the first wrong one alone decides what is said about it."""
    verdicts = answer()
    yield "returns a dictionary", "dict" if isinstance(verdicts, dict) else type_word(verdicts)
    yield "with the letters A to N", sorted(map(str, verdicts))
    types = {letter: type_word(verdicts[letter]) for letter in DDP_TOPICS}
    yield "each has True or False", types
    for letter, topic in DDP_TOPICS.items():
        yield f"{letter}: {topic}", verdicts[letter]
