"""Known mistakes of exercise LeanFaces, and right answers in other styles."""

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2

from course.engine.known_answers import alternative

MISTAKES = {
    "ChecksFirst": (
        "Each file is opened and decoded twice, first to see whether it is broken. Decoding raises OSError anyway: "
        "drop the first time.",
        (
            "        with",
            "        with Image.open(self.paths[i]) as file:\n            file.load()\n        with",
        ),
    ),
    "Verifies": (
        "The file is opened a second time to verify it, which reads it twice. Decoding raises OSError if it is broken.",
        (
            "        with",
            "        with Image.open(self.paths[i]) as file:\n            file.verify()\n        with",
        ),
    ),
    "DecodesAll": (
        "All pixels of the file are decoded, most of them to be thrown away. Call draft before the pixels are loaded.",
        ('file.draft("RGB", (self.side, self.side))', "pass"),
    ),
    "AugmentsFirst": (
        "The picture is augmented before it is downscaled. Downscale first.",
        ("        picture = picture.resize((self.side, self.side))\n", ""),
        ("tensor(picture)", "tensor(picture.resize((self.side, self.side)))"),
    ),
    "OnlyDrafts": (
        "A draft has one of four sizes, seldom the one that is asked for. Resize to side x side after it.",
        ("        picture = picture.resize((self.side, self.side))\n", ""),
    ),
    "NearestPixels": (
        "The pixels come from another filter than the default of PIL's resize. Before you make a tensor, call "
        "picture.resize((self.side, self.side)) without a filter.",
        (
            "resize((self.side, self.side))",
            "resize((self.side, self.side), Image.Resampling.NEAREST)",
        ),
    ),
    "Floats": (
        "The item is a float tensor, four times as large as the bytes. Return uint8.",
        ("tensor(picture)", "tensor(picture) / 255"),
    ),
    "ColoursLast": (
        "The colours come last, as in a NumPy array of a picture. Put them first: permute(2, 0, 1).",
        ("v2.functional.pil_to_tensor(picture)", "torch.from_numpy(np.array(picture))"),
    ),
    "Keeps": (
        "An item is kept and returned again, so each epoch gets the same augmentation. Build a new one.",
        (
            "        with",
            '        kept = self.__dict__.setdefault("kept", {})\n        if i in kept:\n'
            "            return kept[i]\n        with",
        ),
        ("return v2", "kept[i] = v2"),
        ("tensor(picture)\n", "tensor(picture)\n        return kept[i]\n"),
    ),
    "GreyStaysGrey": (
        "A grey file gives one colour. Convert the picture to RGB.",
        ('draft("RGB"', "draft(None"),
        ('file.convert("RGB")', "file.copy()"),
    ),
    "NeverAugments": (
        "`augment` is never called. Call it on the downscaled picture, if it is not None.",
        ("self.augment(picture)", "picture"),
    ),
    "LeavesOpen": (
        "The file stays open when the item is left. Open it in a `with` block.",
        (
            "        with Image.open(self.paths[i])",
            '        file = open(self.paths[i], "rb")\n'
            '        LeanFaces.kept = [*getattr(LeanFaces, "kept", [])[-20:], file]  # else Python would close it\n'
            "        with Image.open(file)",
        ),
    ),
}


@alternative
class Thumbnails:
    """`thumbnail` drafts by itself, to twice the size, and scales the rest."""

    def __init__(self, paths, side, augment=None):
        self.paths, self.side, self.augment = paths, side, augment

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Image.open(self.paths[i]) as file:
            file.thumbnail((self.side, self.side))
            picture = file.convert("RGB").resize((self.side, self.side))
        return torch.from_numpy(
            np.array(self.augment(picture) if self.augment else picture)
        ).permute(2, 0, 1)


@alternative
class AugmentsTensors:
    def __init__(self, paths, side, augment=None):
        self.paths, self.size, self.augment = paths, (side, side), augment

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Image.open(self.paths[i]) as file:
            file.draft(file.mode, self.size)
            tensor = v2.functional.pil_to_tensor(file.convert("RGB").resize(self.size))
        return tensor if self.augment is None else self.augment(tensor)
