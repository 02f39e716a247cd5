"""The shuffles of libraries that stream shards, as orders of sample numbers.

A *shard* is a file of consecutive samples, read from its beginning to its end. WebDataset and
Hugging Face datasets shuffle the shards and then pass their samples through a buffer; MosaicML
Streaming moves each sample by a random distance. Where a library is installed its own code runs,
else its algorithm, written again here from its description; `source` says which.
"""

import importlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Item = TypeVar("Item")
EMULATED = "its algorithm"
START = 100  # WebDataset yields as soon as its buffer holds so many samples
SPREAD = (0.75, 1.25)  # of Streaming's block size: each shard draws its own


def shard_order(samples: int, shard: int, rng: np.random.Generator) -> Tensor:
    """The sample numbers, shard after shard in random order: int64 (samples,).

    Args:
        samples: a multiple of `shard`, the samples per shard.
    """
    shards = torch.from_numpy(rng.permutation(samples // shard))
    return (shards[:, None] * shard + torch.arange(shard)).flatten()


def buffer_rule(batch: int, shard: int, buffer: int) -> float:
    """How many times the variance of random batches a buffer over shuffled, sorted shards leaves.

    A sample leaves the buffer with probability 1 / `buffer` per step, so a batch draws from shards
    of ages t with weights exp(-t / buffer): as from 2 * buffer / shard equal ones. Holds from a few
    shards in the buffer on, while it is small against the file.
    """
    return 1 + batch * shard / (2 * buffer)


def webdataset_shuffle(stream: Iterable[Item], size: int, rng: random.Random) -> Iterator[Item]:
    """Yield the items of `stream` as WebDataset's `shuffle(size)` does.

    Its buffer grows while it yields: two items come for one that leaves, until it is full.

    Source: shuffle in filters.py of webdataset 0.2.
    """
    buffer: list[Item] = []
    items = iter(stream)
    for item in items:
        buffer.append(item)
        if len(buffer) < size:
            buffer.extend(itertools.islice(items, 1))
        if len(buffer) >= min(START, size):
            yield _taken(buffer, rng)
    while buffer:
        yield _taken(buffer, rng)


def _taken(buffer, rng):
    """A random item, whose place the last one takes."""
    place = rng.randrange(len(buffer))
    buffer[place], buffer[-1] = buffer[-1], buffer[place]
    return buffer.pop()


def source(library: str) -> str:
    """The library's name and version if it is installed, else EMULATED."""
    try:
        return f"{library} {importlib.import_module(library).__version__}"
    except Exception:  # not installed, or it cannot be imported here
        return EMULATED


def hugging_face_shuffle(
    read: Callable[[int], Iterator[dict]],
    shards: int,
    buffer: int,
    seed: int,
    shuffle_buffer: Callable,
) -> Iterator[dict]:
    """Yield the samples of all shards as `IterableDataset.shuffle(buffer_size=buffer)` does.

    Args:
        read: yields the samples of a shard, by its number.
        shards: how many there are.
        seed: of the epoch.
        shuffle_buffer: does it where the library `datasets` is missing; an exercise of unit 04/5.
    """
    if source("datasets") == EMULATED:
        rng = np.random.default_rng(seed)
        order = rng.permutation(shards).tolist()
        stream = (sample for number in order for sample in read(number))
        return iter(shuffle_buffer(stream, buffer, rng))
    datasets = importlib.import_module("datasets")
    numbers = {"numbers": list(range(shards))}  # a list is split into shards

    def samples(numbers):
        for number in numbers:
            yield from read(number)

    stream = datasets.IterableDataset.from_generator(samples, gen_kwargs=numbers)
    return iter(stream.shuffle(seed=seed, buffer_size=buffer))


def streaming_order(samples: int, shard: int, block: int, seed: int) -> Tensor:
    """The sample numbers in the order of Streaming's shuffle `py1e`, for one node.

    Each sample moves by a random distance; those of a shard spread over about `block` samples.

    Source: Streaming documentation, "Shuffling algorithms".
    """
    if source("streaming") != EMULATED:
        get_shuffle = importlib.import_module("streaming.base.shuffle").get_shuffle
        sizes = np.full(samples // shard, shard)
        return torch.from_numpy(get_shuffle("py1e", sizes, 1, seed, 0, block))
    rng = np.random.default_rng(seed)
    order = shard_order(samples, shard, rng).numpy()
    moved = np.arange(samples, dtype=float)
    for start in range(0, samples, shard):
        width = rng.uniform(*SPREAD) * block
        reach = max(0.0, (width - shard) / 2)
        low = max(-reach, -start)
        high = min(reach, samples - shard - start)
        moved[start : start + shard] += rng.uniform(low, high, shard)
    return torch.from_numpy(order[moved.argsort()])
