"""Known mistakes of exercise collate_bytes, and right answers in other styles."""

import numpy
import torch
from torch.utils.data import default_collate, get_worker_info

from course.checks.engine import alternative, mistake


def shared_memory(images):
    """An unwritten batch in shared memory for `images`."""
    storage = torch.UntypedStorage._new_shared(sum(image.numel() for image in images))
    return torch.tensor([], dtype=torch.uint8).set_(storage).view(len(images), *images[0].shape)


def stacked(images):
    """A batch of `images` as the task defines it."""
    return torch.stack(images, out=None if get_worker_info() is None else shared_memory(images))


@mistake(
    "collate_bytes",
    "The batch is made of floats, four bytes for each pixel's one. Leave the conversion to the device that computes.",
)
def float_batch(samples):
    images, labels = zip(*samples, strict=True)
    return torch.stack([image.float() / 255 for image in images]), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "The pixels become floats and then bytes again: each is copied at four times its size. Stack the bytes.",
)
def through_floats(samples):
    images, labels = zip(*samples, strict=True)
    return stacked([image.float().to(torch.uint8) for image in images]), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "Each image is copied before it is copied into the batch. torch.stack takes views with any strides as they are.",
)
def cloned_first(samples):
    images, labels = zip(*samples, strict=True)
    return stacked([image.clone() for image in images]), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "In a worker the batch is left in ordinary memory, and torch copies it to shared memory to hand it over. "
    "Ask get_worker_info() and stack into shared memory.",
)
def never_shared(samples):
    images, labels = zip(*samples, strict=True)
    return torch.stack(images), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "The batch is put together first and then moved to shared memory, a second copy. Have the shared memory first, "
    "then stack with out=.",
)
def shared_afterwards(samples):
    images, labels = zip(*samples, strict=True)
    batch = torch.stack(images)
    return batch if get_worker_info() is None else batch.share_memory_(), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "share_memory_() copies the whole tensor, also before anything was written to it. Make the memory shared from the "
    "start: torch.UntypedStorage._new_shared(n_bytes).",
)
def shared_while_empty(samples):
    images, labels = zip(*samples, strict=True)
    batch = torch.empty(len(images), *images[0].shape, dtype=torch.uint8)
    if get_worker_info() is not None:
        batch.share_memory_()
    return torch.stack(images, out=batch), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "The main process gets shared memory too, which nobody shares with it. Ask get_worker_info() whether this is a "
    "worker.",
)
def always_shared(samples):
    images, labels = zip(*samples, strict=True)
    return torch.stack(images, out=shared_memory(images)), torch.tensor(labels)


@mistake(
    "collate_bytes", "The labels are a plain tuple of numbers. Make an int64 tensor of them: torch.tensor(labels)."
)
def labels_left_alone(samples):
    images, labels = zip(*samples, strict=True)
    return stacked(images), labels


@mistake(
    "collate_bytes",
    "The pixels are read in the order of memory, which differs for a permuted view. Stack the images themselves.",
)
def memory_order(samples):
    images, labels = zip(*samples, strict=True)
    flat = [image.as_strided((image.numel(),), (1,)) for image in images]
    return stacked(flat).view(len(images), *images[0].shape), torch.tensor(labels)


@alternative("collate_bytes")
def by_torchs_own(samples):
    return tuple(default_collate(samples))


@alternative("collate_bytes")
def image_by_image(samples):
    first = samples[0][0]
    shape = torch.Size([len(samples), *first.shape])
    if get_worker_info():
        batch = torch.empty(0, dtype=torch.uint8)
        batch.set_(torch.UntypedStorage._new_shared(shape.numel()), 0, shape)
    else:
        batch = first.new_empty(shape)
    labels = torch.zeros(len(samples), dtype=torch.long)
    for i, (image, label) in enumerate(samples):
        batch[i] = image
        labels[i] = label
    return batch, labels


@alternative("collate_bytes")
def by_numpy(samples):
    images = [image.numpy() for image, _ in samples]
    labels = torch.from_numpy(numpy.array([label for _, label in samples], dtype=numpy.int64))
    if get_worker_info() is None:
        return torch.from_numpy(numpy.stack(images)), labels
    size = len(images) * images[0].size
    batch = torch.tensor([], dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(size))
    batch = batch.reshape(len(images), *images[0].shape)
    numpy.stack(images, out=batch.numpy())
    return batch, labels
