"""Known mistakes of exercise LeanFaces, and right answers in other styles."""

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2

from course.checks.engine import alternative, mistake


class _Base:
    """A right dataset in pieces, so that each mistake can spoil one of them."""

    def __init__(self, paths, side, augment=None):
        self.paths, self.side, self.augment = paths, side, augment

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return self.finished(self.decoded(self.paths[i]))

    def decoded(self, path):
        with Image.open(path) as file:
            self.drafted(file)
            return file.convert("RGB")

    def drafted(self, file):
        file.draft("RGB", (self.side, self.side))

    def finished(self, picture):
        return self.as_tensor(self.augmented(self.downscaled(picture)))

    def downscaled(self, picture):
        return picture.resize((self.side, self.side))

    def augmented(self, picture):
        return self.augment(picture) if self.augment is not None else picture

    def as_tensor(self, picture):
        return v2.functional.pil_to_tensor(picture)


@mistake(
    "LeanFaces",
    "Each file is opened and decoded twice, first to see whether it is broken. Decoding raises OSError anyway: drop "
    "the first time.",
)
class ChecksFirst(_Base):
    def decoded(self, path):
        with Image.open(path) as file:
            file.load()
        return super().decoded(path)


@mistake(
    "LeanFaces",
    "The file is opened a second time to verify it, which reads it twice. Decoding raises OSError if it is broken.",
)
class Verifies(_Base):
    def decoded(self, path):
        with Image.open(path) as file:
            file.verify()
        return super().decoded(path)


@mistake(
    "LeanFaces",
    "All pixels of the file are decoded, most of them to be thrown away. Call draft before the pixels are loaded.",
)
class DecodesAll(_Base):
    def drafted(self, file):
        pass


@mistake("LeanFaces", "The picture is augmented before it is downscaled. Downscale first.")
class AugmentsFirst(_Base):
    def finished(self, picture):
        return self.as_tensor(self.downscaled(self.augmented(picture)))


@mistake(
    "LeanFaces", "A draft has one of four sizes, seldom the one that is asked for. Resize to side x side after it."
)
class OnlyDrafts(_Base):
    def downscaled(self, picture):
        return picture


@mistake("LeanFaces", "The item is a float tensor, four times as large as the bytes. Return uint8.")
class Floats(_Base):
    def as_tensor(self, picture):
        return v2.functional.pil_to_tensor(picture) / 255


@mistake("LeanFaces", "The colours come last, as in a NumPy array of a picture. Put them first: permute(2, 0, 1).")
class ColoursLast(_Base):
    def as_tensor(self, picture):
        return torch.from_numpy(np.array(picture))


@mistake("LeanFaces", "An item is kept and handed out again: each epoch gets the same augmentation. Make it anew.")
class Keeps(_Base):
    def __getitem__(self, i):
        kept = self.__dict__.setdefault("kept", {})
        if i not in kept:
            kept[i] = super().__getitem__(i)
        return kept[i]


@mistake("LeanFaces", "A grey file gives one colour. Convert the picture to RGB.")
class GreyStaysGrey(_Base):
    def decoded(self, path):
        with Image.open(path) as file:
            file.draft(None, (self.side, self.side))
            file.load()
            return file.copy()


@mistake("LeanFaces", "`augment` is never called. Call it on the downscaled picture, if it is not None.")
class NeverAugments(_Base):
    def augmented(self, picture):
        return picture


@mistake("LeanFaces", "The file stays open when the item is left. Open it in a `with` block.")
class LeavesOpen(_Base):
    kept = []  # else the last reference to a file would close it

    def decoded(self, path):
        file = open(path, "rb")
        self.kept[:] = [*self.kept[-20:], file]
        picture = Image.open(file)
        self.drafted(picture)
        return picture.convert("RGB")


@alternative("LeanFaces")
class Thumbnails(_Base):
    """`thumbnail` drafts by itself, to twice the size, and scales the rest."""

    def decoded(self, path):
        with Image.open(path) as file:
            file.thumbnail((self.side, self.side))
            return file.convert("RGB")


@alternative("LeanFaces")
class AugmentsTensors(_Base):
    def finished(self, picture):
        tensor = v2.functional.pil_to_tensor(picture.resize((self.side, self.side), Image.Resampling.BILINEAR))
        return tensor if self.augment is None else self.augment(tensor)


@alternative("LeanFaces")
class ByNumpy(_Base):
    def drafted(self, file):
        file.draft(file.mode, (self.side, self.side))

    def as_tensor(self, picture):
        return torch.from_numpy(np.array(picture).transpose(2, 0, 1).copy())
