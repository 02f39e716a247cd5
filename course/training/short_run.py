"""The short trainings of 06/2: a small network, its batches, and a training along a schedule.

    lab = ShortRuns(images, labels, held_images, held_labels, width=4, batch_size=128)
    lab.train(schedule, seed=1)         # the validation accuracy of a new network

A schedule is a list with the learning rate and the momentum of each step, so its length is the
number of steps. A seed sets the initial weights and the order of the images.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.training.contest import MOMENTUM

CLASSES = 10
PIXELS_AT_THE_END = 16  # of 28 x 28, after three convolutions of stride 2
ROWS = 1000  # of a forward pass that validates
LOOKS_PER_EPOCH = 4  # of a training until a target


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """SGD with momentum; its learning rate is set before each step."""
    return torch.optim.SGD(model.parameters(), lr=0.0, momentum=MOMENTUM)


class AdamBy(torch.optim.Optimizer):
    """An optimizer that calls a function with the signature of 06/2's adamw_step.

    Args:
        adamw_step: changes parameters, running means and running squares in place.
        decay: the weight decay.
        decoupled: True for AdamW, False for Adam with L2.
    """

    def __init__(
        self,
        adamw_step: Callable[..., None],
        params: Iterable[nn.Parameter],
        decay: float,
        decoupled: bool,
    ):
        super().__init__(params, {"lr": 0.0})
        self.adamw_step = adamw_step
        self.decay = decay
        self.decoupled = decoupled
        self.steps = 0
        self.weights = self.param_groups[0]["params"]
        self.means = [torch.zeros_like(weight) for weight in self.weights]
        self.squares = [torch.zeros_like(weight) for weight in self.weights]

    def step(self) -> None:
        """Move all weights."""
        self.steps += 1
        self.adamw_step(
            self.weights,
            [weight.grad for weight in self.weights],
            self.means,
            self.squares,
            self.steps,
            self.param_groups[0]["lr"],
            weight_decay=self.decay,
            decoupled=self.decoupled,
        )


@dataclass(frozen=True)
class ShortRuns:
    """The images of all short trainings, on their device, and how they train.

    `width` is the number of channels after the first convolution.
    """

    images: Tensor
    labels: Tensor
    held_images: Tensor
    held_labels: Tensor
    width: int
    batch_size: int

    def network(
        self, seed: int, norm: Callable[[int], nn.Module] = nn.BatchNorm2d
    ) -> nn.Sequential:
        """Three convolutions, each with `norm` and ReLU, and one linear layer."""
        torch.manual_seed(seed)
        channels = [1, self.width, 2 * self.width, 4 * self.width]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(channels):
            convolution = nn.Conv2d(before, after, 3, stride=2, padding=1)
            layers += [convolution, norm(after), nn.ReLU()]
        head = nn.Linear(channels[-1] * PIXELS_AT_THE_END, CLASSES)
        return nn.Sequential(*layers, nn.Flatten(), head).to(self.images.device)

    def batches_of(
        self, batch_size: int, seed: int, among: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of training images without end, in a new order in each epoch.

        Args:
            among: the first so many images only (default: all).
        """
        rng = torch.Generator().manual_seed(seed)
        n = among or len(self.labels)
        while True:
            order = torch.randperm(n, generator=rng).to(self.images.device)
            for rows in order.split(batch_size):
                if len(rows) == min(batch_size, n):  # a smaller last batch is left out
                    yield self.images[rows], self.labels[rows]

    def accuracy_of(self, model: nn.Module) -> float:
        """Share of the validation images that `model` classifies correctly."""
        model.eval()
        with torch.no_grad():
            parts = [model(part).argmax(1) for part in self.held_images.split(ROWS)]
        model.train()
        return (torch.cat(parts) == self.held_labels).float().mean().item()

    def train(
        self,
        schedule: Sequence[tuple[float, float]],
        seed: int,
        make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd,
        among: int | None = None,
    ) -> float:
        """The validation accuracy of a new network after a step per entry of `schedule`."""
        model = self.network(seed)
        batches = self.batches_of(self.batch_size, seed, among)
        optimizer = make_optimizer(model)
        for lr, momentum in schedule:
            x, y = next(batches)
            optimizer.param_groups[0].update(lr=lr, momentum=momentum)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        return self.accuracy_of(model)

    def steps_to(
        self, target: float, batch_size: int, lr: float, seed: int, most_steps: int
    ) -> float:
        """Steps at a constant `lr` until the validation accuracy is `target`; infinite if never.

        The accuracy is looked at LOOKS_PER_EPOCH times per epoch. The target is reached where a
        straight line between two looks crosses it, so that rare looks do not count as more steps.
        """
        model = self.network(seed)
        batches = self.batches_of(batch_size, seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM)
        look_every = max(1, len(self.labels) // (LOOKS_PER_EPOCH * batch_size))
        before = 1 / CLASSES  # the accuracy at the last look
        for step in range(1, 1 + most_steps):
            x, y = next(batches)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if step % look_every:
                continue
            accuracy = self.accuracy_of(model)
            if accuracy >= target:
                share = (target - before) / (accuracy - before)
                return step - look_every * (1 - share)
            before = accuracy
        return math.inf

    def step_of(self, batch_size: int, lr: float) -> Callable[[], None]:
        """A function that makes one step of a new network, with the same batch each time."""
        model = self.network(0)
        x, y = next(self.batches_of(batch_size, 0))
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

        return step
