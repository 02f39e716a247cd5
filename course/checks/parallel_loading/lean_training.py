"""Probe of exercise lean_training: a loader, a validation set, a step and an accuracy that write
down what happens.
"""

import torch

from course.engine.exercise import Answer, Facts, exercise


class _Run:
    """What a training is given; `log` says in order what it does with it."""

    def __init__(self, seed):
        rng = torch.Generator().manual_seed(seed)
        self.pictures = torch.randint(256, (4, 3, 2, 2), generator=rng).to(torch.uint8)
        self.batches, self.passes, self.log, self.read, self.shown = 3, 0, [], [], []

    def __iter__(self):  # the loader's part
        self.passes += 1
        self.log.append(f"epoch {self.passes}")
        for number in range(self.batches):
            yield torch.full((2, 3, 2, 2), 10 * self.passes + number, dtype=torch.uint8)

    def __len__(self):
        return self.batches

    def step(self, batch):
        self.log.append(f"step {int(batch.flatten()[0])}")

    def accuracy(self, images):
        self.log.append("accuracy")
        self.shown.append([str(images.dtype), images.cpu()])
        return self.passes / 10


class _Validation:
    """The validation set of a _Run, which notes what is read of it."""

    def __init__(self, run):
        self.run = run

    def __len__(self):
        return len(self.run.pictures)

    def __getitem__(self, i):
        picture = self.run.pictures[i]  # IndexError at the end, as a list
        self.run.read.append(int(i))
        return picture.clone()


@exercise()
def lean_training(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Three epochs and what happens in them."""
    run = _Run(seed)
    reached = answer(run, _Validation(run), run.step, run.accuracy, 3)
    yield "returns a list of numbers", [type(reached).__name__, list(map(float, reached))]
    yield "passes over the loader", run.passes
    yield (
        "batches that are trained on, in each epoch",
        sum(line.startswith("step") for line in run.log) / 3,
    )
    yield "the accuracy is asked for", run.log.count("accuracy")
    yield (
        "how often each validation image is read",
        [run.read.count(i) for i in range(len(run.pictures))],
    )
    yield "what happens, in order", run.log
    yield "the images of which the accuracy is asked", run.shown
