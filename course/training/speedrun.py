"""The contestants of unit 06's race: recipes that train the same network on the same images.

A Recipe says how to train, a Track on what, and a Racer does it. race.py times them, leaderboard.py
keeps what a learner entered.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from course.datasets import fashion
from course.errors import CourseError
from course.training.models import FashionCNN

EVALUATION_BATCH = 500  # images of a look, and of the test
VALIDATION_SHARE = 5  # of a Track with fewer images: one for validation per so many to train on
CYCLE_STEPS_MIN = 5


@dataclass(frozen=True)
class Recipe:
    """How to train; the defaults are the plain script that most people write."""

    # one uint8 tensor, normalised per batch; else a Dataset of single images, transformed each
    in_memory: bool = False
    batch_size: int = 64
    lr: float = 1e-3  # of Adam: constant, or the peak of the one-cycle schedule
    one_cycle: bool = False
    epochs: float = 1.0  # length of the cycle
    bf16: bool = False  # forward pass under autocast to bfloat16
    channels_last: bool = False
    fused: bool = False  # the optimizer updates all tensors in one call
    useless_bias: bool = True  # keep the bias of convolutions that a BatchNorm follows
    label_smoothing: float = 0.0
    late_evaluation: bool = False  # at the end alone; else after every epoch


# advice -> the fields of Recipe that follow it
ADVICE = {
    "data in memory": dict(in_memory=True),
    "batch of 128": dict(batch_size=128),
    "one cycle": dict(one_cycle=True),
    "bfloat16": dict(bf16=True),
    "channels_last": dict(channels_last=True),
    "fused Adam": dict(fused=True),
    "no useless bias": dict(useless_bias=False),
    "label smoothing": dict(label_smoothing=0.1),
    "late evaluation": dict(late_evaluation=True),
}
# the pieces that change what is computed; the others compute the same in other time
CHANGE_LEARNING = (
    "batch of 128",
    "one cycle",
    "bfloat16",
    "no useless bias",
    "label smoothing",
)
PLAIN = Recipe()
CYCLE = 1.5  # epochs
WARM_UP = 0.2  # the share of a cycle in which the learning rate rises
PEAK = 2.5  # of the cycle, in constant learning rates


def recipe(*advice: str) -> Recipe:
    """The Recipe that follows `advice`, names in ADVICE, and is plain otherwise.

    The learning rate grows in proportion to the batch (linear scaling), and by PEAK for a one-cycle
    schedule.

    Raises: CourseError for another name.
    """
    unknown = [name for name in advice if name not in ADVICE]
    if unknown:
        raise CourseError(f"no advice is called {unknown[0]!r}; there are {', '.join(ADVICE)}.")
    fields = {}
    for name in advice:
        fields |= ADVICE[name]
    made = dataclasses.replace(PLAIN, epochs=CYCLE, **fields)
    lr = PLAIN.lr * made.batch_size / PLAIN.batch_size
    if made.one_cycle:
        lr *= PEAK
    return dataclasses.replace(made, lr=lr)


def contestants(left_out: Iterable[str] | None = None) -> dict[str, Recipe]:
    """{name: Recipe}: the plain script, all advice, and all but one piece of it.

    Args:
        left_out: names of these pieces (default: ADVICE).
    """
    recipes = {"plain": PLAIN, "everything": recipe(*ADVICE)}
    for name in left_out or ADVICE:
        others = [other for other in ADVICE if other != name]
        recipes[f"without {name}"] = recipe(*others)
    return recipes


@dataclass(frozen=True)
class Track:
    """What all contestants train on, and the accuracy to reach.

    Images are uint8 (n, 28, 28), labels int64 (n,). Accuracies are looked at after every
    `look_every` images of training, the same for all.
    """

    name: str
    images: Tensor
    labels: Tensor
    validation_images: Tensor
    validation_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    target: float
    look_every: int


def track(
    data: fashion.Fashion, target: float, images: int | None = None, look_every: int = 1024
) -> Track:
    """The Track of `data`; validation images are those of fashion.with_validation: a sixth.

    Args:
        images: train on the first so many of the others, with a fifth as many for validation
            (default: all).

    Raises: CourseError if there are fewer.
    """
    rest, held = fashion.validation_rows(data)
    if images is not None:
        if not 0 < images <= len(rest):
            raise CourseError(
                f"{images} images were asked for; {data.name} has {len(rest):,} to train on."
            )
        rest = rest[:images]
        held = held[: max(1, images // VALIDATION_SHARE)]
    source = data.name if data.real else f"{data.name} stand-in"
    return Track(
        name=f"{source}, {len(rest):,} images",
        images=data.train_images[rest],
        labels=data.train_labels[rest],
        validation_images=data.train_images[held],
        validation_labels=data.train_labels[held],
        test_images=data.test_images,
        test_labels=data.test_labels,
        target=target,
        look_every=look_every,
    )


class _PerImage(Dataset):
    """Images one by one, through Pillow and torchvision's transforms.

    As torchvision.datasets.FashionMNIST does it.
    """

    def __init__(self, images: Tensor, labels: Tensor):
        self.images = images
        self.labels = labels
        normalize = transforms.Normalize((fashion.MEAN,), (fashion.DEVIATION,))
        self.transform = transforms.Compose([transforms.ToTensor(), normalize])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.images[i].numpy())
        return self.transform(image), int(self.labels[i])


class Racer:
    """A model, its optimizer and its batches, as a Recipe says.

    `trained` is the number of images that it was trained on.
    """

    def __init__(self, how: Recipe, track: Track, seed: int, device: torch.device | str = "cpu"):
        torch.manual_seed(seed)
        self.how = how
        self.track = track
        self.device = torch.device(device)
        self.generator = torch.Generator().manual_seed(seed)
        self.model = FashionCNN().to(self.device)
        if not how.useless_bias:
            self._drop_biases()
        if how.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        # torch's foreach updates are its default on CUDA, so "not fused" is what a plain script
        # gets
        self.optimizer = torch.optim.Adam(self.model.parameters(), how.lr, fused=how.fused or None)
        self.per_epoch = math.ceil(len(track.labels) / how.batch_size)  # steps
        self.cycle = max(CYCLE_STEPS_MIN, round(how.epochs * self.per_epoch))  # steps
        self.schedule = None
        self.steps = 0
        self.trained = 0
        self.owed = 0.0  # validation images that the recipe has still to evaluate

    def _drop_biases(self) -> None:
        for layer, after in itertools.pairwise(self.model.convolutions):
            if isinstance(after, nn.BatchNorm2d):
                layer.bias = None

    def prepare(self) -> None:
        """Put the images on the device, or into loaders."""
        track = self.track
        if self.how.in_memory:
            images, held_images = (
                track.images.to(self.device),
                track.validation_images.to(self.device),
            )
            labels, held_labels = (
                track.labels.to(self.device),
                track.validation_labels.to(self.device),
            )
            self.batches = self._cut(images, labels, shuffle=True)
            self.held_batches = self._cut(held_images, held_labels, shuffle=False)
            return
        self.batches = self._load(track.images, track.labels, shuffle=True)
        held = track.validation_images, track.validation_labels
        self.held_batches = self._load(*held, shuffle=False)

    def _cut(self, images: Tensor, labels: Tensor, shuffle: bool) -> Iterator[tuple]:
        """Yield batches cut out of two tensors on the device, epoch after epoch."""
        while True:
            order = torch.arange(len(labels))
            if shuffle:
                order = torch.randperm(len(labels), generator=self.generator)
            for rows in order.to(self.device).split(self.how.batch_size):
                yield self._laid_out(fashion.floats(images[rows])), labels[rows]

    def _load(self, images: Tensor, labels: Tensor, shuffle: bool) -> Iterator[tuple]:
        """Yield batches of single images, epoch after epoch."""
        dataset = _PerImage(images, labels)
        generator = self.generator if shuffle else None
        loader = DataLoader(dataset, self.how.batch_size, shuffle=shuffle, generator=generator)
        while True:
            for batch_images, batch_labels in loader:
                yield self._laid_out(batch_images), batch_labels.to(self.device)

    def train(self, n_images: int) -> None:
        """Train on the next batches, with `n_images` or a few more, and evaluate as often as `how`.

        A recipe that evaluates after every epoch evaluates here as large a share of the validation
        images as it was trained on of an epoch, so that a part of an epoch costs its share.
        """
        before = self.trained
        while self.trained < before + n_images:
            self._step(*next(self.batches))
        if not self.how.late_evaluation:
            epochs = (self.trained - before) / len(self.track.labels)
            self.owed += epochs * len(self.track.validation_labels)
            self._evaluate()

    def _step(self, images: Tensor, labels: Tensor) -> None:
        """One update."""
        if self.how.one_cycle and self.steps % self.cycle == 0:
            self.schedule = torch.optim.lr_scheduler.OneCycleLR(
                self.optimizer, self.how.lr, self.cycle + 1, pct_start=WARM_UP
            )
        self.model.train()
        self.optimizer.zero_grad()
        with self._autocast():
            outputs = self.model(images)
            loss = F.cross_entropy(outputs, labels, label_smoothing=self.how.label_smoothing)
        loss.backward()
        self.optimizer.step()
        if self.schedule:
            self.schedule.step()
        self.steps += 1
        self.trained += len(labels)

    def _evaluate(self) -> None:
        """Evaluate so many batches of validation images as are owed."""
        self.model.eval()
        with torch.inference_mode(), self._autocast():
            while self.owed >= self.how.batch_size:
                images, labels = next(self.held_batches)
                (self.model(images).argmax(1) == labels).sum()
                self.owed -= len(labels)

    def accuracy(self) -> float:
        """Share of the validation images that are classified correctly: a look of the race.

        It changes nothing: neither what is trained next nor the random numbers.
        """
        track = self.track
        return self._accuracy(track.validation_images, track.validation_labels, self._autocast())

    def test_accuracy(self) -> float:
        """Share of the test images that are classified correctly, in float32."""
        track = self.track
        full = torch.autocast(self.device.type, enabled=False)
        return self._accuracy(track.test_images, track.test_labels, full)

    def _accuracy(self, images: Tensor, labels: Tensor, context: torch.autocast) -> float:
        self.model.eval()
        correct = 0
        batches = zip(images.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True)
        with torch.inference_mode(), context:
            for some, right in batches:
                pixels = self._laid_out(fashion.floats(some.to(self.device)))
                correct += (self.model(pixels).argmax(1) == right.to(self.device)).sum()
        return correct.item() / len(labels)

    def _laid_out(self, images: Tensor) -> Tensor:
        """`images` on the device, in the memory format of the recipe."""
        layout = torch.channels_last if self.how.channels_last else torch.contiguous_format
        return images.to(self.device).contiguous(memory_format=layout)

    def _autocast(self) -> torch.autocast:
        """The context of a forward pass."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.how.bf16)
