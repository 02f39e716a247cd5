"""The race of unit 06: seconds until the validation accuracy reaches a target, for a Recipe on a
Track.

Every contestant trains the same FashionCNN on the same images; a Recipe says how. The clock starts
before the first image is converted and stops after the evaluation that reaches the target. Runs are
kept, one line of JSON each, beside the learner's answers.
"""

import dataclasses
import itertools
import json
import math
import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

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
from course.measure.timing import now
from course.training.models import FashionCNN

KEPT = "speedruns.jsonl"
EVALUATED_AT_ONCE = 500  # images, with the data in memory


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
    late_evaluation: bool = (
        False  # at the shares LATE of each cycle; else after every epoch, and at a cycle's end
    )


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
CYCLE, WARM_UP = 1.5, 0.2  # epochs, and the share of them in which the learning rate rises
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
    fields = {key: value for name in advice for key, value in ADVICE[name].items()}
    made = dataclasses.replace(PLAIN, epochs=CYCLE, **fields)
    lr = PLAIN.lr * made.batch_size / PLAIN.batch_size * (PEAK if made.one_cycle else 1)
    return dataclasses.replace(made, lr=lr)


def contestants(left_out: Iterable[str] | None = None) -> dict[str, Recipe]:
    """{name: Recipe}: the plain script, all advice, and all but one for each name in `left_out`
    (default: ADVICE).
    """
    but_one = {
        f"without {name}": recipe(*(other for other in ADVICE if other != name))
        for name in left_out or ADVICE
    }
    return {"plain": PLAIN, "everything": recipe(*ADVICE)} | but_one


