"""Known mistakes of exercise lean_training, and right answers in other styles."""

import torch
from torch.utils.data import DataLoader

from course.checks.engine import alternative, mistake


def _read(validation):
    return torch.stack([validation[i] for i in range(len(validation))])


def _epoch(loader, step):
    for batch in loader:
        step(batch)


@mistake("lean_training", "The validation images are read again in each epoch. Read them before the first one.")
def reads_again(loader, validation, step, accuracy, epochs):
    reached = []
    for _ in range(epochs):
        _epoch(loader, step)
        reached.append(accuracy(_read(validation)))
    return reached


@mistake(
    "lean_training", "The batches of the first pass are kept and used again: an epoch is a new pass of the loader."
)
def keeps_batches(loader, validation, step, accuracy, epochs):
    images, batches, reached = _read(validation), list(loader), []
    for _ in range(epochs):
        _epoch(batches, step)
        reached.append(accuracy(images))
    return reached


@mistake("lean_training", "The accuracy is asked for once, at the end. Ask after each epoch.")
def only_at_the_end(loader, validation, step, accuracy, epochs):
    images = _read(validation)
    for _ in range(epochs):
        _epoch(loader, step)
    return [accuracy(images)]


@mistake("lean_training", "The accuracy is asked for before the epoch's steps. Ask after them.")
def asks_first(loader, validation, step, accuracy, epochs):
    images, reached = _read(validation), []
    for _ in range(epochs):
        reached.append(accuracy(images))
        _epoch(loader, step)
    return reached


@mistake("lean_training", "The network is trained on the validation images too, so its accuracy says nothing.")
def trains_on_validation(loader, validation, step, accuracy, epochs):
    images, reached = _read(validation), []
    for _ in range(epochs):
        _epoch(loader, step)
        step(images)
        reached.append(accuracy(images))
    return reached


@mistake("lean_training", "The validation images become floats. Leave their dtype: accuracy takes bytes.")
def floats(loader, validation, step, accuracy, epochs):
    images, reached = _read(validation) / 255, []
    for _ in range(epochs):
        _epoch(loader, step)
        reached.append(accuracy(images))
    return reached


@mistake("lean_training", "The validation images are shuffled. Read them in their order.")
def shuffles(loader, validation, step, accuracy, epochs):
    images, reached = _read(validation).flip(0), []
    for _ in range(epochs):
        _epoch(loader, step)
        reached.append(accuracy(images))
    return reached


@alternative("lean_training")
def one_batch(loader, validation, step, accuracy, epochs):
    (images,) = DataLoader(validation, batch_size=len(validation))
    reached = []
    for _ in range(epochs):
        _epoch(loader, step)
        reached.append(float(accuracy(images)))
    return reached


@alternative("lean_training")
def read_in_the_first_epoch(loader, validation, step, accuracy, epochs):
    images, reached = None, []
    while len(reached) < epochs:
        for batch in loader:
            step(batch)
        if images is None:
            images = _read(validation)
        reached.append(accuracy(images))
    return reached
