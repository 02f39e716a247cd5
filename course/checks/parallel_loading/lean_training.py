"""Probe of exercise lean_training: its loader, data, step and accuracy write down what happens."""

from collections.abc import Iterator

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_word

EPOCHS = 3
BATCHES = 3  # of an epoch
IMAGES_MIN = 70  # to validate on: more than a usual batch


class _Run:
    """What a training is given; `log` says in order what it does with it.

    `read` the images that are read of the validation set, `shown` those that the accuracy is asked
    of.
    """

    def __init__(self, seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        shape = (IMAGES_MIN + seed % 9, 3, 2, 2)
        self.pictures = torch.randint(256, shape, generator=rng).to(torch.uint8)
        self.first = seed % 200  # the colour from which those of batches count
        self.passes = 0
        self.log = []
        self.read = []
        self.shown = []

    def __iter__(self) -> Iterator[torch.Tensor]:  # the loader's part
        self.passes += 1
        self.log.append(f"epoch {self.passes}")
        for number in range(BATCHES):
            colour = self.first + 10 * self.passes + number
            yield torch.full((2, 3, 2, 2), colour, dtype=torch.uint8)

    def __len__(self) -> int:
        return BATCHES

    def step(self, batch: torch.Tensor) -> None:
        self.log.append(f"step {int(batch.flatten()[0])}")

    def accuracy(self, images: torch.Tensor) -> float:
        self.log.append("accuracy")
        self.shown.append([str(images.dtype), images.cpu()])
        return self.passes / 10

    def steps(self) -> int:
        """How many steps were made."""
        return sum(line.startswith("step") for line in self.log)


class _Validation:
    """The validation set of a _Run, which notes what is read of it."""

    def __init__(self, run: _Run) -> None:
        self.run = run

    def __len__(self) -> int:
        return len(self.run.pictures)

    def __getitem__(self, i: int) -> torch.Tensor:
        picture = self.run.pictures[i]  # IndexError at the end, as a list
        self.run.read.append(int(i))
        return picture.clone()


@exercise()
def lean_training(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Three epochs and what happens in them."""
    run = _Run(seed)
    reached = answer(run, _Validation(run), run.step, run.accuracy, EPOCHS)
    yield "returns a list of numbers", [type_word(reached), list(map(float, reached))]
    yield "passes over the loader", run.passes
    yield "batches that are trained on, in each epoch", run.steps() / EPOCHS
    yield "the accuracy is asked for", run.log.count("accuracy")
    reads = [run.read.count(i) for i in range(len(run.pictures))]
    yield "how often each validation image is read", reads
    yield "what happens, in order", run.log
    yield "the images of which the accuracy is asked", run.shown
