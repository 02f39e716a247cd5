"""Probe of exercise heavy_transform."""

import torch
from PIL import Image

from course.checks.engine import exercise
from course.checks.parallel_loading.pictures import picture
from course.checks.probing.pickling import can_be_pickled
from course.checks.probing.randomness import random_state, seed_others
from course.checks.probing.tensors import kind


@exercise()
def heavy_transform(answer, device, seed):
    """Pictures after the transform, from the same torch seeds."""
    rng = torch.Generator().manual_seed(seed)
    face = picture(rng, 44 + seed % 5, 60)
    white = Image.new("RGB", face.size, "white")
    given = face.tobytes()
    transform = answer()

    def seen(image, torch_seed):
        torch.manual_seed(1000 * seed + torch_seed)
        return transform(image)

    def landing(image):
        lit = (image >= (image.min() + image.max()) / 2).all(0)
        row, column = lit.nonzero().double().mean(0).tolist()
        return {"share of the frame": lit.double().mean().item(), "row of its middle": row, "column": column}

    yield "returns a callable", callable(transform)
    first = seen(face, 0)
    yield "makes a float32 tensor (3, H, W) of an image", kind(first)
    many = torch.stack([seen(face, i) for i in range(8)])
    yield "all values lie from 0 to 1", bool(((many >= 0) & (many <= 1)).all())
    yield "the same torch seed gives the same picture", torch.equal(first, seen(face, 0))
    yield "another torch seed gives another", not torch.equal(first, many[1])
    torch.manual_seed(seed)
    yield "so does the next call", not torch.equal(transform(face), transform(face))
    before = random_state()[1:]
    seen(face, 1)
    yield "numpy's and Python's random numbers are not touched", random_state()[1:] == before
    seed_others(seed + 1)
    yield "nor do they matter", torch.equal(first, seen(face, 0))
    yield "the image itself stays as it was", face.tobytes() == given
    yield "where a white picture lands", [landing(seen(white, i)) for i in range(8)]
    grey = Image.new("RGB", face.size, (90, 130, 60))
    yield "the colours of a picture of one colour", [seen(grey, i).amax((1, 2)) for i in range(8)]
    yield "eight pictures", many
    yield "can be pickled", can_be_pickled(transform)