@dataclass(frozen=True)
class Track:
    """What all contestants train on: uint8 images (n, 28, 28), int64 labels, and the accuracy to
    reach.
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
        rest, held = rest[:images], held[: max(1, images // 5)]
    pixels, labels = data.train_images, data.train_labels
    name = f"{data.name}{'' if data.real else ' stand-in'}, {len(rest):,} images"
    parts = (
        pixels[rest],
        labels[rest],
        pixels[held],
        labels[held],
        data.test_images,
        data.test_labels,
    )
    return Track(name, *parts, target)


@dataclass
class Run:
    """What a contestant did.  `seconds` is infinite if it did not reach the target; `model` is not
    kept in a file.
    """

    name: str
    seed: int
    seconds: float
    epochs: float  # trained until then
    accuracies: list  # (epoch, seconds, validation accuracy) of every evaluation
    recipe: dict
    track: str
    target: float
    machine: str
    at: str  # ISO 8601
    test_accuracy: float | None = None  # after the race, if it was asked for
    model: nn.Module | None = field(default=None, repr=False, compare=False)


def race(
    name: str,
    how: Recipe,
    track: Track,
    seed: int,
    device: torch.device | str = "cpu",
    most_epochs: float = 10,
) -> Run:
    """Train until the validation accuracy reaches `track.target`, at most `most_epochs`, and return
    the Run.

    A cycle that ends below the target is followed by another one.
    """
    device = torch.device(device)
    torch.manual_seed(seed)
    racer = _Racer(how, track, seed, device)
    started, seconds, accuracies = now(device), math.inf, []
    racer.prepare()
    for epoch in racer.train(most_epochs):
        accuracy = racer.accuracy()
        accuracies.append((epoch, now(device) - started, accuracy))
        if accuracy >= track.target:
            seconds = accuracies[-1][1]
            break
    at = datetime.now().astimezone().isoformat(timespec="seconds")
    facts = dataclasses.asdict(how), track.name, track.target, machine(), at
    return Run(name, seed, seconds, accuracies[-1][0], accuracies, *facts, model=racer.model)


def warm_up(track: Track, device: torch.device | str) -> None:
    """Train a few steps of the plain script and of all advice, so that no contestant pays for what
    torch does once.
    """
    few = slice(0, 256)
    parts = dict(images=track.images[few], labels=track.labels[few])
    held = dict(
        validation_images=track.validation_images[few],
        validation_labels=track.validation_labels[few],
    )
    for how in (PLAIN, recipe(*ADVICE)):
        race(
            "warm-up",
            how,
            dataclasses.replace(track, target=math.inf, **parts, **held),
            0,
            device,
            most_epochs=1,
        )


def test_accuracy(run: Run, track: Track) -> float:
    """Share of the test images that the trained model of `run` classifies correctly, in float32."""
    model = run.model.eval()
    device = next(model.parameters()).device
    with torch.inference_mode():
        pairs = zip(
            track.test_images.split(EVALUATED_AT_ONCE),
            track.test_labels.split(EVALUATED_AT_ONCE),
            strict=True,
        )
        right = sum(
            (model(fashion.floats(x.to(device))).argmax(1) == y.to(device)).sum() for x, y in pairs
        )
    return right.item() / len(track.test_labels)


test_accuracy.__test__ = False  # its name makes pytest think that it is a test


class _PerImage(Dataset):
    """Images one by one, through Pillow and torchvision's transforms, as
    torchvision.datasets.FashionMNIST does it.
    """

    def __init__(self, images, labels):
        self.images, self.labels = images, labels
        self.transform = transforms.Compose(
            [transforms.ToTensor(), transforms.Normalize((fashion.MEAN,), (fashion.DEVIATION,))]
        )

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(Image.fromarray(self.images[i].numpy())), int(self.labels[i])


class _Racer:
    """A model, its optimizer and its batches, as a Recipe says."""

    def __init__(self, how, track, seed, device):
        self.how, self.track, self.device = how, track, device
        self.generator = torch.Generator().manual_seed(seed)
        self.model = FashionCNN().to(device)
        layers = list(self.model.convolutions)
        for layer, after in zip(layers, layers[1:], strict=False):
            if isinstance(after, nn.BatchNorm2d) and not how.useless_bias:
                layer.bias = None
        if how.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        # torch's foreach updates are its default on CUDA, so "not fused" is what a plain script
        # gets
        self.optimizer = torch.optim.Adam(self.model.parameters(), how.lr, fused=how.fused or None)
        self.per_epoch = math.ceil(len(track.labels) / how.batch_size)

    def prepare(self):
        """Put the images on the device, or into loaders."""
        track, how = self.track, self.how
        if how.in_memory:
            parts = track.images, track.labels, track.validation_images, track.validation_labels
            self.images, self.labels, *self.held = (part.to(self.device) for part in parts)
            return
        images = _PerImage(track.images, track.labels)
        self.loader = DataLoader(images, how.batch_size, shuffle=True, generator=self.generator)
        self.held_loader = DataLoader(
            _PerImage(track.validation_images, track.validation_labels), how.batch_size
        )

    def train(self, most_epochs):
        """Train, and yield the epochs done whenever it is time to evaluate."""
        how, schedule = self.how, None
        cycle, most = (
            max(5, round(how.epochs * self.per_epoch)),
            round(most_epochs * self.per_epoch),
        )
        late = {round(share * cycle) for share in LATE}
        for step, (images, labels) in enumerate(itertools.islice(self.batches(), most)):
            if how.one_cycle and step % cycle == 0:
                schedule = torch.optim.lr_scheduler.OneCycleLR(
                    self.optimizer, how.lr, cycle + 1, pct_start=WARM_UP
                )
            self.step(images, labels)
            if schedule:
                schedule.step()
            done, place = step + 1, step % cycle + 1
            due = place in late if how.late_evaluation else done % self.per_epoch == 0
            if due or done == most or (how.one_cycle and place == cycle):
                yield done / self.per_epoch

    def step(self, images, labels):
        """One update."""
        self.model.train()
        self.optimizer.zero_grad()
        with self.autocast():
            loss = F.cross_entropy(
                self.model(images), labels, label_smoothing=self.how.label_smoothing
            )
        loss.backward()
        self.optimizer.step()

    def batches(self):
        """Yield batches on the device, epoch after epoch, each in another order."""
        while True:
            if not self.how.in_memory:
                yield from ((self.laid_out(x), y.to(self.device)) for x, y in self.loader)
                continue
            order = torch.randperm(len(self.labels), generator=self.generator).to(self.device)
            for rows in order.split(self.how.batch_size):
                yield self.laid_out(fashion.floats(self.images[rows])), self.labels[rows]

    def accuracy(self):
        """Share of the validation images that are classified correctly."""
        self.model.eval()
        with torch.inference_mode(), self.autocast():
            right = sum((self.model(x).argmax(1) == y).sum() for x, y in self.held_batches())
        return right.item() / len(self.track.validation_labels)

    def held_batches(self):
        """Yield the validation images in batches on the device."""
        if not self.how.in_memory:
            yield from ((self.laid_out(x), y.to(self.device)) for x, y in self.held_loader)
            return
        for x, y in zip(*(part.split(EVALUATED_AT_ONCE) for part in self.held), strict=True):
            yield self.laid_out(fashion.floats(x)), y

    def laid_out(self, images):
        """`images` on the device, in the memory format of the recipe."""
        form = torch.channels_last if self.how.channels_last else torch.contiguous_format
        return images.to(self.device).contiguous(memory_format=form)

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.how.bf16)


# ---- the leaderboard


def kept_file() -> Path | None:
    """The Path of the file of this learner's runs, or None if nothing is to be kept
    (COURSE_ANSWERS=off).
    """
    folder = answers.folder()
    return folder and folder / KEPT


def keep(run: Run, file: str | os.PathLike | None = None) -> None:
    """Append `run` to `file` (default: `kept_file()`); what the file holds stays. Print a sentence
    if that fails.
    """
    path = Path(file) if file else kept_file()
    if path is None:
        return
    line = {name: value for name, value in vars(run).items() if name != "model"}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(
            path, "ab+", buffering=0
        ) as stream:  # one write of one line: two kernels do not mix theirs
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - 1))
            cut_short = stream.read(1) not in (b"", b"\n")  # a program ended while it wrote
            stream.write(b"\n" * cut_short + json.dumps(line).encode() + b"\n")
    except OSError as error:
        print(f"{path.name} cannot be written ({error.strerror}), so this run is not kept.")


def kept(file: str | os.PathLike | None = None) -> list[Run]:
    """All runs in `file` (default: `kept_file()`), oldest first; damaged lines are skipped and stay
    in the file.
    """
    path = Path(file) if file else kept_file()
    if path is None or not path.exists():
        return []
    runs, damaged = [], []
    for number, line in enumerate(
        path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
    ):
        try:
            runs += [Run(**json.loads(line))] if line.strip() else []
        except (ValueError, TypeError):
            damaged.append(str(number))
    if damaged:
        print(
            f"{path.name}: the leaderboard leaves out what is not a run, at line {', '.join(damaged)}."
        )
    return runs


def worth(runs: Iterable[Run], base: str) -> dict[str, tuple[float, float, float]]:
    """{name: (median, lowest, highest)} of how many times as long as `base` each name takes, paired
    by seed.

    The latest run of a name and seed counts; a name that shares no seed with `base` is left out.
    """
    latest = {(run.name, run.seed): run.seconds for run in runs}
    ratios = {}
    for (name, seed), seconds in latest.items():
        if name != base and (base, seed) in latest:
            ratios.setdefault(name, []).append(seconds / latest[base, seed])
    return {name: (statistics.median(own), min(own), max(own)) for name, own in ratios.items()}


def standings(runs: Iterable[Run], track: Track) -> list[tuple[str, float, int]]:
    """(name, median seconds, runs) of each name that raced on this track and machine, fastest
    first.
    """
    here = [
        run
        for run in runs
        if (run.track, run.target, run.machine) == (track.name, track.target, machine())
    ]
    seconds = {}
    for run in here:
        seconds.setdefault(run.name, []).append(run.seconds)
    entries = [(name, statistics.median(own), len(own)) for name, own in seconds.items()]
    return sorted(entries, key=lambda entry: entry[1])


def next_name(runs: Iterable[Run]) -> str:
    """The name of the learner's next entry: "mine 1", "mine 2", ..."""
    numbers = [int(number) for run in runs if (number := run.name.removeprefix("mine ")).isdigit()]
    return f"mine {max(numbers, default=0) + 1}"
