"""Probe of exercise Prefetcher: order of the copies, watched through a stand-in for torch.cuda."""

import collections
import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from course.checks.parallel_loading.cuda_stand_in import Cuda, Loader, There, values_of
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried

GPU = torch.device("cuda", 0)


@exercise()
def Prefetcher(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Passes through the stand-in, and the same loop on a GPU if there is one."""
    rng = torch.Generator().manual_seed(seed)
    make = functools.partial(_made, answer, rng, 4 + seed % 4)
    yield from _one_pass(make)
    for few in (1, 0):
        loader, prefetcher = make(few)
        yield f"a loader of {few} batches", _values(loader, prefetcher)
    if device.type == "cuda":
        sums = _sums(answer, device, rng)
        yield "on this GPU: sums that are computed while the next batch is copied", sums


def _made(
    answer: Answer, rng: torch.Generator, most: int, n: int | None = None
) -> tuple[Loader, Any]:
    """(loader, prefetcher) of `n` batches, by default `most`."""
    cuda = Cuda()
    loader = Loader(most if n is None else n, rng, cuda)
    return loader, answer(loader, GPU, cuda)


def _yielded(prefetcher: Iterable, loader: Loader) -> tuple[list[Any], dict[str, list[int | bool]]]:
    """The batches of a pass, and what held when each was yielded: name -> list, mostly of bools."""
    cuda = loader.cuda
    computing = cuda.current_stream(GPU)
    batches = []
    held = collections.defaultdict(list)
    for number, batch in enumerate(itertools.islice(prefetcher, loader.n + 2), 1):
        copies = [tensor for tensor in batch if isinstance(tensor, There)]
        next_copies = [copy for copy in cuda.copies if copy.batch == number]
        held["copied"].append(len(copies) == 2)
        held["ahead"].append(bool(next_copies) or number >= loader.n)
        held["no more"].append(loader.drawn <= number + 1)
        held["back"].append(cuda.current_stream(GPU) is computing)
        held["waits"].append({copy.place for copy in copies} <= computing.after)
        held["free"].append(computing.after.isdisjoint(copy.place for copy in next_copies))
        held["marked"].append(sum(bool(copy.marked) for copy in copies))
        held["kept"].append(all(copy.is_kept_for(computing) for copy in copies))
        batches.append(batch)
    return batches, held


def _one_pass(make: Callable[..., tuple[Loader, Any]]) -> Facts:
    loader, prefetcher = make()
    cuda = loader.cuda
    yield "its length is that of the loader", len(prefetcher)
    batches, held = _yielded(prefetcher, loader)
    main = cuda.current_stream(GPU)
    yield "the batches of the loader, in order", values_of(batches)
    yield "every tensor of a batch is a copy on the device", all(held["copied"])
    yield "each tensor is copied once", len(cuda.copies)
    on_side_stream = all(copy.stream is not main for copy in cuda.copies)

    def always(name: str) -> Any:
        return tried(all(held[name]), loader.n)

    yield "the copies are queued on another stream", tried(on_side_stream, loader.n)
    yield "when a batch is yielded, the caller's stream is the current one", always("back")
    yield "when a batch is yielded, the copy of the next one is queued", always("ahead")
    yield "when a batch is yielded, no more than the next one has been drawn", always("no more")
    waits = tried(bool(main.after), loader.n)
    yield "the computing stream waits for something on the side stream", waits
    yield "the computing stream waits for the copy of its batch", always("waits")
    yield "and not for the copy of the next batch", always("free")
    yield "the processor waits for nothing: no synchronize", tried(cuda.stops == 0, loader.n)
    yield "record_stream is called on both tensors of a batch", held["marked"]
    yield "record_stream is told the computing stream, which will read them", always("kept")

    yield "a second pass: the batches that the loader gives then", _values(loader, prefetcher)


def _values(loader: Loader, prefetcher: Iterable) -> list[list]:
    batches, _ = _yielded(prefetcher, loader)
    return values_of(batches)


def _sums(answer: Answer, device: torch.device, rng: torch.Generator) -> torch.Tensor:
    """Sum of each batch, taken on the GPU behind a long computation.

    The next copies could overtake it.
    """
    batches = []
    for _ in range(8):
        values = torch.randint(9, (1 << 20,), generator=rng)
        batches.append((values.pin_memory(),))
    work = torch.eye(2048, device=device)
    sums = []
    for (values,) in answer(batches, device):
        for _ in range(10):
            work = work @ work
        sums.append((values + work[0, 1].long()).sum())  # of one device, else torch refuses
        del values
    return torch.stack(sums)
