"""The race of unit 06: seconds until the validation accuracy reaches a target.

Every contestant trains the same FashionCNN on the same images; a Recipe says how. The clock starts
before the first image is converted and stops after the evaluation that reaches the target. Runs are
kept, one line of JSON each, next to the learner's answers.
"""

import dataclasses
import itertools
import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from course.datasets import fashion
from course.device import machine
from course.errors import CourseError
from course.learner import answers
from course.measure.comparison import Interval, ratio_interval
from course.measure.timing import now
from course.training.models import FashionCNN

KEPT = "speedruns.jsonl"
EVALUATION_BATCH = 500  # images, with the data in memory
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
    # at the shares LATE of each cycle; else after every epoch, and at a cycle's end
    late_evaluation: bool = False


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
PLAIN = Recipe()
CYCLE = 1.5  # epochs
WARM_UP = 0.2  # the share of a cycle in which the learning rate rises
PEAK = 2.5  # of the cycle, in constant learning rates
LATE = (0.8, 0.9, 1.0)  # of a cycle


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

    Images are uint8 (n, 28, 28), labels int64 (n,).
    """

    name: str
    images: Tensor
    labels: Tensor
    validation_images: Tensor
    validation_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    target: float


def track(data: fashion.Fashion, target: float, images: int | None = None) -> Track:
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
    )


class Evaluation(NamedTuple):
    """What was known of a contestant after `epoch` epochs and `seconds` seconds."""

    epoch: float
    seconds: float
    accuracy: float  # on the validation images


@dataclass
class Run:
    """What a contestant did."""

    name: str
    seed: int
    seconds: float  # infinite if it did not reach the target
    epochs: float  # trained until then
    accuracies: list[Evaluation]  # read from a file, each is a list of the same three numbers
    recipe: dict
    track: str
    target: float
    machine: str
    at: str  # ISO 8601
    test_accuracy: float | None = None  # after the race, if it was asked for
    model: nn.Module | None = field(default=None, repr=False, compare=False)  # not kept in a file


def race(
    name: str,
    how: Recipe,
    track: Track,
    seed: int,
    device: torch.device | str = "cpu",
    most_epochs: float = 10,
) -> Run:
    """Train until the validation accuracy reaches `track.target`, and return the Run.

    A cycle that ends below the target is followed by another one, until `most_epochs` are trained.
    """
    device = torch.device(device)
    torch.manual_seed(seed)
    racer = _Racer(how, track, seed, device)
    started = now(device)
    reached = math.inf
    accuracies = []
    racer.prepare()
    for epoch in racer.train(most_epochs):
        accuracy = racer.accuracy()
        seconds = now(device) - started
        accuracies.append(Evaluation(epoch, seconds, accuracy))
        if accuracy >= track.target:
            reached = seconds
            break
    return Run(
        name=name,
        seed=seed,
        seconds=reached,
        epochs=accuracies[-1].epoch,
        accuracies=accuracies,
        recipe=dataclasses.asdict(how),
        track=track.name,
        target=track.target,
        machine=machine(),
        at=datetime.now().astimezone().isoformat(timespec="seconds"),
        model=racer.model,
    )


def warm_up(track: Track, device: torch.device | str) -> None:
    """Train a few steps of the plain script and of all advice.

    So no contestant pays for what torch does once.
    """
    few = slice(0, 256)
    short = dataclasses.replace(
        track,
        target=math.inf,
        images=track.images[few],
        labels=track.labels[few],
        validation_images=track.validation_images[few],
        validation_labels=track.validation_labels[few],
    )
    for how in (PLAIN, recipe(*ADVICE)):
        race("warm-up", how, short, 0, device, most_epochs=1)


def test_accuracy(run: Run, track: Track) -> float:
    """Share of the test images that the trained model of `run` classifies correctly, in float32."""
    model = run.model.eval()
    device = next(model.parameters()).device
    image_batches = track.test_images.split(EVALUATION_BATCH)
    label_batches = track.test_labels.split(EVALUATION_BATCH)
    correct = 0
    with torch.inference_mode():
        for images, labels in zip(image_batches, label_batches, strict=True):
            predicted = model(fashion.floats(images.to(device))).argmax(1)
            correct += (predicted == labels.to(device)).sum()
    return correct.item() / len(track.test_labels)


test_accuracy.__test__ = False  # its name makes pytest think that it is a test


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


class _Racer:
    """A model, its optimizer and its batches, as a Recipe says."""

    def __init__(self, how: Recipe, track: Track, seed: int, device: torch.device):
        self.how = how
        self.track = track
        self.device = device
        self.generator = torch.Generator().manual_seed(seed)
        self.model = FashionCNN().to(device)
        if not how.useless_bias:
            self._drop_biases()
        if how.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        # torch's foreach updates are its default on CUDA, so "not fused" is what a plain script
        # gets
        self.optimizer = torch.optim.Adam(self.model.parameters(), how.lr, fused=how.fused or None)
        self.per_epoch = math.ceil(len(track.labels) / how.batch_size)  # steps

    def _drop_biases(self) -> None:
        for layer, after in itertools.pairwise(self.model.convolutions):
            if isinstance(after, nn.BatchNorm2d):
                layer.bias = None

    def prepare(self) -> None:
        """Put the images on the device, or into loaders."""
        track = self.track
        if self.how.in_memory:
            self.images = track.images.to(self.device)
            self.labels = track.labels.to(self.device)
            self.held_images = track.validation_images.to(self.device)
            self.held_labels = track.validation_labels.to(self.device)
            return
        batch_size = self.how.batch_size
        images = _PerImage(track.images, track.labels)
        self.loader = DataLoader(images, batch_size, shuffle=True, generator=self.generator)
        held = _PerImage(track.validation_images, track.validation_labels)
        self.held_loader = DataLoader(held, batch_size)

    def train(self, most_epochs: float) -> Iterator[float]:
        """Train, and yield the epochs done whenever it is time to evaluate."""
        cycle = max(CYCLE_STEPS_MIN, round(self.how.epochs * self.per_epoch))  # steps
        most = round(most_epochs * self.per_epoch)
        schedule = None
        for step, (images, labels) in enumerate(itertools.islice(self.batches(), most)):
            if self.how.one_cycle and step % cycle == 0:
                schedule = torch.optim.lr_scheduler.OneCycleLR(
                    self.optimizer, self.how.lr, cycle + 1, pct_start=WARM_UP
                )
            self.step(images, labels)
            if schedule:
                schedule.step()
            done = step + 1
            if done == most or self._is_evaluated_after(step, cycle):
                yield done / self.per_epoch

    def _is_evaluated_after(self, step: int, cycle: int) -> bool:
        """Whether the recipe evaluates after this step, counted from 0; `cycle` is in steps."""
        done_in_cycle = step % cycle + 1
        if self.how.one_cycle and done_in_cycle == cycle:
            return True
        if self.how.late_evaluation:
            return done_in_cycle in [round(share * cycle) for share in LATE]
        return (step + 1) % self.per_epoch == 0

    def step(self, images: Tensor, labels: Tensor) -> None:
        """One update."""
        self.model.train()
        self.optimizer.zero_grad()
        with self.autocast():
            outputs = self.model(images)
            loss = F.cross_entropy(outputs, labels, label_smoothing=self.how.label_smoothing)
        loss.backward()
        self.optimizer.step()

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches on the device, epoch after epoch, each in another order."""
        while True:
            if not self.how.in_memory:
                for images, labels in self.loader:
                    yield self.laid_out(images), labels.to(self.device)
                continue
            order = torch.randperm(len(self.labels), generator=self.generator).to(self.device)
            for rows in order.split(self.how.batch_size):
                yield self.laid_out(fashion.floats(self.images[rows])), self.labels[rows]

    def accuracy(self) -> float:
        """Share of the validation images that are classified correctly."""
        self.model.eval()
        correct = 0
        with torch.inference_mode(), self.autocast():
            for images, labels in self.held_batches():
                correct += (self.model(images).argmax(1) == labels).sum()
        return correct.item() / len(self.track.validation_labels)

    def held_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the validation images in batches on the device."""
        if not self.how.in_memory:
            for images, labels in self.held_loader:
                yield self.laid_out(images), labels.to(self.device)
            return
        image_batches = self.held_images.split(EVALUATION_BATCH)
        label_batches = self.held_labels.split(EVALUATION_BATCH)
        for images, labels in zip(image_batches, label_batches, strict=True):
            yield self.laid_out(fashion.floats(images)), labels

    def laid_out(self, images: Tensor) -> Tensor:
        """`images` on the device, in the memory format of the recipe."""
        layout = torch.channels_last if self.how.channels_last else torch.contiguous_format
        return images.to(self.device).contiguous(memory_format=layout)

    def autocast(self) -> torch.autocast:
        """The context of a forward pass."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.how.bf16)


