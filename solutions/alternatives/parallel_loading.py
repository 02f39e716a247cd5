"""Right answers to the exercises of 01_parallel_loading, written in other styles than the reference."""

import collections
import glob
import hashlib
import io
import itertools
import multiprocessing
import os
import random
import statistics
import time
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import numpy
import torch
from matplotlib import gridspec
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from PIL import Image, UnidentifiedImageError
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.data import BatchSampler, Dataset, SequentialSampler, default_collate, get_worker_info
from torchvision import transforms
from torchvision.transforms import functional, v2

from course.checks.engine import alternative


@alternative("LFWDataset")
class BytesFirst(Dataset):
    def __init__(self, folder, transform=None):
        self.paths, self.transform = [], transform
        for person in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if os.path.isdir(os.path.join(folder, person)) and not person.startswith("."):
                files = [f for f in os.listdir(os.path.join(folder, person)) if f.endswith(".jpg") and f[0] != "."]
                self.paths += [Path(folder, person, file) for file in sorted(files)]
        if len(self.paths) == 0:
            raise FileNotFoundError(f"{folder}: expected Person/name.jpg below it")

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        content = self.paths[i].read_bytes()
        try:
            image = Image.open(io.BytesIO(content))
            image.load()
        except OSError as error:
            raise OSError("broken file: " + str(self.paths[i])) from error
        image = image.convert("RGB")
        return functional.to_tensor(image) if self.transform is None else self.transform(image)

    def name(self, i):
        return " ".join(self.paths[i].parts[-2].split("_"))


def _decode(path):
    file = Image.open(path)
    try:
        return file.convert("RGB")
    finally:
        file.close()


@alternative("LFWDataset")
class GlobAndAFunction(Dataset):
    def __init__(self, folder, transform=transforms.functional.to_tensor):
        self.paths = [Path(p) for p in sorted(glob.glob(f"{folder}/*/*.jpg"))]  # glob.glob leaves out hidden names
        self.names = [p.parent.name.replace("_", " ") for p in self.paths]
        self.transform = transform
        if not self.paths:
            raise FileNotFoundError(2, "no */*.jpg here", str(folder))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        try:
            image = _decode(self.paths[i])
        except UnidentifiedImageError:
            raise
        except OSError as error:
            error.args = (f"{error} ({self.paths[i]})",)
            raise
        return self.transform(image)

    def name(self, i):
        return self.names[i]


GlobAndAFunction.__init__.__defaults__ = (transforms.ToTensor(),)


