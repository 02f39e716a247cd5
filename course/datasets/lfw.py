"""Labeled Faces in the Wild as a folder of JPEGs: prepared files -> *folder* -> a Dataset.

Layout, size and file size are LFW's: <Person>/<Person>_0001.jpg, 250 x 250, some 13 KB. Listing the
images and the Dataset are exercises of unit 01_parallel_loading. data_scripts/lfw.py prepares the
real photographs; where they are missing, `folder` makes a stand-in of invented people, whom
faces.py draws.
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from course.datasets import ADVICE, check_name, data_folder, faces
from course.datasets.faces import SIZE as SIZE
from course.system.files import atomic_folder

STANDINS = {"tiny": (40, 240), "lfw": (80, 640)}  # name -> (people, images)
STANDIN = "standin-{}"  # rename it when drawings change, and stand-ins are made again
QUALITY = 84  # of the JPEG files; with the grain, they become as large as those of lfw.tgz, 13.6 kB


def heavy_transform() -> Callable[..., Any]:
    """An augmentation that costs more than decoding.

    It takes a PIL image in RGB and returns a float32 tensor (3, H, W) from 0 to 1. It moves, zooms,
    mirrors and recolours the image at random, drawing from torch's global random numbers.

    Source: the affine map is the one of DTU course 02476.
    """
    import torch  # here, because it takes seconds that a listing of files need not wait
    from torchvision.transforms import v2

    affine = dict(
        degrees=5,
        translate=(0.1, 0.1),
        scale=(0.5, 2.0),
        interpolation=v2.InterpolationMode.BILINEAR,
    )
    return v2.Compose(
        [
            v2.RandomAffine(**affine),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.ToPureTensor(),
        ]
    )


def folder(name: str = "lfw", data: str | Path | None = None) -> Path:
    """The Path of a folder in LFW's layout: the prepared photographs, else a stand-in.

    A stand-in is made once and kept. Prints one line if it is a stand-in.

    Args:
        name: one of STANDINS ("tiny" exists as a stand-in only).
        data: the data folder; default COURSE_DATA, else `data/` next to the package.

    Raises: CourseError for an unknown name, a full disk, or a folder that cannot be written.
    """
    check_name("LFW", name, STANDINS)
    real = prepared_folder(data)
    if name == "lfw" and any(real.glob("*/*.jpg")):
        return real
    n_people, n_images = STANDINS[name]
    notice = f"{name}: stand-in, {n_images:,} drawn faces of {n_people} people"
    print(notice + "; real: make data" * (name == "lfw"))
    standin = real.with_name(STANDIN.format(name))
    if not _is_complete(standin, n_images):
        # another process may have been faster and be reading its own, which has the same pixels
        with atomic_folder(standin, ADVICE, keep=lambda: _is_complete(standin, n_images)) as new:
            make_standin(new / "lfw", n_people, n_images)
    return standin / "lfw"


def prepared_folder(data: str | Path | None = None) -> Path:
    """The Path where `folder` expects the prepared photographs: lfw/lfw/ in the data folder."""
    return data_folder(data) / "lfw" / "lfw"


def _is_complete(standin, n_images):
    """True if no image was deleted; `atomic_folder` has made it whole or not at all."""
    return sum(1 for _ in (standin / "lfw").glob("*/*.jpg")) == n_images


def make_standin(root: str | Path, n_people: int, n_images: int, seed: int = 2007) -> None:
    """Write `n_images` drawn faces of `n_people` people below the folder `root`, in LFW's layout.

    Images per person are long-tailed, at least 1. Every image depends on `seed`, its person and its
    number only. Shows a bar on stdout.
    """
    rng = _generator(seed)
    names = _names(rng, n_people)
    counts = _images_per_person(rng, n_people, n_images)
    with tqdm(total=n_images, file=sys.stdout, unit="image", leave=False, mininterval=1) as bar:
        for i, (name, count) in enumerate(zip(names, counts, strict=True)):
            person = faces.random_person(_generator([seed, i]))
            of_person = Path(root) / name
            of_person.mkdir(parents=True)
            for number in range(1, count + 1):
                image = faces.picture(person, _generator([seed, i, number]))
                # Pillow does not notice that a disk takes only a part of what it writes
                file = io.BytesIO()
                image.save(file, "JPEG", quality=QUALITY)
                (of_person / f"{name}_{number:04d}.jpg").write_bytes(file.getvalue())
                bar.update()


def _generator(seed):
    return np.random.Generator(np.random.PCG64(seed))


def _names(rng, n):
    """`n` different invented names like "Avel_Borin"."""
    starts = "B D F G H J K L M N P R S T V Z Br Dr Gl Kr Pl Th Tr Vr".split()
    vowels = "a e i o u".split()
    middles = "b d g l m n r v z lv nd rm".split()
    ends = "l n r s th x m nk rd".split()
    syllables = (starts, vowels, middles, vowels, ends)
    names = {}  # a dict keeps their order
    while len(names) < n:
        first = "".join(rng.choice(letters) for letters in syllables)
        last = "".join(rng.choice(letters) for letters in syllables)
        names[f"{first}_{last}"] = None
    return list(names)


def _images_per_person(rng, n_people, n_images):
    """int64 (n_people,), sum `n_images`, at least 1 each: Zipf-Mandelbrot, in random order."""
    share = (np.arange(n_people) + 3.0) ** -1.6
    counts = 1 + (share / share.sum() * (n_images - n_people)).astype(np.int64)
    counts[: n_images - counts.sum()] += 1
    return rng.permutation(counts)
