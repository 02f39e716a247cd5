"""Known mistakes of exercise LFWDataset, and right answers in other styles."""

import glob
import io
import os
from pathlib import Path

from PIL import Image, UnidentifiedImageError
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.transforms import functional

from course.checks.known_answers import alternative

MISTAKES = {
    "ModeOfTheFile": (
        "An image keeps the mode of its file: a grey-scale JPEG gives one channel. Convert every image to RGB.",
        ('file.convert("RGB")', "file.copy()"),
    ),
    "AllAtOnce": (
        "All images are decoded in the constructor, so one broken file stops everything. Open a file in __getitem__.",
        (
            "        path = self.paths[i]\n        try:",
            "        return self.transform(self.images[i])\n\n    def read(self, path):\n        try:",
        ),
        ("return self.transform(image)", "return image"),
        ("else transform\n", "else transform\n        self.images = [self.read(path) for path in self.paths]\n"),
    ),
    "OpenAfterAnError": (
        "A file that fails to decode is left open. Write `with Image.open(path) as file:`, which always closes it.",
        ("with Image.open(path) as file:\n                image = file", "image = Image.open(path)"),
    ),
    "NeverDecoded": (
        "Image.open reads no pixel and keeps the file open. Use `with`, and decode inside it, for instance by convert.",
        (
            "with Image.open(path) as file:\n                image =",
            'file = Image.open(path)\n            image = file if file.mode == "RGB" else',
        ),
    ),
    "ClosedUndecoded": (
        "The transform gets an image that is not decoded, in the mode of its file. Convert to RGB inside the `with`.",
        ('file.convert("RGB")', "self.transform(file)"),
        ("return self.transform(image)", "return image"),
    ),
    "ConvertedIfNeeded": (
        "Image.open reads no pixel: an image in RGB that is not converted is closed before it is decoded. Convert "
        "every image inside the `with`, which decodes and copies it.",
        ('= file.convert("RGB")', '= file if file.mode == "RGB" else file.convert("RGB")'),
    ),
    "NamelessError": (
        "The error of a broken JPEG does not name the file. Catch OSError, raise one with the path in its message.",
        ('raise OSError(f"{path} cannot be decoded: {error}") from error', "raise"),
    ),
    "LambdaInside": (
        "A lambda cannot be pickled, and spawned workers get the dataset pickled. Keep transforms.ToTensor() itself.",
        ("transforms.ToTensor() if", "(lambda image: transforms.functional.to_tensor(image)) if"),
    ),
    "TransformInTheTry": (
        "An OSError of the transform is reported as a file that cannot be decoded. Apply the transform after `try`.",
        ('image = file.convert("RGB")', 'return self.transform(file.convert("RGB"))'),
    ),
    "BytesOfNumpy": (
        "An image is a NumPy array of bytes, (H, W, 3). By default apply transforms.ToTensor().",
        ("self.transform = transforms.ToTensor()", "import numpy\n\n        self.transform = numpy.array"),
    ),
}


@alternative
class BytesFirst(Dataset):
    def __init__(self, folder, transform=None):
        self.paths, self.transform = [], transform
        for person in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if os.path.isdir(os.path.join(folder, person)) and not person.startswith("."):
                files = [f for f in os.listdir(os.path.join(folder, person)) if f.endswith(".jpg") and f[0] != "."]
                self.paths += [Path(folder, person, file) for file in sorted(files)]
        if len(self.paths) == 0:
            raise FileNotFoundError(f"{folder}: expected Person/name.jpg below it")

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        content = self.paths[i].read_bytes()
        try:
            image = Image.open(io.BytesIO(content))
            image.load()
        except OSError as error:
            raise OSError("broken file: " + str(self.paths[i])) from error
        image = image.convert("RGB")
        return functional.to_tensor(image) if self.transform is None else self.transform(image)

    def name(self, i):
        return " ".join(self.paths[i].parts[-2].split("_"))


@alternative
class GlobAndAFunction(Dataset):
    def __init__(self, folder, transform=transforms.ToTensor()):  # noqa: B008
        self.paths = [Path(p) for p in sorted(glob.glob(f"{folder}/*/*.jpg"))]  # glob.glob leaves out hidden names
        self.names = [p.parent.name.replace("_", " ") for p in self.paths]
        self.transform = transform
        if not self.paths:
            raise FileNotFoundError(2, "no */*.jpg here", str(folder))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        try:
            file = Image.open(self.paths[i])
            try:
                image = file.convert("RGB")
            finally:
                file.close()
        except UnidentifiedImageError:
            raise
        except OSError as error:
            error.args = (f"{error} ({self.paths[i]})",)
            raise
        return self.transform(image)

    def name(self, i):
        return self.names[i]
