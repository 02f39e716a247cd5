"""Work that differs in one piece of cheap advice: *functions without arguments*, for compare_pairs.

Used by unit 06, part 1. The patient is the training that most people write first: a Dataset that
makes one image at a time, a DataLoader with default options, Adam.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision.transforms import v2

from course.datasets import fashion
from course.device import scale
from course.loading.loaders import forked
from course.measure.comparison import CHANGED, Interval, compare_pairs, ratio_interval
from course.measure.timing import now
from course.training.models import FashionCNN
from course.training.ragged_transformer import RaggedTransformer

Batches = Iterable[tuple[Tensor, Tensor]]
Work = Callable[[], object]
SHAPES = 7  # batch sizes that autotuning meets
LINEAR_COLUMNS = 784
FEW_ROWS = 4


def new_model(device: torch.device) -> nn.Module:
    """The network of 06/1 with the same initial weights each time: larger at the scale of a GPU."""
    torch.manual_seed(0)
    if scale() != "gpu":
        return FashionCNN().to(device)
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(1, 64, 3, padding=1, bias=False)  # one channel, small images
    return model.to(device)


class OneByOne(Dataset):
    """Images that become tensors when they are asked for, as torchvision's FashionMNIST gives them.

    Args:
        pixels: uint8 (n, 28, 28).
        labels: int64 (n,).
    """

    def __init__(self, pixels: Tensor, labels: Tensor):
        self.pixels = pixels.numpy()
        self.labels = labels.tolist()
        normalise = v2.Normalize((fashion.MEAN,), (fashion.DEVIATION,))
        to_float = v2.ToDtype(torch.float32, scale=True)
        self.transform = v2.Compose([v2.ToImage(), to_float, normalise])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.transform(self.pixels[i][..., None]), self.labels[i]


class Patient:
    """A model with its optimizer, and trainings of it that differ in one thing.

    Args:
        images: float32 (n, 1, 28, 28), on the CPU.
        labels: int64 (n,).
        batch_size: of every training.
    """

    def __init__(self, model: nn.Module, images: Tensor, labels: Tensor, batch_size: int):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters())
        self.device = next(model.parameters()).device
        self.images = images
        self.labels = labels
        self.batch_size = batch_size

    # ---- batches

    def loader(
        self, num_workers: int = 0, dataset: Dataset | None = None, **options: Any
    ) -> DataLoader:
        """A shuffling DataLoader of a data set of images (default: the tensors in memory)."""
        data = TensorDataset(self.images, self.labels) if dataset is None else dataset
        return forked(data, self.batch_size, num_workers, shuffle=True, **options)

    def slices(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of rows of the tensors in memory, in a random order."""
        for rows in torch.randperm(len(self.images)).split(self.batch_size):
            yield self.images[rows], self.labels[rows]

    def on_device(self) -> list[tuple[Tensor, Tensor]]:
        """The same batches in every pass, on the device already."""
        batches = []
        for x, y in zip(
            self.images.split(self.batch_size), self.labels.split(self.batch_size), strict=True
        ):
            batches.append((x.to(self.device), y.to(self.device)))
        return batches

    def from_arrays(self, convert: Callable[[np.ndarray], Tensor]) -> Callable[[], Batches]:
        """A function: batches whose tensors `convert` makes of arrays."""
        arrays = []
        for x, y in self.slices():
            arrays.append((x.numpy(), y.numpy()))
        return lambda: ((convert(x), convert(y)) for x, y in arrays)

    # ---- work

    def step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Train on a batch and return its loss."""
        x, y = (part.to(self.device) for part in batch)
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def train(
        self,
        batches: Batches | Callable[[], Batches],
        to_none: bool = True,
        each: Callable[[Tensor], object] | None = None,
        **options: Any,
    ) -> Work:
        """A function that trains for one pass over `batches`.

        Args:
            to_none: whether gradients become None, and not 0, before a step.
            each: called with the loss after each step.
            options: of the transfer to the device.
        """

        def run() -> None:
            for x, y in batches() if callable(batches) else batches:
                self.optimizer.zero_grad(set_to_none=to_none)
                x, y = (part.to(self.device, **options) for part in (x, y))
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                if each:
                    each(loss)

        return run

    def with_workers(
        self, numbers: Iterable[int], dataset: Dataset | None = None
    ) -> dict[str, Work]:
        """{"2 workers": a training for one pass with so many workers, ...}.

        Args:
            dataset: of images (default: the tensors in memory).
        """
        works = {}
        for n_workers in numbers:
            works[f"{n_workers} workers"] = self.train(self.loader(n_workers, dataset))
        return works

    def validate(self, context: Callable[[], Any]) -> Work:
        """A function that counts hits over the batches in eval mode, inside a context."""
        batches = self.on_device()

        def run() -> object:
            self.model.eval()
            with context():
                hits = sum((self.model(x).argmax(1) == y).sum() for x, y in batches)
            self.model.train()
            return hits.item()

        return run


def inside(context: Callable[[], Any], work: Work) -> Work:
    """A function that does `work` inside a context."""

    def run() -> None:
        with context():
            work()

    return run


def anomaly_detection() -> contextlib.AbstractContextManager:
    """Notes a traceback for each operation; does not look for NaN, which costs more."""
    return torch.autograd.set_detect_anomaly(True, check_nan=False)


def bytes_kept(work: Work) -> int:
    """The bytes of all tensors that autograd saves during `work`, each storage once."""
    kept = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        work()
    return sum(kept.values())


# ---- pairs of work in which advice can win


def linear_steps(rows: int, device: torch.device) -> tuple[Work, Work]:
    """Steps of a linear regression on an array of `rows`: made a tensor by tensor, by as_tensor."""
    table = np.random.default_rng(0).random((rows, LINEAR_COLUMNS), dtype=np.float32)
    targets = torch.ones(rows, device=device)
    weights = torch.zeros(LINEAR_COLUMNS, device=device)

    def step(convert: Callable[[np.ndarray], Tensor]) -> None:
        x = convert(table).to(device)
        error = x @ weights - targets
        weights.sub_(x.T @ error, alpha=1e-7 / rows)

    return lambda: step(torch.tensor), lambda: step(torch.as_tensor)


def few_rows(width: int, device: torch.device) -> tuple[Work, Work]:
    """Gradients made 0, or None, then a forward and a backward pass of FEW_ROWS rows."""
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
    x = torch.randn(FEW_ROWS, width, device=device)

    def run(to_none: bool) -> None:
        model.zero_grad(set_to_none=to_none)
        model(x).sum().backward()

    return lambda: run(False), lambda: run(True)


# ---- on CUDA


def made(shape: tuple[int, ...], device: torch.device) -> tuple[Work, Work]:
    """100 tensors made on the CPU and moved to the device, or made there."""

    def moved() -> None:
        for _ in range(100):
            torch.zeros(shape).to(device)

    def there() -> None:
        for _ in range(100):
            torch.zeros(shape, device=device)

    return moved, there


def on_cuda(patient: Patient) -> dict[str, tuple[Work, Work]]:
    """{advice: (without, with)} of what needs CUDA."""
    usual = patient.train(patient.loader())
    pinned = patient.loader(pin_memory=True)
    step = patient.train(patient.on_device())
    return {
        "pin_memory": (usual, patient.train(pinned)),
        "pin_memory and non_blocking": (usual, patient.train(pinned, non_blocking=True)),
        "device=": made((patient.batch_size, 1, 28, 28), patient.device),
        "cudnn.benchmark": (step, inside(benchmarking, step)),
    }


def gains_on_cuda(patient: Patient, seconds: float) -> dict[str, Interval]:
    """{advice: how many times as fast it makes the work} of what needs CUDA.

    "first step" is the ratio of `first_step_of_a_shape`, and "first step without" its control.

    Args:
        seconds: that each pair takes, about.
    """
    compared = compare_pairs(on_cuda(patient), device=patient.device, seconds=seconds)
    gains = {name: comparison.ratio(CHANGED) for name, comparison in compared.items()}
    gains["first step"] = first_step_of_a_shape(patient)
    unseen = range(1 + SHAPES, 1 + 2 * SHAPES)
    gains["first step without"] = first_step_of_a_shape(patient, unseen, tunes=False)
    return gains


@contextlib.contextmanager
def benchmarking(on: bool = True) -> Iterator[None]:
    """cudnn.benchmark while the context lasts."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = on
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def first_step_of_a_shape(
    patient: Patient, missing: Iterable[int] = range(1, 1 + SHAPES), tunes: bool = True
) -> Interval:
    """The time of a later step over that of the first step of a batch size.

    Args:
        missing: images that each batch has fewer than a whole one.
        tunes: whether cudnn.benchmark is on.
    """
    first = []
    later = []
    with benchmarking(tunes):
        for fewer in missing:
            x = patient.images[: patient.batch_size - fewer]
            batch = x, patient.labels[: len(x)]
            for taken in (first, later):
                begin = now(patient.device)
                patient.step(batch)
                taken.append(now(patient.device) - begin)
    seconds = [torch.tensor(taken, dtype=torch.float64) for taken in (later, first)]
    return ratio_interval(*seconds)


# ---- a small GPT


def gpt_step(sizes: dict[str, int], device: torch.device) -> Work:
    """A function: a training step of a small GPT on random tokens.

    Args:
        sizes: vocabulary, dim, layers, heads of the model, and rows, columns of its batch.
    """
    sizes = dict(sizes)
    shape = sizes.pop("rows"), sizes.pop("columns")
    torch.manual_seed(0)
    tokens = torch.randint(sizes["vocabulary"], shape, device=device)
    positions = torch.arange(shape[1], device=device)
    model = RaggedTransformer(**sizes).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        scores = model(tokens[:, :-1], positions[:-1])
        F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step
