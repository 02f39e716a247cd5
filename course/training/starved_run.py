"""The patient of unit 01: a network that a script starves, and counts of what feeding it takes.

It learns by how many quarter turns an image was rotated, which needs no labels (Gidaris, Singh and
Komodakis 2018, "Unsupervised representation learning by predicting image rotations"). The script
that starves it: starved_script.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from torchvision.transforms import v2

from course.device import cores, device
from course.loading.loaders import image_paths
from course.measure.load_counts import LoadCounts

SIDE = 60  # pixels of an image, as the network takes it
VALIDATION_EACH = 4  # every fourth image validates
WORKERS_MAX = 4
Functions = tuple[Callable, Callable, Callable]  # dataset, loader and training of a script


class Learner:
    """A new network, its training step and its accuracy.

    Both take images as bytes or as floats from 0 to 1, (n, 3, SIDE, SIDE).
    """

    def __init__(self, seed: int = 0):
        torch.manual_seed(seed)
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 5, 2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 4),
        ).to(device())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.003)

    def step(self, batch: torch.Tensor) -> None:
        """Train on one batch."""
        images, angles = turned(batch)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.net(images - 0.5), angles).backward()
        self.optimizer.step()

    @torch.no_grad()
    def accuracy(self, images: torch.Tensor) -> float:
        """Share of the images whose angle the network names; by chance 0.25."""
        images, angles = turned(images)
        return (self.net(images - 0.5).argmax(1) == angles).float().mean().item()


def turned(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Floats (n, 3, SIDE, SIDE), each quarter of them turned by another angle; angles 0 to 3."""
    images = to_device(images)
    if images.dtype == torch.uint8:
        images = images.float() / 255
    parts = images.chunk(4)
    pictures = torch.cat([part.rot90(k, (2, 3)) for k, part in enumerate(parts)])
    sizes = torch.tensor([len(part) for part in parts])
    return pictures, torch.arange(len(parts)).repeat_interleave(sizes).to(device())


def to_device(batch: torch.Tensor) -> torch.Tensor:
    """The batch on the course's device."""
    return batch.to(device(), non_blocking=True)


def usual_workers() -> int:
    """How many workers the script asks for: one per core, from 2 to WORKERS_MAX."""
    return max(2, min(WORKERS_MAX, cores()))


def augmentation() -> Callable:
    """A random change of a PIL image or of a uint8 tensor (3, H, W)."""
    changes = [
        v2.RandomAffine(5, (0.1, 0.1)),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(0.3, 0.3, 0.3),
    ]
    return v2.Compose(changes)


@dataclass(frozen=True)
class Task:
    """What the script trains on: images, their augmentation, the size of a batch."""

    train: list[Path]
    validation: list[Path]
    augment: Callable
    batch_size: int
    epochs: int = 1

    @property
    def images_trained(self) -> int:
        """Images that the steps of all epochs take."""
        return self.epochs * (len(self.train) // self.batch_size) * self.batch_size

    def faces(self, dataset: Callable[..., Dataset]) -> Dataset:
        """The images to train on, as items of a `dataset` such as StarvedFaces."""
        return dataset(self.train, SIDE, self.augment)

    def run(self, functions: Functions, seed: int = 0) -> list[float]:
        """Train a new network with the three functions of a script; return its accuracies."""
        faces, make_loader, training = functions
        learner = Learner(seed)
        is_pinned = device().type == "cuda"
        loader = make_loader(self.faces(faces), self.batch_size, usual_workers(), is_pinned)
        validation = faces(self.validation, SIDE)
        return training(loader, validation, learner.step, learner.accuracy, self.epochs)


def task(folder: Path, n_images: int, batch_size: int, epochs: int = 1) -> Task:
    """The Task of about `n_images` images below a folder, a quarter of them for validation."""
    paths = image_paths(folder)
    paths = paths[:: max(1, len(paths) // n_images)][:n_images]
    train = [path for k, path in enumerate(paths) if k % VALIDATION_EACH]
    return Task(train, paths[::VALIDATION_EACH], augmentation(), batch_size, epochs)


# ---- what a training does, counted

FAULTS = (
    "1 files opened per image",
    "2 pixels decoded per image",
    "3 pixels augmented per image",
    "4 processes started",
    "5 bytes per image in a batch",
    "6 readings of a validation image",
)


class _Noted(Dataset):
    """The items of `data`, each counted as a validation image."""

    def __init__(self, data: Dataset, counts: LoadCounts):
        self.data = data
        self.counts = counts

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> torch.Tensor:
        item = self.data[i]
        self.counts.add("validation images read")
        return item


def counted(of: Task, functions: Functions) -> dict[str, float]:
    """{what a training does: how often, most of it per image}, a number per fault."""
    faces, make_loader, training = functions
    counts = LoadCounts()
    learner = Learner()

    def step(batch: torch.Tensor) -> None:
        counts.add("bytes handed over", batch.nbytes)
        learner.step(batch)

    with counts:
        data = faces(of.train, SIDE, counts.watch(of.augment))
        loader = make_loader(data, of.batch_size, usual_workers())
        validation = _Noted(faces(of.validation, SIDE), counts)
        training(loader, validation, step, learner.accuracy, of.epochs)
    trained = of.images_trained
    read = trained + counts["validation images read"]
    per_image = (
        counts["files opened"] / read,
        counts["pixels decoded"] / read,
        counts["pixels augmented"] / trained,
        counts["processes started"],
        counts["bytes handed over"] / trained,
        counts["validation images read"] / len(of.validation),
    )
    return dict(zip(FAULTS, per_image, strict=True))


def due() -> dict[str, float]:
    """The most of each that `counted` may find in a training without faults; processes: exactly."""
    pixels = SIDE * SIDE
    most = (1, 6 * pixels, pixels, usual_workers(), 3 * pixels, 1)
    return dict(zip(FAULTS, most, strict=True))


def faults_gone(before: Mapping[str, float], now: Mapping[str, float]) -> Sequence[bool]:
    """Whether each fault is gone; prints a table of what `counted` found before and finds now."""
    gone = []
    print(f"{'':<34}{'as found':>10}{'now':>10}  {'due':<16}")
    for what, most in due().items():
        is_gone, asked = now[what] <= most, "at most"
        if what.startswith("4"):  # fewer would leave cores idle
            is_gone, asked = now[what] == most, "exactly"
        gone.append(is_gone)
        words = "gone" if is_gone else "STILL THERE"
        limit = f"{asked} {most:,.0f}"
        print(f"{what:<34}{before[what]:>10,.0f}{now[what]:>10,.0f}  {limit:<16}{words}")
    return gone
