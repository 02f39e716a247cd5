"""Probe of exercise collate_bytes."""

import itertools

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course.checks.engine import exercise
from course.checks.parallel_loading.workers import in_worker
from course.checks.probing.tensors import tensors_in


class _Copied(TorchDispatchMode):
    """Counts the bytes that torch operations write inside the block; asking for memory or filling it is no copy.

    Tensors of less than `smallest` bytes are labels and do not count.
    """

    NO_COPY = tuple("empty new_empty resize set_ zero new_zeros ones new_ones full new_full fill".split())

    def __init__(self, smallest):
        super().__init__()
        self.smallest, self.bytes, self.all_shared = smallest, 0, True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not func._schema.name.removeprefix("aten::").startswith(self.NO_COPY):
            results = [result] if len(func._schema.returns) == 1 else result or ()
            made = [r for r, s in zip(results, func._schema.returns, strict=True) if s.alias_info is None]
            given = itertools.zip_longest(func._schema.arguments, args)
            written = [kwargs.get(a.name, value) for a, value in given if a.alias_info and a.alias_info.is_write]
            for tensor in [t for t in tensors_in(made + written) if t.nbytes >= self.smallest]:
                self.bytes += tensor.nbytes
                self.all_shared &= tensor.is_shared()
        return result


@exercise()
def collate_bytes(answer, device, seed):
    """A batch of images: what is in it, and how its bytes got there (loading is the processor's work)."""
    rng = torch.Generator().manual_seed(seed)
    n, height, width = 4 + seed % 3, 20 + seed % 5, 24 + seed % 7
    unwatched = getattr(answer, "__wrapped__", answer)  # the engine's watching makes copies of its own

    def make(n, permuted=False):
        """n samples; permuted images are views of (H, W, 3)."""
        shape = (n, height, width, 3) if permuted else (n, 3, height, width)
        pixels = torch.randint(256, shape, dtype=torch.uint8, generator=rng)
        pixels = pixels.permute(0, 3, 1, 2) if permuted else pixels
        labels = torch.randint(1000, (n,), generator=rng).tolist()
        return list(zip([p if permuted else p.clone() for p in pixels], labels, strict=True))

    def watched(samples):
        """How a call went; `times` counts bytes written for each pixel, 1 also where torch does not see the copy."""
        with _Copied(height * width) as copied:
            images, labels = unwatched(samples)
        times = round(copied.bytes / sum(image.numel() for image, _ in samples))
        memory = images.untyped_storage().nbytes()
        times = {"times": max(times, 1), "memory": memory / images.numel()}
        return times | {"shared": images.is_shared(), "at once": copied.all_shared, "images": images}

    samples = make(n)
    both = answer(samples)
    yield "returns two things, images and labels", len(both)
    images, labels = both
    yield "the images are a uint8 tensor (n, 3, H, W)", {"shape": images.shape, "dtype": images.dtype}
    yield "the labels are an int64 tensor (n,)", {"shape": labels.shape, "dtype": labels.dtype}
    yield "the pixels", images
    yield "the labels", labels
    yield "images that are permuted views (H, W, 3)", answer(make(n, permuted=True))[0]
    yield "a single sample", dict(zip(("images", "labels"), answer(make(1)), strict=False))
    here = watched(samples)
    yield "how often each pixel is copied, counted in bytes", here["times"]
    yield "the same for permuted views", watched(make(n, permuted=True))["times"]
    yield "bytes of memory for each value of the batch", here["memory"]
    yield "in the main process the batch lies in ordinary memory", not here["shared"]

    def batches_there():
        batches = [watched(samples), watched(make(n, permuted=True)), watched(make(1))]
        return [batch | {"images": batch["images"].tolist()} for batch in batches]

    there = in_worker(batches_there)
    yield "in a worker the batch lies in shared memory", all(batch["shared"] for batch in there)
    yield "in a worker: the pixels", [torch.tensor(batch["images"]) for batch in there]
    yield "in a worker the pixels are written into shared memory at once", all(batch["at once"] for batch in there)
    yield "in a worker: how often the memory of the batch is written", [batch["times"] for batch in there]
    yield "in a worker: bytes of memory for each value of the batch", [batch["memory"] for batch in there]
