"""Known mistakes of exercise LFWDataset, and right answers in other styles."""

import glob
import io
from pathlib import Path

from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.transforms import functional

from course.engine.known_answers import alternative
from course.loading import loaders

MISTAKES = {
    "ModeOfTheFile": (
        "An image keeps the mode of its file: a grey-scale JPEG gives one channel. Convert every image to RGB.",
        ('file.convert("RGB")', "file.copy()"),
    ),
    "AllAtOnce": (
        "All images are decoded in the constructor, whether they are needed or not. Open a file in __getitem__.",
        (
            "        with Image.open(self.paths[i])",
            "        return self.transform(self.images[i])\n\n    def read(self, path):\n        with Image.open(path)",
        ),
        ("return self.transform(image)", "return image"),
        (
            "else transform\n",
            "else transform\n        self.images = [self.read(path) for path in self.paths]\n",
        ),
    ),
    "NeverDecoded": (
        "Image.open reads no pixel and keeps the file open. Use `with`, and decode inside it, for instance by convert.",
        (
            "with Image.open(self.paths[i]) as file:\n            image =",
            'file = Image.open(self.paths[i])\n        image = file if file.mode == "RGB" else',
        ),
    ),
    "NeverClosed": (
        "Image.open without `with` leaves the file open, and its pixels are not read before the transform. Open it in "
        "`with`, and convert it to RGB there.",
        (
            '        with Image.open(self.paths[i]) as file:\n            image = file.convert("RGB")',
            "        image = Image.open(self.paths[i])",
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
    "BytesOfNumpy": (
        "An image is a NumPy array of bytes, (H, W, 3). By default apply transforms.ToTensor().",
        (
            "self.transform = transforms.ToTensor()",
            "import numpy\n\n        self.transform = numpy.array",
        ),
    ),
}


@alternative
class BytesFirst(Dataset):
    def __init__(self, folder, transform=None):
        self.paths, self.transform = loaders.image_paths(folder), transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        image = Image.open(io.BytesIO(self.paths[i].read_bytes())).convert("RGB")
        return functional.to_tensor(image) if self.transform is None else self.transform(image)

    def name(self, i):
        return " ".join(self.paths[i].parts[-2].split("_"))


@alternative
class GlobAndAFunction(Dataset):
    def __init__(self, folder, transform=transforms.ToTensor()):  # noqa: B008
        self.paths = [
            Path(p) for p in sorted(glob.glob(f"{folder}/*/*.jpg"))
        ]  # glob.glob leaves out hidden names
        self.names = [p.parent.name.replace("_", " ") for p in self.paths]
        self.transform = transform

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        file = Image.open(self.paths[i])
        try:
            image = file.convert("RGB")
        finally:
            file.close()
        return self.transform(image)

    def name(self, i):
        return self.names[i]
