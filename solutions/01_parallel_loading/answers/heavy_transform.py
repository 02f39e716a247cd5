"""Known mistakes of exercise heavy_transform, and right answers in other styles."""

import numpy
import torch
from torch import nn
from torchvision import transforms
from torchvision.transforms import functional, v2

from course.checks.known_answers import alternative


def in_order(*places):
    """The edits that put the six steps into another order."""
    yield "return v2.Compose(", "steps = ("
    yield "        ]\n    )\n", f"        ]\n    )\n    return v2.Compose([steps[i] for i in {places}])\n"


MISTAKES = {
    "nearest_pixel": (
        "The affine map takes the nearest pixel, its default. Ask for interpolation BILINEAR.",
        (", interpolation=v2.InterpolationMode.BILINEAR", ""),
    ),
    "colours_first": (
        "The colours are jittered before the affine map. The order is affine, mirror, colours, tensor.",
        *in_order(2, 0, 1, 3, 4, 5),
    ),
    "affine_last": (
        "The steps are reversed: colours, mirror, affine map. The order is affine, mirror, colours, tensor.",
        *in_order(2, 1, 0, 3, 4, 5),
    ),
    "turned_one_way": (
        "The image is turned one way only: two degrees are the least and the most. Ask for degrees=5: -5 to 5.",
        ("degrees=5", "degrees=(0, 5)"),
    ),
    "mirror_first": (
        "The mirror comes before the affine map. The order is affine, mirror, colours, tensor.",
        *in_order(1, 0, 2, 3, 4, 5),
    ),
    "tensor_first": (
        "The image becomes a tensor first, where torchvision interpolates otherwise. ToTensor comes last.",
        *in_order(3, 4, 5, 0, 1, 2),
    ),
    "no_mirror": (
        "The mirror image is missing. RandomHorizontalFlip comes after the affine map.",
        ("            v2.RandomHorizontalFlip(),\n", ""),
    ),
    "bytes_at_the_end": (
        "The tensor holds bytes from 0 to 255. transforms.ToTensor() makes float32 from 0 to 1.",
        ("            v2.ToDtype(torch.float32, scale=True),\n", ""),
    ),
    "divided_twice": (
        "The values are divided by 255 twice: ToTensor has done it already.",
        ("scale=True),\n", "scale=True),\n            v2.Normalize([0.0], [255.0]),\n"),
    ),
    "a_lambda": (
        "A lambda cannot be pickled, and spawned workers get it as a pickle. Use transforms.Compose.",
        ("return v2", "steps = v2"),
        ("        ]\n    )\n", "        ]\n    )\n    return lambda image: steps(image)\n"),
    ),
}


@alternative
def modules_in_a_row():
    affine = transforms.RandomAffine(
        (-5, 5), (0.1, 0.1), (0.5, 2.0), interpolation=transforms.InterpolationMode("bilinear")
    )
    jitter = transforms.ColorJitter((0.7, 1.3), (0.7, 1.3), (0.7, 1.3))
    end = [v2.PILToTensor(), transforms.ConvertImageDtype(torch.float32)]
    return nn.Sequential(affine, transforms.RandomHorizontalFlip(), jitter, *end)


class _StepByStep:
    def __call__(self, image):
        angle, shift, zoom, shear = transforms.RandomAffine.get_params(
            [-5.0, 5.0], [0.1, 0.1], [0.5, 2.0], None, list(image.size)
        )
        bilinear = transforms.InterpolationMode.BILINEAR
        image = functional.affine(image, angle, shift, zoom, shear, interpolation=bilinear, fill=0)
        if torch.rand(()) < 0.5:
            image = functional.hflip(image)
        order, *factors, _ = transforms.ColorJitter.get_params((0.7, 1.3), (0.7, 1.3), (0.7, 1.3), None)
        adjust = functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation
        for step in order.tolist():
            if step < 3:
                image = adjust[step](image, factors[step])
        return torch.from_numpy(numpy.array(image)).permute(2, 0, 1) / 255


@alternative
def functions_and_their_params():
    return _StepByStep()
