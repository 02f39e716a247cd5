"""Known mistakes of exercise lean_training, and right answers in other styles."""

import torch
from torch.utils.data import DataLoader

from course.engine.known_answers import alternative

MISTAKES = {
    "reads_again": (
        "The validation images are read again in each epoch. Read them before the first one.",
        ("    images = torch", "    read = lambda: torch"),
        ("accuracy(images)", "accuracy(read())"),
    ),
    "keeps_batches": (
        "The batches of the first pass are kept and used again. Iterate over the loader in each epoch.",
        ("    reached = []", "    loader, reached = list(loader), []"),
    ),
    "only_at_the_end": (
        "The accuracy is asked for once, at the end. Ask after each epoch.",
        ("        reached.append", "    reached.append"),
    ),
    "asks_first": (
        "The accuracy is asked for before the epoch's steps. Ask after them.",
        ("        reached.append(accuracy(images))\n", ""),
        ("        for batch", "        reached.append(accuracy(images))\n        for batch"),
    ),
    "trains_on_validation": (
        "The network is trained on the validation images too, so its accuracy says nothing.",
        ("        reached.append", "        step(images)\n        reached.append"),
    ),
    "floats": (
        "The validation images become floats. Leave their dtype: accuracy takes bytes.",
        ("(len(validation))])", "(len(validation))]) / 255"),
    ),
    "shuffles": (
        "The validation images are shuffled. Read them in their order.",
        ("(len(validation))])", "(len(validation))]).flip(0)"),
    ),
}


@alternative
def one_batch(loader, validation, step, accuracy, epochs):
    (images,) = DataLoader(validation, batch_size=len(validation))
    reached = []
    for _ in range(epochs):
        for batch in loader:
            step(batch)
        reached.append(float(accuracy(images)))
    return reached


@alternative
def read_in_the_first_epoch(loader, validation, step, accuracy, epochs):
    held, reached = None, []
    while len(reached) < epochs:
        for batch in loader:
            step(batch)
        if held is None:
            held = torch.stack([validation[i] for i in range(len(validation))])
        reached.append(accuracy(held))
    return reached
