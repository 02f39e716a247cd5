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
from course.engine.probing.laws import tried
from course.engine.probing.tensors import kind


@exercise()
def LFWDataset(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A folder of images, a transform, then files in other modes."""
    rng = torch.Generator().manual_seed(seed)
    warnings.simplefilter("ignore", ResourceWarning)  # a separate fact tells what stays open
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve() / "faces"
        names = _write_pictures(folder, 2 + seed % 2, rng)
        yield from _paths_and_images(answer, folder, names)
        yield from _transform(answer, folder, names)
        odd = folder / "Grey" / "01.jpg"
        odd.parent.mkdir()
        yield from _modes(answer, folder, odd, rng)


def _write_pictures(folder: Path, per_person: int, rng: torch.Generator) -> list[str]:
    """Write pictures of all people in a random order; return their names, sorted."""
    names = []
    for person in PEOPLE:
        for number in range(1, per_person + 1):
            names.append(f"{person}/{number:02d}.jpg")
    for i in torch.randperm(len(names), generator=rng).tolist():
        path = folder / names[i]
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(rng, 20 + i, 31).save(path, quality=95)
    return names


def _short(path: str | Path) -> str:
    """The folder and the name of a file, as in <Person>/<name>.jpg."""
    return "/".join(Path(path).parts[-2:])


def _paths_and_images(answer: Answer, folder: Path, names: list[str]) -> Facts:
    dataset = answer(folder)
    yield "is a torch Dataset", isinstance(dataset, Dataset)
    yield "its length is the number of images", len(dataset)
    yield "paths holds each <Person>/<name>.jpg, sorted", list(map(_short, dataset.paths))
    index_of = {_short(path): i for i, path in enumerate(dataset.paths)}
    first = names[0]
    last = names[-1]
    images = {first: dataset[index_of[first]], last: dataset[index_of[last]]}
    kinds = {first: kind(images[first]), last: kind(images[last])}
    yield "an image is a float32 tensor (3, H, W)", kinds
    yield "its values", images
    yield "the name of a person", dataset.name(index_of[last])


def _transform(answer: Answer, folder: Path, names: list[str]) -> Facts:
    kept = []

    def transform(image: Image.Image) -> str:  # looks at no pixel
        kept.append(image)
        return f"{image.width} x {image.height}"

    dataset = answer(folder, transform=transform)
    yield "keeps the transform as self.transform", dataset.transform is transform
    index = list(map(_short, dataset.paths)).index(names[1])
    yield "returns what the transform returns", dataset[index]
    is_image_and_mode = [isinstance(kept[0], Image.Image), kept[0].mode]
    yield "the transform is given a PIL image in RGB", is_image_and_mode
    none_is_open = not any(map(open_descriptors, dataset.paths))
    bytes_of_file = (folder / names[1]).stat().st_size
    yield "leaves no file open", tried(none_is_open, bytes_of_file)
    try:
        pixels = numpy.asarray(kept[0])
    except Exception:
        pixels = "none: its file was closed before it was decoded"
    yield "its pixels can still be read then", pixels


def _modes(answer: Answer, folder: Path, odd: Path, rng: torch.Generator) -> Facts:
    """Files at `odd` in other modes than RGB; the last is written after the dataset is made."""
    for mode, text in (("L", "grey-scale"), ("CMYK", "CMYK")):
        picture(rng).convert(mode).save(odd, quality=95)
        dataset = answer(folder)
        index = list(map(_short, dataset.paths)).index("Grey/01.jpg")
        yield f"a {text} JPEG in RGB", dataset[index]
    picture(rng).save(odd, quality=95)
    yield "an image is read when it is asked for, not before", dataset[index]
