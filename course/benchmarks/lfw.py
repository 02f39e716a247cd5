"""How fast LFW can be loaded, and how well the costs of one worker predict more workers.

`workers` measures one worker's costs with a light and a heavy transform and how many cores' work all cores do at once,
predicts the other numbers of workers without a fit, and measures them; `paths` sets decoders and loaders against PIL +
ToTensor without workers, at equal pixels; `memory` watches all processes over epochs.  Contestants take turns in
shuffled order; FOLDER defaults to the prepared LFW, else its stand-in.
"""

import functools
import statistics
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_jpeg, read_file

from course.benchmarks import spread
from course.checks.expected import load_solutions
from course.commands.lfw_dataset import UNIT, worker_loaders
from course.datasets import lfw
from course.device import cores, machine
from course.loading.loaders import JpegDecoder, OneWorker, effective_cores, jpeg_buffers, worker_counts
from course.measure.timing import counted
from course.measure.usage import memory_bytes

SLOTS = 3  # batches of the loader of threads that exist at a time


def run(what, folder, rounds, batch_size):
    """Print the tables of `what`: workers, paths or memory; of the images in `folder`, by default the prepared LFW."""
    answers = load_solutions(UNIT)
    dataset = answers.LFWDataset(folder or lfw.folder())
    print(f"{len(dataset):,} images, batch {batch_size}, {rounds} rounds")
    {"workers": workers, "paths": paths, "memory": memory}[what](answers, dataset, batch_size, rounds)
    print(machine())


def workers(answers, dataset, batch_size, rounds):
    """Print, for both transforms, images/s against workers and the error of what one worker's costs predict.

    A machine's speed drifts from second to second, so each round predicts its own passes: it takes one worker's costs
    and the effective cores, then a pass with each number of workers.
    """
    counts = worker_counts()
    for name, transform in (("ToTensor", None), ("heavy_transform", answers.heavy_transform())):
        data = answers.LFWDataset(Path(dataset.paths[0]).parents[1], transform)
        n_batches = -(-len(data) // batch_size)
        loaders = dict(zip(counts, worker_loaders(answers, data, counts, batch_size), strict=True))
        worker = OneWorker(data, batch_size)

        def measure(count, loaders=loaders, n_batches=n_batches):
            return answers.seconds_per_pass(loaders[count], n_batches, repeats=1, warmup=0).item()

        answers.sweep(measure, counts, 1)  # starts the workers
        costs, n_cores, found = [], [], []
        for k in range(rounds):
            costs.append(worker.costs())
            n_cores.append(effective_cores(data))
            found.append(answers.sweep(measure, counts, 1, seed=k))
        seconds = torch.cat(found, dim=1)
        pairs = zip(costs, n_cores, strict=True)
        predicted = torch.stack([answers.predict_seconds(counts[1:], c.cpu, c.main, n) for c, n in pairs], dim=1)
        a, c = (1000 * statistics.median(part) for part in ([c.cpu for c in costs], [c.main for c in costs]))
        print(f"\n{name}: a = {a:.1f} ms, c = {c:.1f} ms per batch of one worker; {cores()} cores do the work of "
              f"{spread(torch.tensor(n_cores), '.2f')}")  # fmt: skip
        print("  images/s, ratio to 0 workers, percent by which a pass takes longer than predicted; "
              "median (lowest to highest)")  # fmt: skip
        errors = 100 * (seconds[1:] / n_batches / predicted - 1)
        for count, passes, error in zip(counts, seconds, [None, *errors], strict=True):
            off = "" if error is None else spread(error, "+.0f")
            print(f"  {counted(count, 'worker'):<10}{spread(len(data) / passes, ',.0f'):>28}  "
                  f"{spread(seconds[0] / passes, '.2f')}  {off}")  # fmt: skip
        per_batch = seconds.quantile(0.5, dim=1) / n_batches
        known = dict(zip(counts, [per_batch[0].item(), *predicted.quantile(0.5, dim=1).tolist()], strict=True))
        chosen, best = answers.choose_workers(known), counts[per_batch.argmin()]
        print(f"  the prediction chooses {chosen}; measured best {best}; best over chosen, in time, ", end="")
        print(spread(seconds[counts.index(best)] / seconds[counts.index(chosen)], ".2f"))


def paths(answers, dataset, batch_size, rounds):
    """Print images/s of loading paths that end in the same float32 batches, and their ratio to the seed's pipeline."""
    files = dataset.paths
    decoded = Decoded(files)
    loader, two = functools.partial(DataLoader, batch_size=batch_size), answers.loader_options(2, "cpu")
    in_order = dataset, in_turn(files, batch_size), 2, answers.worker_loop, answers.in_order
    contestants = {
        "PIL, ToTensor, 0 workers": loader(dataset),
        "PIL, ToTensor, 2 workers": loader(dataset, **two),
        "torchvision's decoder, float per image, 0 workers": loader(Decoded(files, _floats)),
        "torchvision's decoder, float per batch, 0 workers": _Floats(loader(decoded)),
        "torchvision's decoder, float per batch, 2 workers": _Floats(loader(decoded, **two)),
        "the WorkerLoader of part 6, 2 workers": answers.WorkerLoader(*in_order),
        "threads into reused buffers, 1 thread": threaded(answers, files, batch_size, 1),
        "threads into reused buffers, a thread for each core": threaded(answers, files, batch_size, cores()),
    }
    names = list(contestants)
    for name in names:  # warm, and equal to the bit
        for ours, theirs in zip(contestants[name], contestants[names[0]], strict=True):
            assert torch.equal(ours, theirs), f"{name}: other pixels than {names[0]}"
    n_batches = len(contestants[names[0]])

    def measure(name):
        return answers.seconds_per_pass(contestants[name], n_batches, repeats=1, warmup=0).item()

    seconds = answers.sweep(measure, names, rounds)
    print("\nimages/s and ratio to the first line, median (lowest to highest); equal pixels, checked")
    for name, passes in zip(names, seconds, strict=True):
        print(f"  {name:<52} {spread(len(files) / passes, ',.0f'):>24}  {spread(seconds[0] / passes, '.2f')}")


def memory(answers, dataset, batch_size, rounds):
    """Print the memory of all processes after the first epoch and the most of the later ones."""
    contestants = {
        "PIL, ToTensor, 0 workers": DataLoader(dataset, batch_size),
        "PIL, ToTensor, 2 workers": DataLoader(dataset, batch_size, **answers.loader_options(2, "cpu")),
        "threads into reused buffers": threaded(answers, dataset.paths, batch_size, cores()),
    }
    print(f"\nmemory of all processes, MB: most in the first epoch, most in each of {rounds - 1} more")
    for name, loader in contestants.items():
        most = [max(memory_bytes() for _ in loader) / 1e6 for _ in range(rounds)]
        print(f"  {name:<28} {most[0]:7.0f}   {', '.join(f'{m:.0f}' for m in most[1:])}")
        contestants[name] = loader = None  # its workers end


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
