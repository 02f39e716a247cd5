"""How fast LFW can be loaded: decoders and loaders against PIL + ToTensor without workers, at equal
pixels.

Contestants take turns in shuffled order; FOLDER defaults to the prepared LFW, else its stand-in.
"""

import functools

import torch
from torch.utils.data import Dataset
from torchvision.io import ImageReadMode, decode_jpeg, read_file

from course.datasets import lfw
from course.device import cores, machine
from course.loading.loaders import JpegDecoder, forked, jpeg_buffers
from course.measure.timing import sweep
from course.notebook.solutions import load_solutions
from instructor.bench import spread

UNIT = "01_parallel_loading"
SLOTS = 3  # batches of the loader of threads that exist at a time


def paths(folder, rounds, batch_size):
    """Print images/s of loading paths that end in the same float32 batches, and their ratio to the
    first one's.
    """
    answers = load_solutions(UNIT)
    dataset = answers.LFWDataset(folder or lfw.folder())
    print(f"{len(dataset):,} images, batch {batch_size}, {rounds} rounds")
    files = dataset.paths
    decoded = Decoded(files)
    loader, two = functools.partial(forked, batch_size=batch_size), {"num_workers": 2}
    in_order = dataset, in_turn(files, batch_size), 2, answers.worker_loop, answers.in_order
    contestants = {
        "PIL, ToTensor, 0 workers": loader(dataset),
        "PIL, ToTensor, 2 workers": loader(dataset, **two),
        "torchvision's decoder, float per image, 0 workers": loader(Decoded(files, _floats)),
        "torchvision's decoder, float per batch, 0 workers": _Floats(loader(decoded)),
        "torchvision's decoder, float per batch, 2 workers": _Floats(loader(decoded, **two)),
        "the WorkerLoader of part 6, 2 workers": answers.WorkerLoader(*in_order),
        "threads into reused buffers, 1 thread": threaded(answers, files, batch_size, 1),
        "threads into reused buffers, a thread for each core": threaded(
            answers, files, batch_size, cores()
        ),
    }
    names = list(contestants)
    for name in names:  # warm, and equal to the bit
        for ours, theirs in zip(contestants[name], contestants[names[0]], strict=True):
            assert torch.equal(ours, theirs), f"{name}: other pixels than {names[0]}"
    n_batches = len(contestants[names[0]])

    def measure(name):
        return answers.seconds_per_pass(contestants[name], n_batches, repeats=1, warmup=0).item()

    seconds = sweep(measure, names, rounds)
    print(
        "\nimages/s and ratio to the first line, median (lowest to highest); equal pixels, checked"
    )
    for name, passes in zip(names, seconds, strict=True):
        print(
            f"  {name:<52} {spread(len(files) / passes, ',.0f'):>24}  {spread(seconds[0] / passes, '.2f')}"
        )
    print(machine())


def threaded(answers, files, batch_size, threads):
    """The loader of threads of part 6: batches of `files`, in order."""
    buffers = jpeg_buffers(files, SLOTS, batch_size)
    return answers.ThreadedLoader(JpegDecoder(files), in_turn(files, batch_size), buffers, threads)


def in_turn(files, batch_size):
    """The indices of `files` in batches, a list of lists."""
    return [batch.tolist() for batch in torch.arange(len(files)).split(batch_size)]


class Decoded(Dataset):
    """Images decoded by torchvision, uint8 (3, height, width), through an optional transform."""

    def __init__(self, paths, transform=None):
        self.paths, self.transform = paths, transform or (lambda image: image)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return self.transform(decode_jpeg(read_file(str(self.paths[i])), mode=ImageReadMode.RGB))


def _floats(octets):
    return octets.float().div_(255)


class _Floats:
    """Batches of bytes, turned into floats in [0, 1] where they arrive."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return map(_floats, self.loader)
