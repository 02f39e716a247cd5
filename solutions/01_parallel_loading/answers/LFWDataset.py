"""Known mistakes of exercise LFWDataset, and right answers in other styles."""

import glob
import io
import os
from pathlib import Path

import numpy
from PIL import Image, UnidentifiedImageError
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.transforms import functional

from course.checks.engine import alternative, mistake


class _Faces(Dataset):
    """A right dataset in pieces, so that each mistake can spoil one of them."""

    def __init__(self, folder, transform=None):
        self.paths = self.found(Path(folder))
        self.transform = transforms.ToTensor() if transform is None else transform
        if not self.paths:
            self.complain(folder)

    def found(self, folder):
        return sorted(folder.glob("[!.]*/[!.]*.jpg"))

    def complain(self, folder):
        raise FileNotFoundError(f"no <Person>/<name>.jpg in {folder}")

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return self.transform(self.read(self.paths[i]))

    def read(self, path):
        try:
            return self.decoded(path)
        except OSError as error:
            raise OSError(f"{path}: {error}") from error

    def decoded(self, path):
        with Image.open(path) as file:
            return file.convert("RGB")

    def name(self, i):
        return self.paths[i].parent.name.replace("_", " ")


@mistake(
    "LFWDataset",
    "An image keeps the mode of its file: a grey-scale JPEG gives one channel. Convert every image to RGB.",
)
class ModeOfTheFile(_Faces):
    def decoded(self, path):
        with Image.open(path) as file:
            file.load()
            return file.copy()


@mistake(
    "LFWDataset",
    "All images are decoded in the constructor, so one broken file stops everything. Open a file in __getitem__.",
)
class AllAtOnce(_Faces):
    def __init__(self, folder, transform=None):
        super().__init__(folder, transform)
        self.images = [self.read(path) for path in self.paths]

    def __getitem__(self, i):
        return self.transform(self.images[i])


@mistake(
    "LFWDataset",
    "A file that fails to decode is left open. Write `with Image.open(path) as file:`, which closes it in every case.",
)
class OpenAfterAnError(_Faces):
    def decoded(self, path):
        return Image.open(path).convert("RGB")


@mistake(
    "LFWDataset",
    "Image.open reads no pixel and keeps the file open. Use `with`, and decode inside of it, for instance by convert.",
)
class NeverDecoded(_Faces):
    def decoded(self, path):
        file = Image.open(path)
        return file if file.mode == "RGB" else file.convert("RGB")


@mistake(
    "LFWDataset",
    "The transform gets an image that is not decoded, in the mode of its file. Convert to RGB inside of the `with`.",
)
class ClosedUndecoded(_Faces):
    def __getitem__(self, i):
        try:
            with Image.open(self.paths[i]) as file:
                return self.transform(file)
        except OSError as error:
            raise OSError(f"{self.paths[i]}: {error}") from error


@mistake(
    "LFWDataset",
    "The error of a broken JPEG does not say which file it is. Catch OSError, raise one with the path in its message.",
)
class NamelessError(_Faces):
    def read(self, path):
        return self.decoded(path)


@mistake(
    "LFWDataset",
    "A lambda cannot be pickled, and spawned workers get the dataset as a pickle. Keep transforms.ToTensor() itself.",
)
class LambdaInside(_Faces):
    def __init__(self, folder, transform=None):
        super().__init__(folder, transform)
        if transform is None:
            self.transform = lambda image: transforms.functional.to_tensor(image)


@mistake(
    "LFWDataset",
    "An OSError of the transform is reported as a file that cannot be decoded. Apply the transform after the `try`.",
)
class TransformInTheTry(_Faces):
    def __getitem__(self, i):
        path = self.paths[i]
        try:
            with Image.open(path) as file:
                return self.transform(file.convert("RGB"))
        except OSError as error:
            raise OSError(f"{path}: {error}") from error


@mistake("LFWDataset", "An image is a NumPy array of bytes, (H, W, 3). By default apply transforms.ToTensor().")
class BytesOfNumpy(_Faces):
    def __init__(self, folder, transform=None):
        super().__init__(folder, numpy.array if transform is None else transform)


@alternative("LFWDataset")
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


def _decode(path):
    file = Image.open(path)
    try:
        return file.convert("RGB")
    finally:
        file.close()


@alternative("LFWDataset")
class GlobAndAFunction(Dataset):
    def __init__(self, folder, transform=transforms.functional.to_tensor):
        self.paths = [Path(p) for p in sorted(glob.glob(f"{folder}/*/*.jpg"))]  # glob.glob leaves out hidden names
        self.names = [p.parent.name.replace("_", " ") for p in self.paths]
        self.transform = transform
        if not self.paths:
            raise FileNotFoundError(2, "no */*.jpg here", str(folder))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        try:
            image = _decode(self.paths[i])
        except UnidentifiedImageError:
            raise
        except OSError as error:
            error.args = (f"{error} ({self.paths[i]})",)
            raise
        return self.transform(image)

    def name(self, i):
        return self.names[i]


GlobAndAFunction.__init__.__defaults__ = (transforms.ToTensor(),)
