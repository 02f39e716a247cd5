"""Known mistakes of exercise heavy_transform, and right answers in other styles."""

import numpy
import torch
from PIL import Image
from torch import nn
from torchvision import transforms
from torchvision.transforms import functional, v2

from course.checks.engine import alternative, mistake


def heavy(degrees=5, shift=0.1, scale=(0.5, 2.0), interpolation="bilinear", jitter=0.3, last=None):
    """The steps of the transform, with one idea to get wrong each."""
    modes = {"bilinear": transforms.InterpolationMode.BILINEAR, "nearest": transforms.InterpolationMode.NEAREST}
    return [
        transforms.RandomAffine(degrees, (shift, shift), scale, interpolation=modes[interpolation]),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(jitter, jitter, jitter),
        last or transforms.ToTensor(),
    ]


@mistake("heavy_transform", "The affine map takes the nearest pixel, its default. Ask for interpolation BILINEAR.")
def nearest_pixel():
    return transforms.Compose(heavy(interpolation="nearest"))


@mistake(
    "heavy_transform", "The colours are jittered before the affine map. The order is affine, mirror, colours, tensor."
)
def colours_first():
    affine, flip, colour, tensor = heavy()
    return transforms.Compose([colour, affine, flip, tensor])


@mistake(
    "heavy_transform",
    "The steps stand in the opposite order: colours, mirror, affine map. The order is affine, mirror, colours, tensor.",
)
def affine_last():
    affine, flip, colour, tensor = heavy()
    return transforms.Compose([colour, flip, affine, tensor])


@mistake(
    "heavy_transform",
    "The image is turned one way only: two degrees are the least and the most. Ask for degrees=5, which is -5 to 5.",
)
def turned_one_way():
    return transforms.Compose(heavy(degrees=(0, 5)))


@mistake("heavy_transform", "The mirror comes before the affine map. The order is affine, mirror, colours, tensor.")
def mirror_first():
    affine, flip, colour, tensor = heavy()
    return transforms.Compose([flip, affine, colour, tensor])


@mistake(
    "heavy_transform",
    "The image becomes a tensor first, where torchvision interpolates otherwise. ToTensor comes last.",
)
def tensor_first():
    affine, flip, colour, tensor = heavy()
    return transforms.Compose([tensor, affine, flip, colour])


@mistake("heavy_transform", "The mirror image is missing. RandomHorizontalFlip comes after the affine map.")
def no_mirror():
    affine, _, colour, tensor = heavy()
    return transforms.Compose([affine, colour, tensor])


@mistake("heavy_transform", "The tensor holds bytes from 0 to 255. transforms.ToTensor() makes float32 from 0 to 1.")
def bytes_at_the_end():
    return transforms.Compose(heavy(last=transforms.PILToTensor()))


class _Divided:
    def __init__(self):
        self.steps = transforms.Compose(heavy())

    def __call__(self, image):
        return self.steps(image) / 255


@mistake("heavy_transform", "The values are divided by 255 twice: ToTensor has done it already.")
def divided_twice():
    return _Divided()


@mistake(
    "heavy_transform", "A lambda cannot be pickled, and spawned workers get it as a pickle. Use transforms.Compose."
)
def a_lambda():
    steps = transforms.Compose(heavy())
    return lambda image: steps(image)


@alternative("heavy_transform")
def second_generation():
    return v2.Compose(
        [
            v2.RandomAffine(5, (0.1, 0.1), (0.5, 2), interpolation=Image.Resampling.BILINEAR),
            v2.RandomHorizontalFlip(0.5),
            v2.ColorJitter(0.3, 0.3, 0.3),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )


@alternative("heavy_transform")
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


@alternative("heavy_transform")
def functions_and_their_params():
    return _StepByStep()