@alternative("batch_grid")
def without_pyplot(images, titles, columns=8):
    n = images.size(0)
    if n != len(titles):
        raise ValueError("titles")
    rows = -(-n // columns)
    figure = Figure((columns * 2, rows * 2))
    for i in range(n):
        axes = figure.add_subplot(rows, columns, i + 1, xticks=[], yticks=[])
        axes.imshow(images[i].mul(255).round().clamp(0, 255).byte().cpu().numpy().transpose(1, 2, 0))
        axes.set_title(titles[i], loc="left", fontsize=7)
    return figure


@alternative("batch_grid")
def cells_of_a_gridspec(images, titles, columns=8):
    assert columns > 0
    pairs = list(zip(images.permute(0, 2, 3, 1).cpu().numpy().clip(0, 1), titles, strict=True))
    rows = (len(pairs) - 1) // columns + 1
    figure = plt.figure(figsize=(1.2 * columns, 1.4 * rows), layout="tight")
    cells = gridspec.GridSpec(rows, columns, figure=figure)
    for k, (picture, title) in enumerate(pairs):
        axes = figure.add_subplot(cells[divmod(k, columns)])
        axes.imshow(picture, interpolation="nearest")
        axes.tick_params(bottom=False, left=False, labelbottom=False, labelleft=False)
        axes.set_title(title).set_fontsize(9)
    plt.close()
    return figure


@alternative("batch_grid")
def axes_placed_by_hand(images, titles, columns=8):
    if len(titles) - len(images):
        raise ValueError((len(titles), len(images)))
    rows = (len(images) + columns - 1) // columns
    figure = Figure(figsize=(columns * 1.25, rows * 1.5))
    for k, title in enumerate(titles):
        left, bottom = k % columns / columns, 1 - (k // columns + 1) / rows
        axes = figure.add_axes((left + 0.05 / columns, bottom, 0.9 / columns, 0.8 / rows))
        axes.imshow(torch.moveaxis(images[k].cpu(), 0, -1).clip(0, 1).numpy())
        axes.xaxis.set_visible(False)
        axes.yaxis.set_visible(False)
        axes.set_title(title, size=6)
    return figure


@alternative("batch_plan")
def batch_sampler_and_cycle(n_items, batch_size, num_workers, drop_last=False):
    sampler = BatchSampler(SequentialSampler(range(n_items)), batch_size, drop_last)
    workers = itertools.cycle(range(num_workers) if num_workers else [None])
    return list(zip(workers, sampler, strict=False))


@alternative("batch_plan")
def item_by_item(n_items, batch_size, num_workers, drop_last=False):
    plan = []
    for i in range(n_items):
        if i % batch_size == 0:
            plan.append([len(plan) % num_workers if num_workers > 0 else None, []])
        plan[-1][1].append(i)
    if drop_last and plan and len(plan[-1][1]) < batch_size:
        del plan[-1]
    return plan


@alternative("batch_plan")
def split_of_torch(n_items, batch_size, num_workers, drop_last=False):
    parts = [part.tolist() for part in torch.arange(n_items).split(batch_size)] if n_items else []
    full = [part for part in parts if len(part) == batch_size or not drop_last]
    return [((i % num_workers) if num_workers else None, tuple(part)) for i, part in enumerate(full)]


@alternative("WorkerWitness")
class FilledInPlace(Dataset):
    def __init__(self, n):
        self.items = range(n)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        item = torch.full((3,), -1, dtype=torch.long)
        item[0], item[2] = self.items[i], torch.multiprocessing.current_process().pid
        if (info := get_worker_info()) is not None:
            item[1] = info.id
        return item


@alternative("WorkerWitness")
class NumberOfTheWorkerByDefault(Dataset):
    def __init__(self, n):
        self.n = n

    __len__ = lambda self: self.n  # noqa: E731

    def __getitem__(self, i):
        return torch.from_numpy(numpy.array([i, getattr(get_worker_info(), "id", -1), os.getpid()], dtype="int64"))


@alternative("heavy_transform")
def second_generation():
    return v2.Compose(
        [
            v2.RandomAffine(5, (0.1, 0.1), (0.5, 2), interpolation=Image.Resampling.BILINEAR),
            v2.RandomHorizontalFlip(0.5),
            v2.ColorJitter(0.3, 0.3, 0.3),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )


@alternative("heavy_transform")
def modules_in_a_row():
    affine = transforms.RandomAffine(
        (-5, 5), (0.1, 0.1), (0.5, 2.0), interpolation=transforms.InterpolationMode("bilinear")
    )
    jitter = transforms.ColorJitter((0.7, 1.3), (0.7, 1.3), (0.7, 1.3))
    end = [v2.PILToTensor(), transforms.ConvertImageDtype(torch.float32)]
    return nn.Sequential(affine, transforms.RandomHorizontalFlip(), jitter, *end)


class _StepByStep:
    def __call__(self, image):
        angle, shift, zoom, shear = transforms.RandomAffine.get_params(
            [-5.0, 5.0], [0.1, 0.1], [0.5, 2.0], None, list(image.size)
        )
        bilinear = transforms.InterpolationMode.BILINEAR
        image = functional.affine(image, angle, shift, zoom, shear, interpolation=bilinear, fill=0)
        if torch.rand(()) < 0.5:
            image = functional.hflip(image)
        order, *factors, _ = transforms.ColorJitter.get_params((0.7, 1.3), (0.7, 1.3), (0.7, 1.3), None)
        adjust = functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation
        for step in order.tolist():
            if step < 3:
                image = adjust[step](image, factors[step])
        return torch.from_numpy(numpy.array(image)).permute(2, 0, 1) / 255


@alternative("heavy_transform")
def functions_and_their_params():
    return _StepByStep()


@alternative("seed_worker")
def number_of_torch(worker_id):
    if get_worker_info():
        drawn = torch.randint(2**62, (4,)).tolist()  # torch seeded its own numbers in this worker
        setattr(get_worker_info().dataset, "rng", numpy.random.Generator(numpy.random.PCG64(drawn)))  # noqa: B010


@alternative("seed_worker")
def initial_seed(worker_id):
    worker = get_worker_info()
    if worker is None:
        return
    worker.dataset.rng = numpy.random.default_rng([torch.initial_seed() - worker_id, worker_id])


@alternative("seed_worker")
def number_of_python(worker_id):
    for dataset in filter(None, [getattr(get_worker_info(), "dataset", None)]):
        dataset.rng = numpy.random.Generator(numpy.random.Philox(random.getrandbits(128)))


@alternative("sample_seed")
def digest_of_a_text(seed, epoch, index):
    return int(hashlib.sha256(f"{seed}/{epoch}/{index}".encode()).hexdigest(), 16) % 2**63


@alternative("sample_seed")
def words_of_a_sequence(seed, epoch, index):
    high, low = numpy.random.SeedSequence([seed, epoch, index]).generate_state(2).tolist()
    return (high << 32 | low) >> 1


@alternative("sample_seed")
def seeded_by_a_text(seed, epoch, index):
    return random.Random(repr((seed, epoch, index))).getrandbits(63)


@alternative("sample_seed")
def mixed_by_hand(seed, epoch, index):
    mixed = 0
    for number in (seed, epoch, index):  # the finalizer of splitmix64, once for each number
        mixed = (mixed + number + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return mixed >> 1


@alternative("seconds_per_pass")
def next_in_a_loop(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    synchronize = synchronize or (lambda: None)
    seconds = torch.zeros(repeats, dtype=torch.float64)
    for i in range(-warmup, repeats):
        synchronize()
        start = clock()
        batches = iter(loader)
        for found in range(n_batches):
            try:
                next(batches)
            except StopIteration:
                raise ValueError(f"wanted {n_batches}, got {found}") from None
        synchronize()
        elapsed = clock() - start
        del batches
        if i >= 0:
            seconds[i] = elapsed
    return seconds


@alternative("seconds_per_pass")
def a_generator_of_times(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def passes():
        while True:
            if synchronize:
                synchronize()
            times, found = [clock()], 0
            batches = iter(loader)
            for found, _ in zip(range(1, n_batches + 1), batches, strict=False):  # noqa: B007
                pass
            if synchronize:
                synchronize()
            times.append(clock())
            batches = None
            if found != n_batches:
                raise ValueError(f"{found} of {n_batches} batches")
            yield times[1] - times[0]

    return torch.tensor(list(itertools.islice(passes(), warmup, warmup + repeats)), dtype=torch.float64)


@alternative("seconds_per_pass")
def time_and_count(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    out = []

    def measure():
        synchronize is None or synchronize()
        begin = clock()
        iterator = iter(loader)
        n = 0
        while n < n_batches:
            with suppress(StopIteration):
                next(iterator)
                n += 1
                continue
            break
        synchronize is None or synchronize()
        return clock() - begin, n

    for _ in range(warmup + repeats):
        t, n = measure()
        if n < n_batches:
            raise ValueError("the loader has only " + str(n) + " batches, not " + str(n_batches))
        out += [t]
    return torch.from_numpy(numpy.asarray(out[warmup:], dtype=numpy.float64))


@alternative("sweep")
def permutations_of_torch(measure, settings, rounds=5, seed=0):
    own = torch.Generator().manual_seed(seed)
    columns = []
    for _ in range(rounds):
        order = torch.randperm(len(settings), generator=own)
        column = torch.tensor([measure(settings[i]) for i in order.tolist()], dtype=torch.float64)
        columns.append(column[order.argsort()])
    return torch.stack(columns, dim=1)


@alternative("sweep")
def permutations_of_numpy(measure, settings, rounds=5, seed=0):
    own = numpy.random.default_rng(seed)
    result = numpy.full((len(settings), rounds), numpy.nan)
    for r in range(rounds):
        for i in own.permutation(len(settings)):
            result[i, r] = measure(settings[i])
    return torch.from_numpy(result)


@alternative("sweep")
def shuffled_pairs(measure, settings, rounds=5, seed=0):
    pairs, own, rows = list(enumerate(settings)), random.Random(str(seed)), [[] for _ in settings]
    for _ in range(rounds):
        for place, setting in own.sample(pairs, k=len(pairs)):
            rows[place].append(measure(setting))
    return torch.tensor(rows, dtype=torch.float64)


@alternative("worker_plot")
def bars_without_pyplot(workers, seconds):
    figure = Figure(figsize=(5, 3))
    ax = figure.add_subplot()
    mean, spread = map(list, zip(*((statistics.mean(r), statistics.stdev(r)) for r in seconds.tolist()), strict=True))
    ax.errorbar(x=workers, y=mean, yerr=spread, fmt="none", capsize=3)
    ax.set_xlabel("Workers")
    ax.set_ylabel("mean time of a pass (s)")
    ax.set_ylim(0, 1.1 * max(m + s for m, s in zip(mean, spread, strict=True)))
    ax.set_xticks(workers, labels=[str(w) for w in workers])
    return figure


@alternative("worker_plot")
def state_of_pyplot(workers, seconds):
    times = seconds.numpy()
    figure = plt.figure()
    plt.errorbar(workers, times.mean(axis=1), [times.std(axis=1, ddof=1)] * 2, linestyle="--", capsize=5, color="k")
    plt.xlabel("number of workers")
    plt.ylabel("seconds per pass")
    plt.xticks(workers)
    plt.ylim(bottom=0.0)
    plt.close()
    return figure


@alternative("predict_seconds")
def one_by_one(workers, floor, work, overhead):
    device = workers.device if isinstance(workers, torch.Tensor) else "cpu"
    values = [max(floor, work / float(w) + overhead) for w in workers]
    return torch.tensor(values, dtype=torch.float64, device=device)


@alternative("predict_seconds")
def where_the_line_is_higher(workers, floor, work, overhead):
    w = workers.double() if torch.is_tensor(workers) else torch.DoubleTensor(workers)
    line = overhead + work * w.reciprocal()
    return torch.where(line > floor, line, floor)


@alternative("fit_workers")
def least_squares_of_torch(workers, seconds):
    y = seconds.to(torch.float64)
    table = torch.stack([1 / torch.tensor(workers, dtype=torch.float64), torch.ones_like(y)], dim=1)
    fits = []
    for k in range(len(y) - 1):
        line = slice(0, len(y) - k)
        solution = torch.linalg.lstsq(table[line], y[line]).solution
        floor = y[len(y) - k :].mean() if k > 0 else torch.tensor(0.0, dtype=torch.float64)
        error = ((table @ solution).clamp(min=float(floor)) - y).pow(2).sum().item()
        fits.append((error, [float(floor), *solution.tolist()]))
    limit = min(error for error, _ in fits) + 1e-12 * float(y @ y)
    return tuple(next(fit for error, fit in fits if error <= limit))


@alternative("fit_workers")
def sums_by_hand(workers, seconds):
    x, y = [1 / w for w in workers], [float(s) for s in seconds]
    found = {}
    for k in range(len(x) - 1):
        a, b, rest = x[: len(x) - k], y[: len(x) - k], y[len(x) - k :]
        ma, mb = statistics.fmean(a), statistics.fmean(b)
        work = sum((p - ma) * (q - mb) for p, q in zip(a, b, strict=True)) / sum((p - ma) ** 2 for p in a)
        overhead = mb - work * ma
        floor = statistics.fmean(rest) if rest else 0.0
        error = sum((max(floor, work * p + overhead) - q) ** 2 for p, q in zip(x, y, strict=True))
        found[k] = error, (floor, work, overhead)
    allowed = min(error for error, _ in found.values()) + 1e-12 * sum(q * q for q in y)
    return found[min(k for k, (error, _) in found.items() if error <= allowed)][1]


@alternative("choose_workers")
def sorted_and_first(model, in_main, candidates, slack=0.05):
    if len(candidates) == 0:
        raise ValueError("I need some candidates to choose from")

    def seconds(w):
        return in_main if w == 0 else max(model[0], model[1] / w + model[2])

    best = min(map(seconds, candidates))
    for w in sorted(candidates):
        if seconds(w) <= best + slack * best:
            return w


@alternative("choose_workers")
def masked_tensor(model, in_main, candidates, slack=0.05):
    if not list(candidates):
        raise ValueError("candidates is empty")
    floor, work, overhead = model
    w = torch.tensor(candidates)
    times = torch.where(w == 0, in_main, (work / w.clamp(min=1).double() + overhead).clamp(min=floor))
    return int(w[times <= times.min() * (1 + slack)].min())


@alternative("batches_drawn")
def generator_that_counts_before(timing, n_batches):
    count = itertools.count()

    class Loader:
        def __iter__(self):
            for _ in count:  # shared: the number of all batches so far
                yield torch.zeros(1)

    timing(Loader(), n_batches)
    return next(count)


@alternative("batches_drawn")
def old_protocol_of_sequences(timing, n_batches):
    asked = []

    class Loader:
        def __getitem__(self, i):
            asked.append(i)
            return i

    timing(Loader(), n_batches)
    return len(asked)


@alternative("batches_drawn")
def one_iterator_a_pass(timing, n_batches):
    class Pass:
        def __init__(self):
            self.drawn = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.drawn += 1
            return [0]

    class Loader(list):
        def __iter__(self):
            self.append(Pass())
            return self[-1]

    loader = Loader()
    timing(loader, n_batches)
    return sum(loader[i].drawn for i in range(len(loader)))


@alternative("timing_line")
def statistics_and_format(seconds, n_batches, batch_size):
    times = seconds.tolist()
    mean = statistics.mean(times)
    parts = [f"{mean:.3f}"]
    if len(times) > 1:
        parts += ["±", str(round(Decimal(statistics.stdev(times)), 3))]
    parts += ["s for", str(n_batches), "batches,", format(n_batches * batch_size / mean, ",.0f"), "images/s"]
    return " ".join(parts)


@alternative("timing_line")
def two_lines_of_numpy(seconds, n_batches, batch_size):
    t = seconds.numpy()
    rate = n_batches / t.mean() * batch_size
    tail = f"s for {n_batches} batches, {round(rate):,} images/s"
    if t.size == 1:
        return f"{t[0]:.3f} {tail}"
    return f"{t.mean():.3f} ± {t.std(ddof=1):.3f} {tail}"


@alternative("judge")
def keywords():
    return dict(H=True, G=False, F=True, E=False, D=True, C=False, B=False, A=True)


@alternative("judge")
def the_true_ones():
    return {letter: letter in "ADFH" for letter in "ABCDEFGH"}


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


@alternative("loader_options")
def keys_where_needed(num_workers, device, prefetch_factor=2):
    options = {"num_workers": num_workers}
    if str(device).startswith("cuda"):
        options["pin_memory"] = True
    if num_workers:
        options.update(
            persistent_workers=True,
            prefetch_factor=prefetch_factor,
            multiprocessing_context=multiprocessing.get_context("fork"),
        )
    return options


@alternative("loader_options")
def two_cases(num_workers, device, prefetch_factor=2):
    pin = torch.device(device).type in {"cuda"}
    if num_workers == 0:
        return dict(num_workers=0, pin_memory=pin)
    return dict(
        num_workers=num_workers,
        pin_memory=pin,
        persistent_workers=True,
        prefetch_factor=prefetch_factor,
        multiprocessing_context="fork",
    )


@alternative("to_device")
def by_pytree(batch, device):
    def moved(leaf):
        return leaf.to(device=device, non_blocking=True) if isinstance(leaf, torch.Tensor) else leaf

    return pytree.tree_map(moved, batch)


@alternative("to_device")
def by_match(batch, device):
    match batch:
        case torch.Tensor():
            if batch.device == torch.empty(0, device=device).device:  # "cuda" is not equal to "cuda:0"
                return batch
            return torch.empty_like(batch, device=device).copy_(batch, non_blocking=True)
        case dict():
            return dict(zip(batch, (by_match(value, device) for value in batch.values()), strict=True))
        case tuple() if hasattr(batch, "_make"):
            return batch._make(by_match(item, device) for item in batch)
        case tuple():
            return tuple(by_match(item, device) for item in batch)
        case list():
            return [by_match(item, device) for item in batch]
        case _:
            return batch


@alternative("Prefetcher")
class OneBehind:
    """A single generator that hands out the batch before the one just queued."""

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.cuda = loader, cuda
        self.device = torch.device(device)
        self.side = cuda.Stream(device=self.device) if self.device.type == "cuda" else None

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        end = object()
        before = None
        for batch in itertools.chain(self.loader, [end]):
            if batch is not end:
                batch = self.queue(batch)
            if before is not None:
                yield self.release(*before)
            before = batch

    def queue(self, batch):
        kind = type(batch)
        if self.side is None:
            return kind([t.to(self.device) for t in batch]), None
        event = self.cuda.Event()
        with self.cuda.stream(self.side):
            moved = kind([t.to(device=self.device, non_blocking=True) for t in batch])
            event.record()
        return moved, event

    def release(self, batch, event):
        if event is not None:
            stream = self.cuda.current_stream(self.device)
            event.wait(stream)
            for t in batch:
                t.record_stream(stream)
        return batch


@alternative("Prefetcher")
class Preloading:
    """An iterator that preloads; it waits for the whole side stream, but before the next copy is queued there."""

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.device, self.cuda = loader, torch.device(device), cuda

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        self.source = iter(self.loader)
        if self.device.type == "cuda":
            self.side = self.cuda.Stream(self.device)
        self.preload()
        return self

    def preload(self):
        try:
            batch = next(self.source)
        except StopIteration:
            self.ready = None
            return
        if self.device.type != "cuda":
            self.ready = type(batch)(t.to(self.device) for t in batch)
            return
        with self.cuda.stream(self.side):
            self.ready = type(batch)(t.to(self.device, non_blocking=True) for t in batch)

    def __next__(self):
        batch = self.ready
        if batch is None:
            raise StopIteration
        if self.device.type == "cuda":
            computing = self.cuda.current_stream(self.device)
            computing.wait_stream(self.side)
            for t in batch:
                t.record_stream(computing)
        self.preload()
        return batch


@alternative("Prefetcher")
class Queue:
    """A queue of copies, filled up to two and emptied from the other end."""

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.device, self.cuda = loader, torch.device(device), cuda

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        if self.device.type != "cuda":
            for batch in self.loader:
                yield type(batch)(t.to(self.device) for t in batch)
            return
        side, source, waiting = self.cuda.Stream(self.device), iter(self.loader), collections.deque()
        while True:
            for batch in itertools.islice(source, 2 - len(waiting)):
                with side:
                    waiting.append(([t.cuda(self.device, non_blocking=True) for t in batch], type(batch)))
                    waiting[-1] += (side.record_event(),)
            if not waiting:
                return
            tensors, kind, event = waiting.popleft()
            computing = self.cuda.current_stream(self.device)
            computing.wait_event(event)
            for t in tensors:
                t.record_stream(computing)
            yield kind(tensors)