# ---- the leaderboard


class Standing(NamedTuple):
    """A contestant on the leaderboard."""

    name: str
    seconds: float  # median of its runs
    runs: int


def kept_file() -> Path | None:
    """The Path of the file of this learner's runs; None if COURSE_ANSWERS=off: keep nothing."""
    folder = answers.folder()
    return folder and folder / KEPT


def keep(run: Run, file: str | os.PathLike | None = None) -> None:
    """Append `run` to `file` (default: `kept_file()`); print a sentence if that fails."""
    path = Path(file) if file else kept_file()
    if path is None:
        return
    facts = {name: value for name, value in vars(run).items() if name != "model"}
    line = json.dumps(facts).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # one write of one line: two kernels do not mix theirs
        with open(path, "ab+", buffering=0) as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - 1))
            was_cut_short = stream.read(1) not in (b"", b"\n")  # a program ended while it wrote
            if was_cut_short:
                line = b"\n" + line
            stream.write(line)
    except OSError as error:
        print(f"{path.name} cannot be written ({error.strerror}), so this run is not kept.")


def kept(file: str | os.PathLike | None = None) -> list[Run]:
    """All runs in `file` (default: `kept_file()`), oldest first.

    Damaged lines are skipped and stay in the file.
    """
    path = Path(file) if file else kept_file()
    if path is None or not path.exists():
        return []
    runs = []
    damaged = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            runs.append(Run(**json.loads(line)))
        except (ValueError, TypeError):
            damaged.append(str(number))
    if damaged:
        places = ", ".join(damaged)
        print(f"{path.name}: the leaderboard leaves out what is not a run, at line {places}.")
    return runs


