"""The script of unit 01 as it was found: correct, and slow to feed its network.

Part 7 shows this file and asks for its faults, so nothing here says where they are.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

warnings.filterwarnings("ignore", "Creating a tensor from a list")  # filled the log


class StarvedFaces(Dataset):
    """Faces of side x side pixels, uint8 (3, side, side), augmented."""

    def __init__(self, paths: Sequence[Path], side: int, augment: Callable | None = None):
        self.paths = paths
        self.side = side
        self.augment = augment

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> torch.Tensor:
        with Image.open(self.paths[i]) as file:
            file.load()  # raises if the file is broken
        with Image.open(self.paths[i]) as file:
            picture = file.convert("RGB")
        if self.augment:
            picture = self.augment(picture)
        picture = picture.resize((self.side, self.side))
        return v2.functional.pil_to_tensor(picture)


def as_floats(pictures: Sequence[torch.Tensor]) -> torch.Tensor:
    """Batch of floats from 0 to 1, (n, 3, side, side)."""
    return torch.tensor([np.asarray(picture) / 255 for picture in pictures]).float()


def starved_loader(
    dataset: Dataset, batch_size: int, num_workers: int, pin_memory: bool = False
) -> DataLoader:
    """DataLoader of shuffled, full batches."""
    return DataLoader(
        dataset,
        batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=as_floats,
        pin_memory=pin_memory,
    )


def starved_training(
    loader: Iterable, validation: Dataset, step: Callable, accuracy: Callable, epochs: int
) -> list[float]:
    """Train; return the accuracy on the validation images after each epoch."""
    reached = []
    for _ in range(epochs):
        for batch in loader:
            step(batch)
        images = torch.stack([validation[i] for i in range(len(validation))])
        reached.append(accuracy(images))
    return reached
