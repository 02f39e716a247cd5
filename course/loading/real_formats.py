"""Loaders of the formats that people train from, over files made on the spot.

A token file as nanoGPT maps it, a folder of JPEGs, and tar shards as WebDataset streams them. Each
is a Format: the order of its samples per epoch, and its batches with the numbers of their samples.
`judged` says how random they are, what they read and how far they are from memcpy.
"""

import io
import itertools
import mmap
import os
import tarfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from course.loading import judge, shuffles
from course.measure.comparison import Interval
from course.measure.page_cache import drop_cached, reads

VOCABULARY = 50_257  # of GPT-2
FILES_MIN = 1000  # so many are a file per sample
ONE_CALL = "token file, random, one call"
EPOCHS = 6  # whose orders are averaged
COUNTED = 4  # times the files: the rest of an epoch that reads more is not read
Batch = tuple[Tensor, Tensor]
_mappings: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()  # of the files of all loaders, while used


@dataclass(frozen=True)
class Format:
    """A loader: `order(epoch)` are the samples that `read(epoch)` yields as (data, numbers)."""

    name: str
    files: Sequence[Path]
    order: Callable[[int], Tensor]
    read: Callable[[int], Iterator[Batch]]

    def __iter__(self) -> Iterator[Batch]:
        return self.read(0)

    @property
    def nbytes(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self.files)


@dataclass(frozen=True)
class Judged:
    """What was found about a Format."""

    name: str
    bias: float  # variance of the batch means over that of random batches
    bytes_read: float  # from the disk per epoch, in times the files
    memcpy: Interval  # times as long as copying the batches, in a step, one thread

    def __str__(self) -> str:
        random = f"{self.bias:6.1f} × random"
        return f"{self.name:32} {random} {self.times_read:>8} × files  {self.memcpy} × memcpy"

    @property
    def times_read(self) -> str:
        """How often the files are read in an epoch, in text."""
        return f"{self.bytes_read:,.0f}" if self.bytes_read >= 100 else f"{self.bytes_read:.1f}"


# ---- files


def make_tokens(folder: Path, samples: int, length: int) -> Path:
    """Write `samples` samples of `length` tokens as one file of uint16; return its path."""
    path = folder / "tokens.bin"
    rng = np.random.default_rng(0)
    rng.integers(VOCABULARY, size=(samples, length), dtype=np.uint16).tofile(path)
    os.sync()  # pages that are not yet written cannot be dropped
    return path


def make_token_shards(tokens: Path, length: int, shard: int) -> list[Path]:
    """Write the token file `tokens` again, as files of `shard` samples; return their paths."""
    samples = np.memmap(tokens, dtype=np.uint16, mode="r").reshape(-1, length)
    paths = []
    for start in range(0, len(samples), shard):
        path = tokens.parent / f"tokens-{start // shard:04d}.bin"
        samples[start : start + shard].tofile(path)
        paths.append(path)
    os.sync()
    return paths


def make_pictures(folder: Path, samples: int, side: int) -> list[Path]:
    """Write `samples` JPEGs of `side` times `side` pixels; return their paths in order."""
    rng = np.random.default_rng(0)
    detail = side // 3  # a picture of less detail is a file of less than a memory page
    paths = []
    for number in range(samples):
        coarse = rng.integers(256, size=(detail, detail, 3), dtype=np.uint8)
        path = folder / f"{number:06d}.jpg"
        Image.fromarray(coarse).resize((side, side)).save(path)
        paths.append(path)
    return paths


def make_shards(pictures: Sequence[Path], shard: int) -> list[Path]:
    """Write the files of `pictures` into tar files of `shard` each, next to them."""
    paths = []
    for start in range(0, len(pictures), shard):
        path = pictures[0].parent / f"{start // shard:04d}.tar"
        with tarfile.open(path, "w") as tar:
            for picture in pictures[start : start + shard]:
                tar.add(picture, picture.name)
        paths.append(path)
    os.sync()
    return paths


# ---- reading