def worth(runs: Iterable[Run], base: str) -> dict[str, Interval]:
    """{name: Interval} of how many times as long as `base` each name takes, paired by seed.

    The latest run of a name and seed counts; a name that shares no seed with `base` is left out.
    """
    latest = {(run.name, run.seed): run.seconds for run in runs}
    ratios = {}
    for (name, seed), seconds in latest.items():
        if name != base and (base, seed) in latest:
            ratios.setdefault(name, []).append(seconds / latest[base, seed])
    found = {}
    for name, own in ratios.items():
        times = torch.tensor(own, dtype=torch.float64)
        found[name] = ratio_interval(times, torch.ones_like(times))
    return found


def standings(runs: Iterable[Run], track: Track) -> list[Standing]:
    """The Standing of each name that raced on this track and machine, fastest first."""
    wanted = (track.name, track.target, machine())
    seconds = {}
    for run in runs:
        if (run.track, run.target, run.machine) == wanted:
            seconds.setdefault(run.name, []).append(run.seconds)
    entries = []
    for name, own in seconds.items():
        entries.append(Standing(name, statistics.median(own), len(own)))
    return sorted(entries, key=lambda entry: entry.seconds)


def next_name(runs: Iterable[Run]) -> str:
    """The name of the learner's next entry: "mine 1", "mine 2", ..."""
    numbers = [0]
    for run in runs:
        number = run.name.removeprefix("mine ")
        if number.isdigit():
            numbers.append(int(number))
    return f"mine {max(numbers) + 1}"
