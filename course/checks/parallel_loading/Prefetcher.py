"""Probe of exercise Prefetcher: order of the copies, watched through a stand-in for torch.cuda."""

import collections
import functools
import itertools

import torch

from course.checks.engine import exercise
from course.checks.parallel_loading.cuda_stand_in import Cuda, Loader, Stream, There, values_of
from course.checks.probing.errors import error_name

GPU = torch.device("cuda", 0)


@exercise()
def Prefetcher(answer, device, seed):
    """A pass through the stand-in, what may be different about it, and the same loop on the device at hand."""
    rng = torch.Generator().manual_seed(seed)
    n = 4 + seed % 4
    make = functools.partial(_made, answer, rng, n)
    yield from _one_pass(make)
    yield from _other_loaders(make)
    yield from _other_streams(make)
    yield from _second_gpu(make)
    yield from _without_streams(answer, rng, n)
    if device.type == "cuda":
        yield "on this GPU: sums that are computed while the next batch is copied", _sums(answer, device, rng)


def _made(answer, rng, most, n=None, kind=tuple, target=GPU, **options):
    """(cuda, loader, prefetcher) of `n` batches, by default `most`."""
    cuda = Cuda()
    loader = Loader(most if n is None else n, rng, kind, cuda, **options)
    return cuda, loader, answer(loader, target, cuda)


def _handed_out(prefetcher, loader, device):
    """The batches of a pass, and what held when each was handed out: name -> list, mostly of bools."""
    cuda, batches, held = loader.cuda, [], collections.defaultdict(list)
    computing = cuda.current_stream(device)
    for number, batch in enumerate(itertools.islice(prefetcher, loader.n + 2), 1):
        copies = [t for t in batch if isinstance(t, There)]
        later = [t for t in cuda.copies if t.batch == number]
        held["copied"].append(len(copies) == 2)
        held["ahead"].append(bool(later) or number >= loader.n)
        held["no more"].append(loader.drawn <= number + 1)
        held["back"].append(cuda.current_stream(device) is computing and cuda.gpu == 0)
        held["waits"].append(all(t.place in computing.after for t in copies))
        held["free"].append(not any(t.place in computing.after for t in later))
        held["marked"].append(sum(bool(t.marked) for t in copies))
        held["kept"].append(all(any(stream is computing for stream in t.marked) for t in copies))
        batches.append(batch)
    return batches, held


def _one_pass(make):
    cuda, loader, prefetcher = make()
    yield "its length is that of the loader", len(prefetcher)
    batches, held = _handed_out(prefetcher, loader, GPU)
    main = cuda.current_stream(GPU)
    yield "the batches of the loader, in order", values_of(batches)
    yield "every tensor of a batch is a copy on the device", all(held["copied"])
    yield "each tensor is copied once", len(cuda.copies)
    yield "tuples stay tuples", [type(batch).__name__ for batch in batches]
    yield "the copies are made with non_blocking=True", all(t.non_blocking for t in cuda.copies)
    yield "the copies are queued on another stream", all(t.stream is not main for t in cuda.copies)
    yield "when a batch is handed out, the caller's stream is the current one", all(held["back"])
    yield "when a batch is handed out, the copy of the next one is queued", all(held["ahead"])
    yield "when a batch is handed out, no more than the next one has been drawn", all(held["no more"])
    yield "the computing stream waits for something on the side stream", bool(main.after)
    yield "the computing stream waits for the copy of its batch", all(held["waits"])
    yield "and not for the copy of the next batch", all(held["free"])
    yield "the processor waits for nothing: no synchronize", cuda.stops == 0
    yield "record_stream is called on both tensors of a batch", held["marked"]
    yield "record_stream is told the computing stream, which will read them", all(held["kept"])

    yield "a second pass: the batches that the loader gives then", _values(loader, prefetcher)
    next(iter(prefetcher))
    yield "a pass after one that was broken off starts from the first batch", _values(loader, prefetcher)


def _values(loader, prefetcher):
    return values_of(_handed_out(prefetcher, loader, GPU)[0])


def _other_loaders(make):
    _, loader, prefetcher = make(kind=list)
    yield "lists stay lists", [type(batch).__name__ for batch in _handed_out(prefetcher, loader, GPU)[0]]
    yield "a loader of one batch", _values(*make(1)[1:])
    yield "an empty loader gives no batch", _values(*make(0)[1:])
    yield "an exception of the loader reaches the caller", [error_name(list, make(fails_at=at)[2]) for at in (0, 2)]


def _other_streams(make):
    cuda, _, prefetcher = make()
    other, batches = Stream(cuda, GPU), iter(prefetcher)
    next(batches)
    with cuda.stream(other):
        batch = next(batches)
        held = [t.place in other.after and any(stream is other for stream in t.marked) for t in batch]
    yield "a caller that changes its stream in the middle of a pass", all(held)


def _second_gpu(make):
    second = torch.device("cuda", 1)
    cuda, loader, prefetcher = make(target="cuda:1")
    held = _handed_out(prefetcher, loader, second)[1]
    main = cuda.current_stream(second)
    yield (
        "the second of two GPUs, by name, while the first is the current one",
        {
            "the copies are on it": all(t.gpu == second for t in cuda.copies),
            "its own stream waits for the batch": all(held["waits"]),
            "the copies are on a side stream of it": all(t.stream is not main for t in cuda.copies)
            and all(stream.device == second for stream in cuda.streams),
            "the memory is kept for its own stream": all(held["kept"]),
        },
    )


def _without_streams(answer, rng, n):
    for kind, target in ((tuple, torch.device("cpu")), (list, "cpu")):
        cuda = Cuda()
        batches = list(itertools.islice(answer(Loader(n, rng, kind), target, cuda), n + 2))
        yield (
            f"on the CPU, {kind.__name__}s",
            {
                "batches": values_of(batches),
                "types": sorted({type(batch).__name__ for batch in batches}),
                "streams made": len(cuda.streams),
            },
        )


def _sums(answer, device, rng):
    """Sum of each batch, taken on the GPU behind a long computation that the next copies could overtake."""
    batches = [(torch.randint(9, (1 << 20,), generator=rng).pin_memory(),) for _ in range(8)]
    work, sums = torch.eye(2048, device=device), []
    for (values,) in answer(batches, device):
        for _ in range(10):
            work = work @ work
        sums.append((values + work[0, 1].long()).sum())  # of one device, else torch refuses
        del values
    return torch.stack(sums)