def token_batches(paths: Sequence[Path], length: int, order: Tensor, batch: int) -> Iterator[Batch]:
    """Yield batches of int64 tokens from mapped files, as nanoGPT's train.py makes them.

    Args:
        paths: of the token file, or of its shards, which are equally long.
    """
    tables = [_mapped(path, length) for path in paths]
    shard = len(tables[0])
    for numbers in order.split(batch):
        rows = []
        for number in numbers.tolist():
            row = tables[number // shard][number % shard]
            rows.append(torch.from_numpy(row.astype(np.int64)))
        yield torch.stack(rows), numbers


def _mapped(path: Path, length: int) -> np.memmap:
    table = np.memmap(path, dtype=np.uint16, mode="c")
    _mappings.add(table.base)
    return table.reshape(-1, length)


def gathered_batches(
    paths: Sequence[Path], length: int, order: Tensor, batch: int
) -> Iterator[Batch]:
    """Yield the same batches, each gathered from one mapped file in one call."""
    (path,) = paths
    table = torch.from_numpy(_mapped(path, length).view(np.int16))  # torch gathers no uint16
    for numbers in order.split(batch):
        yield table[numbers].view(torch.uint16).long(), numbers


def hugging_face_batches(
    paths: Sequence[Path], length: int, shuffled: Callable[[Callable], Iterator[dict]], batch: int
) -> Iterator[Batch]:
    """Yield the same from shards that are read in one go and then `shuffled`."""

    def read(number):
        for place, row in enumerate(_mapped(paths[number], length)):
            yield {"place": place, "shard": number, "tokens": row.astype(np.int64)}

    shard = len(_mapped(paths[0], length))
    samples = shuffled(read)
    while chunk := list(itertools.islice(samples, batch)):
        rows = [torch.as_tensor(sample["tokens"]) for sample in chunk]
        numbers = [sample["shard"] * shard + sample["place"] for sample in chunk]
        yield torch.stack(rows), torch.tensor(numbers)


def picture_batches(pictures: Sequence[Path], order: Tensor, batch: int) -> Iterator[Batch]:
    """Yield batches of uint8 pixels; a file is opened and decoded per sample."""
    for numbers in order.split(batch):
        pixels = [decoded(pictures[number].read_bytes()) for number in numbers.tolist()]
        yield torch.stack(pixels), numbers


def tar_batches(
    paths: Iterable[Path], mix: Callable[[Iterable], Iterable], batch: int
) -> Iterator[Batch]:
    """Yield batches of uint8 pixels from tar files, whose samples go through `mix` undecoded."""
    samples = iter(mix(streamed(paths)))
    while chunk := list(itertools.islice(samples, batch)):
        numbers = torch.tensor([number for number, _ in chunk])
        yield torch.stack([decoded(jpeg) for _, jpeg in chunk]), numbers


def streamed(paths: Iterable[Path]) -> Iterator[tuple[int, bytes]]:
    """Yield (number, JPEG) of all files in tar files that are read from beginning to end."""
    for path in paths:
        with tarfile.open(path, "r|") as tar:
            for member in tar:
                yield int(Path(member.name).stem), tar.extractfile(member).read()


def decoded(jpeg: bytes) -> Tensor:
    """The pixels of a JPEG: uint8 (height, width, 3)."""
    return torch.from_numpy(np.array(Image.open(io.BytesIO(jpeg))))


# ---- the loaders that are compared


def token_formats(folder: Path, sizes: Any, windows: Callable, mix: Callable) -> list[Format]:
    """The Formats over a token file and over shards of it, both written to `folder`.

    Args:
        sizes: of the unit's experiments.
        windows: the answer to quasi_random_order.
        mix: the answer to shuffle_buffer.
    """
    n, shard, buffer = sizes.judged_samples, sizes.judged_shard, sizes.judged_buffer
    length, batch = sizes.judged_length, sizes.judged_batch
    path = make_tokens(folder, n, length)
    shards = make_token_shards(path, length, shard)

    def mapped(name, files, order, batches=token_batches):
        return Format(name, files, order, lambda e: batches(files, length, order(e), batch))

    def hugging(read, epoch):
        return shuffles.hugging_face_shuffle(read, n // shard, buffer, epoch, mix)

    def numbers_of(number):
        return ({"sample": sample} for sample in range(number * shard, (number + 1) * shard))

    def hugging_order(epoch):
        return torch.tensor([sample["sample"] for sample in hugging(numbers_of, epoch)])

    def hugging_read(epoch):
        return hugging_face_batches(shards, length, lambda r: hugging(r, epoch), batch)

    def windows_order(epoch):
        return windows(n, shard, buffer // shard, 0, epoch)

    def streaming_order(epoch):
        return shuffles.streaming_order(n, shard, buffer, epoch)

    return [
        mapped("token file, in order", [path], lambda epoch: torch.arange(n)),
        mapped("token file, random", [path], lambda epoch: random_order(n, epoch)),
        mapped(ONE_CALL, [path], lambda epoch: random_order(n, epoch), gathered_batches),
        mapped("token shards, windows of part 2", shards, windows_order),
        mapped(f"Streaming's py1e, {shuffles.source('streaming')}", shards, streaming_order),
        Format(
            f"Hugging Face's, {shuffles.source('datasets')}", shards, hugging_order, hugging_read
        ),
    ]


def picture_formats(folder: Path, sizes: Any, mix: Callable) -> list[Format]:
    """The Formats over a folder of JPEGs and over tar shards of them, which it writes.

    Args:
        mix: the answer to shuffle_buffer.
    """
    n, shard, buffer = sizes.judged_pictures, sizes.judged_tar, sizes.judged_tar_buffer
    batch = sizes.judged_batch
    pictures = make_pictures(folder, n, sizes.judged_side)
    shards = make_shards(pictures, shard)

    def tar_format(name, shards_of):
        def mixed(stream, epoch):
            return mix(stream, buffer, np.random.default_rng(epoch))

        def order(epoch):
            numbers = (shards_of(epoch)[:, None] * shard + torch.arange(shard)).flatten()
            return torch.tensor(list(mixed(numbers.tolist(), epoch)))

        def read(epoch):
            paths = [shards[i] for i in shards_of(epoch).tolist()]
            return tar_batches(paths, lambda stream: mixed(stream, epoch), batch)

        return Format(name, shards, order, read)

    def one_by_one(epoch):
        return picture_batches(pictures, random_order(n, epoch), batch)

    return [
        Format("JPEG folder, random", pictures, lambda e: random_order(n, e), one_by_one),
        tar_format("tar shards in order, buffer", lambda epoch: torch.arange(n // shard)),
        tar_format("tar shards shuffled, buffer", lambda epoch: random_order(n // shard, epoch)),
    ]


def random_order(n: int, epoch: int) -> Tensor:
    """A permutation of 0 to n - 1: int64."""
    return torch.from_numpy(np.random.default_rng(epoch).permutation(n))


# ---- the judge


def judged(loader: Format, batch_bias: Callable, batch: int, seconds: float) -> Judged:
    """What there is to say about a Format.

    Args:
        batch_bias: the answer to that exercise.
        batch: samples of a batch.
        seconds: that its comparison with memcpy takes at most.
    """
    file_order = torch.arange(len(loader.order(0)))
    biases = [batch_bias(file_order, loader.order(epoch), batch) for epoch in range(EPOCHS)]
    bytes_read = read_with_little_room(loader, loader.nbytes / 4) / loader.nbytes
    for path in loader.files:
        path.read_bytes()  # into the page cache
    memcpy = judge.waiting(loader, threads=1, ahead=0, seconds=seconds).times_memcpy()
    return Judged(loader.name, float(np.mean(biases)), bytes_read, memcpy)


def read_with_little_room(loader: Format, room: float) -> float:
    """Bytes that an epoch reads from the disk where `room` bytes of memory are left for the files.

    The files are dropped from the page cache whenever so many bytes have come, between batches. A
    file per sample is dropped once, because it is not read again. After COUNTED times the files,
    the count is scaled up to the epoch.
    """
    is_large = len(loader.files) < FILES_MIN
    samples = len(loader.order(0))
    seen = 0
    _drop(loader.files)
    start = before = reads()
    for _, numbers in loader.read(0):
        seen += len(numbers)
        if is_large and reads().since(before).disk_bytes > room:
            _drop(loader.files)
            before = reads()
        if reads().since(start).disk_bytes > COUNTED * loader.nbytes:
            break
    return reads().since(start).disk_bytes * samples / seen


def _drop(paths: Iterable[Path]) -> None:
    """Drop files, all of whose pages are on the disk, from the page cache.

    A page that a mapping has touched stays there until the mapping gives it back.
    """
    for mapping in _mappings:
        mapping.madvise(mmap.MADV_DONTNEED)
    for path in paths:
        drop_cached(path, is_written=True)
