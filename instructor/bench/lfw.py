"""How fast LFW can be loaded: decoders and loaders against PIL + ToTensor without workers.

All give equal pixels. Contestants take turns in shuffled order; FOLDER defaults to the prepared
LFW, else its stand-in.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.io import ImageReadMode, decode_jpeg, read_file

from course.datasets import lfw
from course.device import cores, machine
from course.loading.loaders import JpegDecoder, forked, jpeg_buffers
from course.measure.comparison import compare_measured
from course.notebook.solutions import load_solutions
from instructor.bench import SECONDS_MAX, control_line, rounds_up_to
from instructor.bench.tables import Table

UNIT = "01_parallel_loading"
SLOTS = 3  # batches of the loader of threads that exist at a time


def paths(folder: Path | None, rounds: int, batch_size: int) -> list[Table]:
    """Print images/s of loading paths that end in the same float32 batches, and their ratios.

    Returns: the table.
    """
    answers = load_solutions(UNIT)
    dataset = answers.LFWDataset(folder or lfw.folder())
    n_images = len(dataset)
    loaders = contestants(answers, dataset, batch_size)
    check_equal(loaders)
    n_batches = len(next(iter(loaders.values())))

    def measure(name: str) -> float:
        return answers.seconds_per_pass(loaders[name], n_batches, repeats=1, warmup=0).item()

    limits = rounds_up_to(rounds)
    found = compare_measured(list(loaders), measure, rounds=limits, seconds=SECONDS_MAX)
    note = f"{n_images:,} images; equal pixels, checked; {control_line(found)}"
    title = f"Loading LFW, batches of {batch_size}"
    columns = ["way", "images/s", "times as fast as the first line"]
    table = Table(f"lfw paths, batch {batch_size}", title, columns, note)
    for name in found.seconds:
        rate = f"{found.rate(name, n_images).estimate:,.0f}"
        table.add(name, rate, found.ratio(name))
    print(table)
    print(machine())
    return [table]


def contestants(
    answers: SimpleNamespace, dataset: Dataset, batch_size: int
) -> dict[str, Iterable[Tensor]]:
    """{name: loader of the same float32 batches}."""
    files = dataset.paths
    loader = functools.partial(forked, batch_size=batch_size)
    bytes_ = Decoded(files)
    floats = Decoded(files, _floats)
    return {
        "PIL, ToTensor, 0 workers": loader(dataset),
        "PIL, ToTensor, 2 workers": loader(dataset, num_workers=2),
        "torchvision's decoder, float per image, 0 workers": loader(floats),
        "torchvision's decoder, float per batch, 0 workers": _Floats(loader(bytes_)),
        "torchvision's decoder, float per batch, 2 workers": _Floats(loader(bytes_, num_workers=2)),
        "threads into reused buffers, 1 thread": threaded(answers, files, batch_size, 1),
        "threads into reused buffers, a thread for each core": threaded(
            answers, files, batch_size, cores()
        ),
    }


def check_equal(loaders: dict[str, Iterable[Tensor]]) -> None:
    """Run each loader once, and assert that it gives the pixels of the first, to the bit."""
    first = next(iter(loaders))
    for name, loader in loaders.items():
        for ours, theirs in zip(loader, loaders[first], strict=True):
            assert torch.equal(ours, theirs), f"{name}: other pixels than {first}"


def threaded(
    answers: SimpleNamespace, files: Sequence[Path], batch_size: int, threads: int
) -> Iterable[Tensor]:
    """The loader of threads of part 6: batches of `files`, in order."""
    buffers = jpeg_buffers(files, SLOTS, batch_size)
    return answers.ThreadedLoader(JpegDecoder(files), in_turn(files, batch_size), buffers, threads)


def in_turn(files: Sequence[Path], batch_size: int) -> list[list[int]]:
    """The indices of `files` in batches."""
    return [batch.tolist() for batch in torch.arange(len(files)).split(batch_size)]


class Decoded(Dataset):
    """Images decoded by torchvision, uint8 (3, height, width), through an optional transform."""

    def __init__(
        self, paths: Sequence[Path], transform: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.paths = paths
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Tensor:
        image = decode_jpeg(read_file(str(self.paths[i])), mode=ImageReadMode.RGB)
        return self.transform(image) if self.transform else image


def _floats(octets: Tensor) -> Tensor:
    return octets.float().div_(255)


class _Floats:
    """Batches of bytes, turned into floats in [0, 1] where they arrive."""

    def __init__(self, loader: Iterable[Tensor]) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Tensor]:
        return map(_floats, self.loader)
