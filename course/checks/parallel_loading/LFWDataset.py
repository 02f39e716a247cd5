"""Probe of exercise LFWDataset: a folder of small JPEG files, in several modes."""

import tempfile
import warnings
from pathlib import Path

import numpy
import torch
from PIL import Image
from torch.utils.data import Dataset

from course.checks.parallel_loading.pictures import PEOPLE, picture
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.files import open_descriptors
from course.engine.probing.tensors import kind


@exercise()
def LFWDataset(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A folder of images, a transform, then files in other modes."""
    rng = torch.Generator().manual_seed(seed)
    warnings.simplefilter("ignore", ResourceWarning)  # what stays open is a fact of its own
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve() / "faces"
        names = [f"{person}/{n:02d}.jpg" for person in PEOPLE for n in range(1, 3 + seed % 2)]
        for place in torch.randperm(len(names), generator=rng).tolist():
            path = folder / names[place]
            path.parent.mkdir(parents=True, exist_ok=True)
            picture(rng, 20 + place, 31).save(path, quality=95)
        yield from _paths_and_images(answer, folder, names)
        yield from _transform(answer, folder, names)
        odd = folder / "Grey" / "01.jpg"
        odd.parent.mkdir()
        yield from _modes(answer, folder, odd, rng)


def _short(path):
    return "/".join(Path(path).parts[-2:])


def _paths_and_images(answer, folder, names):
    dataset = answer(folder)
    yield "is a torch Dataset", isinstance(dataset, Dataset)
    yield "its length is the number of images", len(dataset)
    yield "paths holds each <Person>/<name>.jpg, sorted", list(map(_short, dataset.paths))
    place = {_short(path): i for i, path in enumerate(dataset.paths)}
    images = {name: dataset[place[name]] for name in (names[0], names[-1])}
    yield (
        "an image is a float32 tensor (3, H, W)",
        {name: kind(image) for name, image in images.items()},
    )
    yield "its values", images
    yield "the name of a person", dataset.name(place[names[-1]])


def _transform(answer, folder, names):
    kept = []

    def transform(image):  # looks at no pixel
        kept.append(image)
        return f"{image.width} x {image.height}"

    dataset = answer(folder, transform=transform)
    yield "keeps the transform as self.transform", dataset.transform is transform
    place = [_short(path) for path in dataset.paths].index(names[1])
    yield "returns what the transform returns", dataset[place]
    yield (
        "the transform is given a PIL image in RGB",
        [isinstance(kept[0], Image.Image), kept[0].mode],
    )
    yield "leaves no file open", not any(map(open_descriptors, dataset.paths))
    try:
        pixels = numpy.asarray(kept[0])
    except Exception:
        pixels = "none: its file was closed before it was decoded"
    yield "its pixels can still be read then", pixels


def _modes(answer, folder, odd, rng):
    """Files at `odd` in other modes than RGB; the dataset is made before the last of them is
    written.
    """
    for mode, text in (("L", "grey-scale"), ("CMYK", "CMYK")):
        picture(rng).convert(mode).save(odd, quality=95)
        dataset = answer(folder)
        i = [_short(p) for p in dataset.paths].index("Grey/01.jpg")
        yield f"a {text} JPEG in RGB", dataset[i]
    picture(rng).save(odd, quality=95)
    yield "an image is read when it is asked for, not before", dataset[i]
