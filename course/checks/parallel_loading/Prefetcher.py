"""Probe of exercise Prefetcher: order of the copies, watched through a stand-in for torch.cuda."""

import collections
import functools
import itertools

import torch

from course.checks.parallel_loading.cuda_stand_in import Cuda, Loader, There, values_of
from course.engine.exercise import Answer, Facts, exercise

GPU = torch.device("cuda", 0)


@exercise()
def Prefetcher(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Passes through the stand-in, and the same loop on a GPU if there is one."""
    rng = torch.Generator().manual_seed(seed)
    n = 4 + seed % 4
    make = functools.partial(_made, answer, rng, n)
    yield from _one_pass(make)
    for few in (1, 0):
        _, loader, prefetcher = make(few)
        yield f"a loader of {few} batches", _values(loader, prefetcher)
    if device.type == "cuda":
        yield (
            "on this GPU: sums that are computed while the next batch is copied",
            _sums(answer, device, rng),
        )


def _made(answer, rng, most, n=None):
    """(cuda, loader, prefetcher) of `n` batches, by default `most`."""
    cuda = Cuda()
    loader = Loader(most if n is None else n, rng, cuda)
    return cuda, loader, answer(loader, GPU, cuda)


def _yielded(prefetcher, loader):
    """The batches of a pass, and what held when each was yielded: name -> list, mostly of bools."""
    cuda, batches, held = loader.cuda, [], collections.defaultdict(list)
    computing = cuda.current_stream(GPU)
    for number, batch in enumerate(itertools.islice(prefetcher, loader.n + 2), 1):
        copies = [t for t in batch if isinstance(t, There)]
        later = [t for t in cuda.copies if t.batch == number]
        held["copied"].append(len(copies) == 2)
        held["ahead"].append(bool(later) or number >= loader.n)
        held["no more"].append(loader.drawn <= number + 1)
        held["back"].append(cuda.current_stream(GPU) is computing)
        held["waits"].append(all(t.place in computing.after for t in copies))
        held["free"].append(not any(t.place in computing.after for t in later))
        held["marked"].append(sum(bool(t.marked) for t in copies))
        held["kept"].append(all(any(stream is computing for stream in t.marked) for t in copies))
        batches.append(batch)
    return batches, held


def _one_pass(make):
    cuda, loader, prefetcher = make()
    yield "its length is that of the loader", len(prefetcher)
    batches, held = _yielded(prefetcher, loader)
    main = cuda.current_stream(GPU)
    yield "the batches of the loader, in order", values_of(batches)
    yield "every tensor of a batch is a copy on the device", all(held["copied"])
    yield "each tensor is copied once", len(cuda.copies)
    yield "the copies are queued on another stream", all(t.stream is not main for t in cuda.copies)
    yield "when a batch is yielded, the caller's stream is the current one", all(held["back"])
    yield "when a batch is yielded, the copy of the next one is queued", all(held["ahead"])
    yield "when a batch is yielded, no more than the next one has been drawn", all(held["no more"])
    yield "the computing stream waits for something on the side stream", bool(main.after)
    yield "the computing stream waits for the copy of its batch", all(held["waits"])
    yield "and not for the copy of the next batch", all(held["free"])
    yield "the processor waits for nothing: no synchronize", cuda.stops == 0
    yield "record_stream is called on both tensors of a batch", held["marked"]
    yield "record_stream is told the computing stream, which will read them", all(held["kept"])

    yield "a second pass: the batches that the loader gives then", _values(loader, prefetcher)


def _values(loader, prefetcher):
    return values_of(_yielded(prefetcher, loader)[0])


def _sums(answer, device, rng):
    """Sum of each batch, taken on the GPU behind a long computation that the next copies could
    overtake.
    """
    batches = [(torch.randint(9, (1 << 20,), generator=rng).pin_memory(),) for _ in range(8)]
    work, sums = torch.eye(2048, device=device), []
    for (values,) in answer(batches, device):
        for _ in range(10):
            work = work @ work
        sums.append((values + work[0, 1].long()).sum())  # of one device, else torch refuses
        del values
    return torch.stack(sums)
