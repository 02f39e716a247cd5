"""Probe of exercise batch_picture."""

import numpy
import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import kind_and_device


@exercise()
def batch_picture(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Batches of smooth and of random images."""
    rng = torch.Generator().manual_seed(seed)
    height = 4 + seed % 3
    width = 9 + seed % 5
    images = torch.rand(6, 3, height, width, generator=rng).to(device)
    picture = answer(images, 3)
    yield "returns a NumPy array (height, width, 3)", kind_and_device(picture)
    yield "its pixels", numpy.asarray(picture)
    lone = answer(images[:5], 2)
    yield "a last row that is not full", numpy.asarray(lone)
    yield "fewer images than columns", numpy.asarray(answer(images[:2], 4))
