"""Wrong answers to the exercises of 01_parallel_loading that learners give, each wrong in one idea, and what to say."""

import hashlib
import itertools
import math
import os
import random
import threading
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, get_worker_info
from torchvision import transforms

from course.checks.engine import mistake


class _Faces(Dataset):
    """A right dataset in pieces, so that each mistake can spoil one of them."""

    def __init__(self, folder, transform=None):
        self.paths = self.found(Path(folder))
        self.transform = transforms.ToTensor() if transform is None else transform
        if not self.paths:
            self.complain(folder)

    def found(self, folder):
        return sorted(folder.glob("[!.]*/[!.]*.jpg"))

    def complain(self, folder):
        raise FileNotFoundError(f"no <Person>/<name>.jpg in {folder}")

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return self.transform(self.read(self.paths[i]))

    def read(self, path):
        try:
            return self.decoded(path)
        except OSError as error:
            raise OSError(f"{path}: {error}") from error

    def decoded(self, path):
        with Image.open(path) as file:
            return file.convert("RGB")

    def name(self, i):
        return self.paths[i].parent.name.replace("_", " ")


@mistake(
    "LFWDataset",
    "The files stay in the order in which the system lists them, another one on another machine. Sort the paths.",
)
class OrderOfTheSystem(_Faces):
    def found(self, folder):
        return list(folder.glob("[!.]*/[!.]*.jpg"))


@mistake(
    "LFWDataset",
    "The paths are sorted by the name of the file alone, so persons are mixed. Sort the whole paths.",
)
class SortedByFileName(_Faces):
    def found(self, folder):
        return sorted(super().found(folder), key=lambda path: path.name)


@mistake(
    "LFWDataset",
    "An image keeps the mode of its file: a grey-scale JPEG gives one channel. Convert every image to RGB.",
)
class ModeOfTheFile(_Faces):
    def decoded(self, path):
        with Image.open(path) as file:
            file.load()
            return file.copy()


@mistake(
    "LFWDataset",
    "All images are decoded in the constructor, so one broken file stops everything. Open a file in __getitem__.",
)
class AllAtOnce(_Faces):
    def __init__(self, folder, transform=None):
        super().__init__(folder, transform)
        self.images = [self.read(path) for path in self.paths]

    def __getitem__(self, i):
        return self.transform(self.images[i])


@mistake(
    "LFWDataset",
    "A file that fails to decode is left open. Write `with Image.open(path) as file:`, which closes it in every case.",
)
class OpenAfterAnError(_Faces):
    def decoded(self, path):
        return Image.open(path).convert("RGB")


@mistake(
    "LFWDataset",
    "Image.open reads no pixel and keeps the file open. Use `with`, and decode inside of it, for instance by convert.",
)
class NeverDecoded(_Faces):
    def decoded(self, path):
        file = Image.open(path)
        return file if file.mode == "RGB" else file.convert("RGB")


@mistake(
    "LFWDataset",
    "The transform gets an image that is not decoded, in the mode of its file. Convert to RGB inside of the `with`.",
)
class ClosedUndecoded(_Faces):
    def __getitem__(self, i):
        try:
            with Image.open(self.paths[i]) as file:
                return self.transform(file)
        except OSError as error:
            raise OSError(f"{self.paths[i]}: {error}") from error


@mistake(
    "LFWDataset",
    "The error of a broken JPEG does not say which file it is. Catch OSError, raise one with the path in its message.",
)
class NamelessError(_Faces):
    def read(self, path):
        return self.decoded(path)


@mistake(
    "LFWDataset",
    "A folder without images gives an empty dataset, and a training of zero steps. Raise FileNotFoundError.",
)
class SilentlyEmpty(_Faces):
    def complain(self, folder):
        pass


@mistake("LFWDataset", "The name keeps the underscores of its folder. Replace each by a space.")
class UnderscoresKept(_Faces):
    def name(self, i):
        return self.paths[i].parent.name


@mistake("LFWDataset", "Every file of a person is taken for an image. Take those that end in .jpg.")
class AnyEnding(_Faces):
    def found(self, folder):
        return sorted(path for path in folder.glob("[!.]*/[!.]*") if path.is_file())


@mistake("LFWDataset", "Files are searched at any depth. Take those that lie in a folder of a person: */*.jpg.")
class AnyDepth(_Faces):
    def found(self, folder):
        return sorted(
            p for p in folder.rglob("*.jpg") if not any(x.startswith(".") for x in p.parts[len(folder.parts) :])
        )


@mistake(
    "LFWDataset",
    "Hidden files and folders are taken too: Path.glob('*') matches names with a dot in front. Leave them out.",
)
class HiddenToo(_Faces):
    def found(self, folder):
        return sorted(folder.glob("*/*.jpg"))


@mistake(
    "LFWDataset",
    "A lambda cannot be pickled, and spawned workers get the dataset as a pickle. Keep transforms.ToTensor() itself.",
)
class LambdaInside(_Faces):
    def __init__(self, folder, transform=None):
        super().__init__(folder, transform)
        if transform is None:
            self.transform = lambda image: transforms.functional.to_tensor(image)


@mistake("LFWDataset", "An image is a NumPy array of bytes, (H, W, 3). By default apply transforms.ToTensor().")
class BytesOfNumpy(_Faces):
    def __init__(self, folder, transform=None):
        super().__init__(folder, numpy.array if transform is None else transform)


def grid(images, titles, columns, rows=None, show=None, off=True, close=True, check=True, across=True, font="small"):
    """A right figure, with one idea to get wrong each."""
    if check and len(titles) != len(images):
        raise ValueError(f"{len(images)} images, {len(titles)} titles")
    rows = rows or math.ceil(len(images) / columns)
    figure, table = plt.subplots(rows, columns, squeeze=False, figsize=(1.5 * columns, 1.75 * rows))
    pictures = (show or by_permute)(images.cpu())
    cells = table.flat if across else table.T.flat
    for axes, picture, title in zip(cells, pictures, titles, strict=False):
        axes.imshow(picture)
        axes.set_title(title, fontsize=font)
        axes.axis("off")
    if off:
        for axes in table.flat:
            axes.axis("off")
    if close:
        plt.close(figure)
    return figure


def by_permute(images):
    return images.clamp(0, 1).permute(0, 2, 3, 1).numpy()


@mistake("batch_grid", "reshape keeps the order of the values and mixes rows with colours. Move the axis: permute.")
def reshaped(images, titles, columns=8):
    n, _, height, width = images.shape
    return grid(images, titles, columns, show=lambda x: x.clamp(0, 1).reshape(n, height, width, 3).numpy())


@mistake(
    "batch_grid", "Height and width are swapped: .T or permute(2, 1, 0) turns the image over. Use permute(1, 2, 0)."
)
def turned_over(images, titles, columns=8):
    return grid(images, titles, columns, show=lambda x: x.clamp(0, 1).permute(0, 3, 2, 1).numpy())


@mistake(
    "batch_grid", "The figure stays open in pyplot: it is drawn twice and never freed. plt.close(figure) at the end."
)
def left_open(images, titles, columns=8):
    return grid(images, titles, columns, close=False)


@mistake(
    "batch_grid", "Unused axes of the last row show an empty frame. Switch them off too: axis('off') for all axes."
)
def empty_frames(images, titles, columns=8):
    return grid(images, titles, columns, off=False)


@mistake("batch_grid", "The number of rows is rounded down, so the images of a short last row are missing. Round up.")
def rows_rounded_down(images, titles, columns=8):
    return grid(images, titles, columns, rows=max(len(images) // columns, 1))


@mistake(
    "batch_grid", "Missing titles are passed over in silence: zip stops early. Compare the lengths, raise ValueError."
)
def zip_stops_early(images, titles, columns=8):
    return grid(images, titles, columns, check=False)


@mistake("batch_grid", "Images go down the columns. Reading order goes along the rows: axes.flat.")
def down_the_columns(images, titles, columns=8):
    return grid(images, titles, columns, across=False)


@mistake(
    "batch_grid", "Each image is stretched to its own minimum and maximum, which hides what is too dark. Only clamp."
)
def stretched(images, titles, columns=8):
    low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
    return grid((images - low) / (high - low), titles, columns)


@mistake("batch_grid", "Values outside of [0, 1] go to matplotlib, which warns of each image. Clamp them first.")
def not_clamped(images, titles, columns=8):
    return grid(images, titles, columns, show=lambda x: x.permute(0, 2, 3, 1).numpy())


@mistake("batch_grid", "Titles of 12 points run into each other. Give set_title a fontsize of at most 10, or 'small'.")
def large_titles(images, titles, columns=8):
    return grid(images, titles, columns, font=12)


def batches_of(n_items, batch_size, drop_last):
    stop = n_items - n_items % batch_size if drop_last else n_items
    return [list(range(k, min(k + batch_size, stop))) for k in range(0, stop, batch_size)]


@mistake(
    "batch_plan",
    "Each batch is cut up among the workers. A worker builds whole batches: batch k is that of worker k % num_workers.",
)
def batches_cut_up(n_items, batch_size, num_workers, drop_last=False):
    plan = []
    for batch in batches_of(n_items, batch_size, drop_last):
        share = math.ceil(len(batch) / max(num_workers, 1))
        parts = [batch[i : i + share] for i in range(0, len(batch), share)]
        plan += [(worker if num_workers else None, part) for worker, part in enumerate(parts)]
    return plan


@mistake(
    "batch_plan",
    "Each worker gets a run of batches, the first run to worker 0. They are dealt out in turn: k % num_workers.",
)
def runs_of_batches(n_items, batch_size, num_workers, drop_last=False):
    batches = batches_of(n_items, batch_size, drop_last)
    run = math.ceil(len(batches) / max(num_workers, 1))
    return [(k // run if num_workers else None, batch) for k, batch in enumerate(batches)]


@mistake(
    "batch_plan",
    "The items are dealt out to the workers one by one, as among ranks. The loop gets batches of neighbouring items.",
)
def items_dealt_out(n_items, batch_size, num_workers, drop_last=False):
    plan = []
    workers = max(num_workers, 1)
    for k, batch in enumerate(batches_of(n_items, batch_size, drop_last)):
        start = k // workers * workers * batch_size + k % workers
        indices = [i for i in range(start, n_items, workers)][: len(batch)]
        plan.append((k % workers if num_workers else None, indices))
    return plan


@mistake("batch_plan", "With num_workers=0 there is no worker 0: the main process builds the batches. Say None.")
def worker_zero_always(n_items, batch_size, num_workers, drop_last=False):
    return [(k % max(num_workers, 1), batch) for k, batch in enumerate(batches_of(n_items, batch_size, drop_last))]


@mistake("batch_plan", "A last batch that is not full is always left out. Keep it unless drop_last.")
def last_always_dropped(n_items, batch_size, num_workers, drop_last=False):
    batches = batches_of(n_items, batch_size, True)
    return [(k % num_workers if num_workers else None, batch) for k, batch in enumerate(batches)]


@mistake("batch_plan", "The last batch goes on beyond the last item. It ends where the dataset ends.")
def beyond_the_end(n_items, batch_size, num_workers, drop_last=False):
    starts = [batch[0] for batch in batches_of(n_items, batch_size, drop_last)]
    return [
        (k % num_workers if num_workers else None, list(range(start, start + batch_size)))
        for k, start in enumerate(starts)
    ]


@mistake("batch_plan", "drop_last drops the last batch even if it is full. Drop it only if items are missing in it.")
def full_batch_dropped(n_items, batch_size, num_workers, drop_last=False):
    batches = batches_of(n_items, batch_size, False)
    kept = batches[:-1] if drop_last else batches
    return [(k % num_workers if num_workers else None, batch) for k, batch in enumerate(kept)]


@mistake("batch_plan", "Workers are counted from 1. Their ids begin with 0, and batch 0 is built by worker 0.")
def workers_from_one(n_items, batch_size, num_workers, drop_last=False):
    batches = batches_of(n_items, batch_size, drop_last)
    return [(k % num_workers + 1 if num_workers else None, batch) for k, batch in enumerate(batches)]


class _Witness(Dataset):
    """A right witness in pieces."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def worker(self):
        info = get_worker_info()
        return -1 if info is None else info.id

    def process(self):
        return os.getpid()

    def __getitem__(self, i):
        return torch.tensor([i, self.worker(), self.process()])


@mistake(
    "WorkerWitness",
    "The worker is asked for in __init__, which runs in the main process. Call get_worker_info() in __getitem__.",
)
class WorkerAskedTooEarly(_Witness):
    def __init__(self, n):
        super().__init__(n)
        self.early = super().worker()

    def worker(self):
        return self.early


@mistake(
    "WorkerWitness",
    "The process is asked for in __init__, and each worker gets a copy of that. Call os.getpid() in __getitem__.",
)
class ProcessAskedTooEarly(_Witness):
    def __init__(self, n):
        super().__init__(n)
        self.pid = os.getpid()

    def process(self):
        return self.pid


@mistake(
    "WorkerWitness", "Worker 0 is taken for the main process, because 0 counts as False. Compare with None: `is None`."
)
class ZeroIsFalse(_Witness):
    def worker(self):
        info = get_worker_info()
        return info.id if info and info.id else -1


@mistake(
    "WorkerWitness", "That is the number of a thread, the same in every fork. Workers are processes: use os.getpid()."
)
class ThreadNotProcess(_Witness):
    def process(self):
        return threading.get_ident() if get_worker_info() else os.getpid()


@mistake("WorkerWitness", "The numbers are floats, which round large ones. Make an int64 tensor of whole numbers.")
class Floats(_Witness):
    def __getitem__(self, i):
        return super().__getitem__(i).float()


@mistake("WorkerWitness", "In the main process there is no worker: get_worker_info() is None there. Give -1.")
class NoneNotExpected(_Witness):
    def worker(self):
        return get_worker_info().id


def heavy(degrees=5, shift=0.1, scale=(0.5, 2.0), interpolation="bilinear", jitter=0.3, last=None):
    """The steps of the transform, with one idea to get wrong each."""
    modes = {"bilinear": transforms.InterpolationMode.BILINEAR, "nearest": transforms.InterpolationMode.NEAREST}
    return [
        transforms.RandomAffine(degrees, (shift, shift), scale, interpolation=modes[interpolation]),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(jitter, jitter, jitter),
        last or transforms.ToTensor(),
    ]


@mistake("heavy_transform", "The affine map takes the nearest pixel, its default. Ask for interpolation BILINEAR.")
def nearest_pixel():
    return transforms.Compose(heavy(interpolation="nearest"))


@mistake(
    "heavy_transform", "The colours are jittered before the affine map. The order is affine, mirror, colours, tensor."
)
def colours_first():
    affine, flip, colour, tensor = heavy()
    return transforms.Compose([colour, affine, flip, tensor])


@mistake("heavy_transform", "The mirror comes before the affine map. The order is affine, mirror, colours, tensor.")
def mirror_first():
    affine, flip, colour, tensor = heavy()
    return transforms.Compose([flip, affine, colour, tensor])


@mistake(
    "heavy_transform",
    "The image becomes a tensor first, where torchvision interpolates otherwise. ToTensor comes last.",
)
def tensor_first():
    affine, flip, colour, tensor = heavy()
    return transforms.Compose([tensor, affine, flip, colour])


@mistake("heavy_transform", "The mirror image is missing. RandomHorizontalFlip comes after the affine map.")
def no_mirror():
    affine, _, colour, tensor = heavy()
    return transforms.Compose([affine, colour, tensor])


@mistake("heavy_transform", "The tensor holds bytes from 0 to 255. transforms.ToTensor() makes float32 from 0 to 1.")
def bytes_at_the_end():
    return transforms.Compose(heavy(last=transforms.PILToTensor()))


class _Divided:
    def __init__(self):
        self.steps = transforms.Compose(heavy())

    def __call__(self, image):
        return self.steps(image) / 255


@mistake("heavy_transform", "The values are divided by 255 twice: ToTensor has done it already.")
def divided_twice():
    return _Divided()


@mistake(
    "heavy_transform", "A lambda cannot be pickled, and spawned workers get it as a pickle. Use transforms.Compose."
)
def a_lambda():
    steps = transforms.Compose(heavy())
    return lambda image: steps(image)


@mistake(
    "seed_worker",
    "dataset.rng is still the copy; np.random.seed does not reach it. Assign a new Generator to info.dataset.rng.",
)
def seeds_the_global_numbers(worker_id):
    if get_worker_info() is not None:
        numpy.random.seed(get_worker_info().seed % 2**32)


@mistake(
    "seed_worker", "The worker's id alone is the seed, and is the same in every epoch. Use get_worker_info().seed."
)
def id_alone(worker_id):
    if get_worker_info() is not None:
        get_worker_info().dataset.rng = numpy.random.default_rng(worker_id)


@mistake("seed_worker", "All workers get the same seed: that of the epoch, without the id. info.seed holds both.")
def seed_of_the_epoch(worker_id):
    info = get_worker_info()
    if info is not None:
        info.dataset.rng = numpy.random.default_rng(info.seed - info.id)


@mistake("seed_worker", "default_rng() without a seed cannot be repeated by anybody. Give it get_worker_info().seed.")
def seed_of_the_system(worker_id):
    if get_worker_info() is not None:
        get_worker_info().dataset.rng = numpy.random.default_rng()


@mistake(
    "seed_worker", "The seed is drawn from the copied rng, which is the same in all workers and epochs. Use info.seed."
)
def seed_from_the_copy(worker_id):
    if get_worker_info() is not None:
        dataset = get_worker_info().dataset
        dataset.rng = numpy.random.default_rng(dataset.rng.integers(2**32))


@mistake("seed_worker", "In the main process get_worker_info() is None. Do nothing there.")
def no_main_process(worker_id):
    info = get_worker_info()
    info.dataset.rng = numpy.random.default_rng(info.seed)


@mistake(
    "seed_worker",
    "That is no Generator of numpy, perhaps an old RandomState. Make one with numpy.random.default_rng(seed).",
)
def random_state(worker_id):
    if get_worker_info() is not None:
        get_worker_info().dataset.rng = numpy.random.RandomState(get_worker_info().seed % 2**32)


def hashed(*parts, size=8):
    """A good hash of anything that can be printed."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=size).digest(), "big")


@mistake("sample_seed", "A sum is the same for image 5 of epoch 0 and image 4 of epoch 1. Hash the three numbers.")
def sum_of_all(seed, epoch, index):
    return seed + epoch + index


@mistake(
    "sample_seed", "Numbers side by side in one number run into each other when they are large. Hash the three numbers."
)
def decimal_places(seed, epoch, index):
    return seed * 1_000_000 + epoch * 1_000 + index


@mistake("sample_seed", "Bits side by side: neighbours differ in a single bit. Hash the three numbers.")
def side_by_side(seed, epoch, index):
    return (seed % 2**21) << 42 | (epoch % 2**21) << 21 | index % 2**21


@mistake("sample_seed", "Python's hash of a text is another one in each process. Use hashlib, or numpy's default_rng.")
def hash_of_a_text(seed, epoch, index):
    return hash(f"{seed} {epoch} {index}") % 2**63


@mistake("sample_seed", "The epoch is left out, so an image gets the same augmentation in every epoch.")
def epoch_left_out(seed, epoch, index):
    return hashed(seed, index) >> 1


@mistake("sample_seed", "The seed of the run is left out, so all runs augment alike.")
def run_left_out(seed, epoch, index):
    return hashed(epoch, index) >> 1


@mistake("sample_seed", "XOR of the three does not care which number is which. Hash them as a sequence.")
def xor_of_all(seed, epoch, index):
    return hashed(seed) >> 1 ^ hashed(epoch) >> 1 ^ hashed(index) >> 1


@mistake("sample_seed", "Only 32 bits are used: with some 65,000 draws two are probably equal. Use all 63.")
def half_the_bits(seed, epoch, index):
    return hashed(seed, epoch, index, size=4)


@mistake("sample_seed", "The seed has 64 bits and may be 2**63 or more. Draw it below 2**63, or shift it by one bit.")
def one_bit_too_many(seed, epoch, index):
    return hashed(seed, epoch, index)


@mistake("sample_seed", "torch's global random numbers are seeded anew on the way. Use a generator of your own.")
def global_numbers_seeded(seed, epoch, index):
    torch.default_generator.manual_seed(hashed(seed, epoch, index) >> 1)  # torch.manual_seed is slow: GPUs get it too
    return int(torch.randint(2**63 - 1, ()))


@mistake(
    "sample_seed",
    "The worker takes part in the seed, so it depends on who builds the batch. Use the three numbers only.",
)
def worker_takes_part(seed, epoch, index):
    return hashed(seed, epoch, index, get_worker_info() and get_worker_info().id) >> 1


@mistake("sample_seed", "That is a number of NumPy, not a Python int. Make it one: int(...).")
def number_of_numpy(seed, epoch, index):
    return numpy.int64(hashed(seed, epoch, index) >> 1)


def timed(loader, n_batches, synchronize, clock, draw=None):
    """(seconds, batches found) of one correct pass, or of one that draws its batches by `draw(batches)`."""
    wait = synchronize or (lambda: None)
    wait()
    start = clock()
    batches = iter(loader)
    found = sum(1 for _ in (draw(batches) if draw else itertools.islice(batches, n_batches)))
    wait()
    return clock() - start, found


def refused_if_short(found, n_batches):
    if found < n_batches:
        raise ValueError(f"asked for {n_batches} batches, found {found}")


def collected(one_pass, n_batches, repeats, warmup):
    """The result made of `one_pass()`, which gives (seconds, batches found)."""
    seconds = []
    for _ in range(warmup + repeats):
        taken, found = one_pass()
        refused_if_short(found, n_batches)
        seconds.append(taken)
    return torch.tensor(seconds[warmup:], dtype=torch.float64)


@mistake(
    "seconds_per_pass",
    "A batch is drawn before the loop asks whether it has enough: one too many. Count first, or take n with islice.",
)
def one_batch_too_many(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def draw(batches):
        for i, batch in enumerate(batches):
            if i == n_batches:
                break
            yield batch

    return collected(lambda: timed(loader, n_batches, synchronize, clock, draw), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "The test i > n_batches comes after the draw and counts from 0: two batches too many. Take n with islice.",
)
def two_batches_too_many(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def draw(batches):
        for i, batch in enumerate(batches):
            if i > n_batches:
                break
            yield batch

    return collected(lambda: timed(loader, n_batches, synchronize, clock, draw), n_batches, repeats, warmup)


@mistake("seconds_per_pass", "The whole loader is drawn. Asked for are its first n_batches batches, and no more.")
def whole_loader(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    return collected(lambda: timed(loader, n_batches, synchronize, clock, iter), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "The passes to warm up are in the result too. Make them, and keep only the passes after them.",
)
def warm_up_counted(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    return collected(lambda: timed(loader, n_batches, synchronize, clock), n_batches, warmup + repeats, 0)


@mistake(
    "seconds_per_pass",
    "One iterator serves all passes, so the workers start once and a later pass goes on where the last one stopped. "
    "Call iter(loader) in every pass.",
)
def one_iterator_for_all(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    batches = iter(loader)
    return collected(lambda: timed(batches, n_batches, synchronize, clock), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "The clock is read after iter(loader), so the start of the workers is free. Read it before.",
)
def start_left_out(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    wait = synchronize or (lambda: None)

    def one_pass():
        batches = iter(loader)
        wait()
        start = clock()
        found = sum(1 for _ in itertools.islice(batches, n_batches))
        wait()
        return clock() - start, found

    return collected(one_pass, n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "The clock is read while work is still queued. Call synchronize before the second reading too.",
)
def not_waited_for_at_the_end(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def one_pass():
        if synchronize:
            synchronize()
        return timed(loader, n_batches, None, clock)

    return collected(one_pass, n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "Work that was queued before the pass is counted as part of it. Call synchronize before the first reading too.",
)
def not_waited_for_at_the_start(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def one_pass():
        start = clock()
        batches = iter(loader)
        found = sum(1 for _ in itertools.islice(batches, n_batches))
        if synchronize:
            synchronize()
        return clock() - start, found

    return collected(one_pass, n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "synchronize is never called, and a GPU only queues its work. Call it before both readings of the clock.",
)
def never_waited_for(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    return collected(lambda: timed(loader, n_batches, None, clock), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "A loader that ends early is timed as if nothing were wrong. Count the batches and compare with n_batches.",
)
def short_loader_looks_fast(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    return collected(lambda: (timed(loader, n_batches, synchronize, clock)[0], n_batches), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "The seconds are divided by the number of batches. Here the time of the whole pass is asked for.",
)
def seconds_of_a_batch(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    return collected(lambda: timed(loader, n_batches, synchronize, clock), n_batches, repeats, warmup) / n_batches


@mistake(
    "seconds_per_pass",
    "All passes are timed at once, so that each has the same seconds and no spread is left. Read the clock in each.",
)
def all_passes_at_once(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    collected(lambda: timed(loader, n_batches, synchronize, clock), n_batches, warmup, 0)
    start = clock()
    collected(lambda: timed(loader, n_batches, synchronize, lambda: 0.0), n_batches, repeats, 0)
    return torch.full((repeats,), (clock() - start) / repeats, dtype=torch.float64)


@mistake(
    "seconds_per_pass",
    "The StopIteration of next() goes through to the caller. Catch it, and raise a ValueError that says how many "
    "batches were asked for and found.",
)
def stop_iteration_let_through(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def draw(batches):
        return [next(batches) for _ in range(n_batches)]

    return collected(lambda: timed(loader, n_batches, synchronize, clock, draw), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "The loader is asked for its len, which not every loader has and not every one keeps to. Count what you draw.",
)
def length_asked_for(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    refused_if_short(len(loader), n_batches)
    return collected(lambda: timed(loader, n_batches, synchronize, clock), n_batches, repeats, warmup)


def in_rounds(measure, settings, orders):
    """Seconds of `settings` measured in the given orders, one a round: correct if the orders are."""
    seconds = torch.empty(len(settings), len(orders), dtype=torch.float64)
    for column, order in enumerate(orders):
        for place in order:
            seconds[place, column] = measure(settings[place])
    return seconds


@mistake(
    "sweep",
    "All rounds of one setting come before those of the next, so a drift of the machine looks like an effect of the "
    "setting. Make the loop over rounds the outer one.",
)
def setting_by_setting(measure, settings, rounds=5, seed=0):
    places = list(range(len(settings)))
    random.Random(seed).shuffle(places)
    seconds = torch.empty(len(settings), rounds, dtype=torch.float64)
    for place in places:
        for column in range(rounds):
            seconds[place, column] = measure(settings[place])
    return seconds


@mistake("sweep", "The order is never shuffled: whatever comes last is always measured last. Shuffle in every round.")
def always_in_order(measure, settings, rounds=5, seed=0):
    return in_rounds(measure, settings, [range(len(settings))] * rounds)


@mistake(
    "sweep",
    "Every round has the same order: it was shuffled once, or each round starts from the same seed. Make one "
    "random.Random(seed) and shuffle anew in each round.",
)
def one_order_for_all_rounds(measure, settings, rounds=5, seed=0):
    return in_rounds(measure, settings, [random.Random(seed).sample(range(len(settings)), len(settings))] * rounds)


@mistake(
    "sweep",
    "Settings and rounds are shuffled together, so that a setting can have all its turns early. Finish a round first.",
)
def rounds_mixed(measure, settings, rounds=5, seed=0):
    pairs = [(place, column) for place in range(len(settings)) for column in range(rounds)]
    random.Random(seed).shuffle(pairs)
    seconds = torch.empty(len(settings), rounds, dtype=torch.float64)
    for place, column in pairs:
        seconds[place, column] = measure(settings[place])
    return seconds


@mistake(
    "sweep",
    "Rows stand in the order of measuring. Write each value to the row of its setting: seconds[i, r].",
)
def rows_as_measured(measure, settings, rounds=5, seed=0):
    order, columns = random.Random(seed), []
    for _ in range(rounds):
        columns.append([measure(settings[i]) for i in order.sample(range(len(settings)), len(settings))])
    return torch.tensor(columns, dtype=torch.float64).T


@mistake(
    "sweep",
    "The orders do not depend on the seed, so nobody can repeat them. Draw them from random.Random(seed).",
)
def seed_ignored(measure, settings, rounds=5, seed=0):
    own = random.Random()
    return in_rounds(measure, settings, [own.sample(range(len(settings)), len(settings)) for _ in range(rounds)])


@mistake(
    "sweep",
    "random.seed sets the random numbers of the whole program. Use a generator of your own: random.Random(seed).",
)
def global_seed(measure, settings, rounds=5, seed=0):
    random.seed(seed)
    return in_rounds(measure, settings, [random.sample(range(len(settings)), len(settings)) for _ in range(rounds)])


@mistake(
    "sweep",
    "torch.manual_seed sets the random numbers of the whole program. Hand randperm a torch.Generator of your own.",
)
def global_seed_of_torch(measure, settings, rounds=5, seed=0):
    torch.manual_seed(seed)
    return in_rounds(measure, settings, [torch.randperm(len(settings)).tolist() for _ in range(rounds)])


@mistake(
    "sweep",
    "np.random.seed sets the random numbers of the whole program. Use a generator: np.random.default_rng(seed).",
)
def global_seed_of_numpy(measure, settings, rounds=5, seed=0):
    np.random.seed(seed)
    return in_rounds(measure, settings, [np.random.permutation(len(settings)).tolist() for _ in range(rounds)])


@mistake(
    "sweep",
    "The settings are keys of a dictionary, so lists cannot be settings and equal ones share a row. Use their places.",
)
def settings_as_keys(measure, settings, rounds=5, seed=0):
    own, seconds = random.Random(seed), {setting: [] for setting in settings}
    for _ in range(rounds):
        for setting in own.sample(settings, len(settings)):
            seconds[setting].append(measure(setting))
    return torch.tensor([seconds[setting] for setting in settings], dtype=torch.float64)


@mistake(
    "sweep",
    "settings.index finds the first of equal settings, so the others get no row of their own. Shuffle places instead.",
)
def index_of_the_setting(measure, settings, rounds=5, seed=0):
    own, seconds = random.Random(seed), torch.zeros(len(settings), rounds, dtype=torch.float64)
    for column in range(rounds):
        for setting in own.sample(settings, len(settings)):
            seconds[settings.index(setting), column] = measure(setting)
    return seconds


@mistake("sweep", "The list of the caller is shuffled. Shuffle a list of places, or a copy.")
def callers_list_shuffled(measure, settings, rounds=5, seed=0):
    own, known = random.Random(seed), list(settings)
    seconds = torch.zeros(len(known), rounds, dtype=torch.float64)
    for column in range(rounds):
        own.shuffle(settings)
        for setting in settings:
            seconds[next(i for i, s in enumerate(known) if s is setting), column] = measure(setting)
    return seconds


@mistake(
    "sweep",
    "The order is only turned on by one from round to round: each setting still follows the same other one. Shuffle.",
)
def turned_by_one(measure, settings, rounds=5, seed=0):
    n = len(settings)
    return in_rounds(measure, settings, [[(seed + r + i) % n for i in range(n)] for r in range(rounds)])


def drawn_plot(workers, mean, spread, ylabel="time per pass, s", bottom=0, close=True, **options):
    """A correct plot of what it is given, unless told otherwise."""
    figure, ax = plt.subplots()
    ax.errorbar(workers, mean, yerr=spread, **{"capsize": 4, **options})
    ax.set(xlabel="number of workers", ylabel=ylabel, xticks=workers)
    if bottom is not None:
        ax.set_ylim(bottom=bottom)
    if close:
        plt.close(figure)
    return figure


@mistake(
    "worker_plot",
    "The deviation is divided by n, too small for a few passes. Divide by n - 1: torch.std, or numpy's ddof=1.",
)
def population_deviation(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.numpy().std(-1))


@mistake(
    "worker_plot",
    "The bars show the standard error, how well the mean is known. Asked for is the spread of the passes: do not "
    "divide by the root of n.",
)
def standard_error(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.std(-1) / seconds.shape[-1] ** 0.5)


@mistake(
    "worker_plot",
    "The bars reach from the fastest pass to the slowest. Asked for is one standard deviation on each side.",
)
def smallest_and_largest(workers, seconds):
    mean = seconds.mean(-1)
    return drawn_plot(workers, mean, torch.stack([mean - seconds.amin(-1), seconds.amax(-1) - mean]))


@mistake("worker_plot", "The points show the median. Asked for is the mean over the last axis.")
def median(workers, seconds):
    return drawn_plot(workers, seconds.quantile(0.5, -1), seconds.std(-1))


@mistake(
    "worker_plot", "The y axis does not start at 0, which makes small differences look large. Set its lower limit."
)
def axis_not_from_zero(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.std(-1), bottom=None)


@mistake("worker_plot", "The bars have no caps: their length is 0 by default. Give errorbar a capsize.")
def no_caps(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.std(-1), capsize=0)


@mistake("worker_plot", "The figure is still open, so a notebook shows it twice. plt.close(figure) before the return.")
def plot_left_open(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.std(-1), close=False)


@mistake(
    "worker_plot",
    "plt.errorbar draws into the figure that happens to be open. Make one of your own: figure, ax = plt.subplots().",
)
def drawn_into_an_open_figure(workers, seconds):
    plt.errorbar(workers, seconds.mean(-1), yerr=seconds.std(-1), capsize=4)
    plt.xlabel("number of workers")
    plt.ylabel("time per pass, s")
    plt.xticks(workers)
    plt.ylim(bottom=0)
    figure = plt.gcf()
    plt.close(figure)
    return figure


@mistake("worker_plot", 'plt.close("all") closes the figures of others too. Close your own: plt.close(figure).')
def all_figures_closed(workers, seconds):
    figure = drawn_plot(workers, seconds.mean(-1), seconds.std(-1))
    plt.close("all")
    return figure


@mistake("worker_plot", "The y label gives no unit. Say what is measured, then its unit, s.")
def no_unit(workers, seconds):
    return drawn_plot(workers, seconds.mean(-1), seconds.std(-1), ylabel="time per pass")


@mistake(
    "worker_plot",
    "The points stand at 0, 1, 2, ... and the numbers of workers are only labels, so that distances mislead. Use the "
    "numbers themselves as x.",
)
def numbers_as_labels(workers, seconds):
    figure = drawn_plot(range(len(workers)), seconds.mean(-1), seconds.std(-1))
    figure.axes[0].set_xticks(range(len(workers)), list(map(str, workers)))
    return figure


@mistake(
    "worker_plot",
    "The lower limit of the y axis was set before the drawing, which froze the upper one too. Set it afterwards.",
)
def limit_set_first(workers, seconds):
    figure, ax = plt.subplots()
    ax.set_ylim(bottom=0)
    ax.errorbar(workers, seconds.mean(-1), yerr=seconds.std(-1), capsize=4)
    ax.set(xlabel="number of workers", ylabel="time per pass, s", xticks=workers)
    plt.close(figure)
    return figure


@mistake(
    "worker_plot",
    "The ticks are matplotlib's own, some of them where nothing was measured. Set them to `workers`.",
)
def ticks_of_matplotlib(workers, seconds):
    figure, ax = plt.subplots()
    ax.errorbar(workers, seconds.mean(-1), yerr=seconds.std(-1), capsize=4)
    ax.set(xlabel="number of workers", ylabel="time per pass, s")
    ax.set_ylim(bottom=0)
    plt.close(figure)
    return figure


def doubles(workers):
    return torch.as_tensor(workers, dtype=torch.float64)


@mistake(
    "predict_seconds",
    "The overhead is added after the comparison, so that even the floor pays it. Compare the floor with the whole sum.",
)
def overhead_on_the_floor(workers, floor, work, overhead):
    return (work / doubles(workers)).clamp(min=floor) + overhead


@mistake("predict_seconds", "The overhead is divided among the workers. It is what does not divide.")
def overhead_divided(workers, floor, work, overhead):
    return ((work + overhead) / doubles(workers)).clamp(min=floor)


@mistake("predict_seconds", "The smaller of the two is taken: clamp(max=...) or minimum. A floor is held from below.")
def ceiling(workers, floor, work, overhead):
    return (work / doubles(workers) + overhead).clamp(max=floor)


@mistake("predict_seconds", "The floor is added. A batch takes the longer of the two times, not both.")
def floor_added(workers, floor, work, overhead):
    return floor + work / doubles(workers) + overhead


@mistake("predict_seconds", "The work is multiplied by the number of workers. More of them take less time.")
def work_multiplied(workers, floor, work, overhead):
    return (work * doubles(workers) + overhead).clamp(min=floor)


@mistake("predict_seconds", "The result is float32, torch's default. Say dtype=torch.float64 when you make the tensor.")
def single_precision(workers, floor, work, overhead):
    return (work / torch.as_tensor(workers).float() + overhead).clamp(min=floor)


def fitted(
    workers,
    seconds,
    last=2,
    level=np.mean,
    line=lambda x, y: np.polyfit(x, y, 1),
    inverse=True,
    error=None,
    allowed=1e-12,
):
    """The best split, with one idea to get wrong each: how many splits, which floor, line, abscissa, error, rest."""
    w, y = np.array(workers, dtype=float), seconds.double().numpy()
    x, n, models, errors = 1 / w if inverse else w, len(y), [], []
    for k in range(n - last + 1):
        work, overhead = map(float, line(x[: n - k], y[: n - k]))
        floor = float(level(y[n - k :])) if k else 0.0
        models.append((floor, work, overhead))
        if error:
            errors.append(error(work * x + overhead, floor, y, k))
        else:
            errors.append(((np.maximum(floor, work * x + overhead) - y) ** 2).sum())
    enough = min(errors) + allowed * (y**2).sum()
    return next(model for model, e in zip(models, errors, strict=True) if e <= enough)


@mistake(
    "fit_workers",
    "The error looks at the points of the line only, and two points always lie on their line. Sum over all points.",
)
def error_of_the_line_only(workers, seconds):
    return fitted(workers, seconds, error=lambda line, floor, y, k: ((line - y)[: len(y) - k] ** 2).sum())


@mistake(
    "fit_workers",
    "Each part of the split is compared with its own half of the model. Compare all points with the maximum of both.",
)
def error_by_the_split(workers, seconds):
    def by_split(line, floor, y, k):
        split = np.where(np.arange(len(y)) < len(y) - k, line, floor)
        return ((split - y) ** 2).sum()

    return fitted(workers, seconds, error=by_split)


@mistake("fit_workers", "The line is fitted against w. The model is a straight line in 1 / w.")
def line_against_w(workers, seconds):
    return fitted(workers, seconds, inverse=False)


@mistake("fit_workers", "The floor is the smallest time of its points. Noise makes that too low: take their mean.")
def floor_of_the_fastest(workers, seconds):
    return fitted(workers, seconds, level=np.min)


@mistake("fit_workers", "The split that leaves two points for the line is never tried. k goes up to n - 2, inclusive.")
def one_split_missing(workers, seconds):
    return fitted(workers, seconds, last=3)


@mistake(
    "fit_workers",
    "Equal errors are decided by rounding. Take the smallest k within 1e-12 times the sum of the squared seconds.",
)
def rounding_decides(workers, seconds):
    return fitted(workers, seconds, allowed=0.0)


@mistake(
    "fit_workers",
    "There is always a floor, even where no point shows one. k = 0, a line through all points, is a split as well.",
)
def always_a_floor(workers, seconds):
    return fitted(workers, seconds, error=lambda line, floor, y, k: (
        ((np.maximum(floor, line) - y) ** 2).sum() if k else np.inf
    ))  # fmt: skip


@mistake("fit_workers", "A negative overhead is set to 0, which hides that the model does not fit. Return it as it is.")
def overhead_clipped(workers, seconds):
    floor, work, overhead = fitted(workers, seconds)
    return floor, work, max(0.0, overhead)


@mistake(
    "fit_workers",
    "The absolute differences are summed, not their squares. Least squares asks for the squares.",
)
def absolute_errors(workers, seconds):
    return fitted(workers, seconds, error=lambda line, floor, y, k: np.abs(np.maximum(floor, line) - y).sum())


@mistake("fit_workers", "For k = 0 the slice [:-k] is empty, not everything. Write [:n - k].")
def empty_slice(workers, seconds):
    x, y = 1 / np.array(workers), seconds.double().numpy()
    return tuple(np.polyfit(x[:-0], y[:-0], 1))


@mistake("fit_workers", "The line is forced through 0, so there is no overhead. Fit slope and intercept.")
def no_intercept(workers, seconds):
    return fitted(workers, seconds, line=lambda x, y: (x @ y / (x @ x), 0.0))


@mistake("fit_workers", "Work and overhead have changed places: slope first, then intercept, as np.polyfit gives them.")
def slope_and_intercept_swapped(workers, seconds):
    floor, work, overhead = fitted(workers, seconds)
    return floor, overhead, work


def predictions(model, in_main, candidates):
    floor, work, overhead = model
    if not candidates:
        raise ValueError("no candidates")
    return {w: max(floor, work / w + overhead) if w else in_main for w in candidates}


@mistake(
    "choose_workers",
    "This is the fastest candidate. Asked for is the smallest one that is nearly as fast: first the limit, then min.",
)
def the_fastest(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    return min(candidates, key=seconds.get)


@mistake("choose_workers", "Slack is added as seconds. It is a share of the best: multiply by (1 + slack).")
def slack_in_seconds(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    return min(w for w in candidates if seconds[w] <= min(seconds.values()) + slack)


@mistake(
    "choose_workers",
    "The limit comes from 0 workers even where 0 is no candidate. Compare with the candidates only.",
)
def main_process_always_compared(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    limit = (1 + slack) * min(in_main, *seconds.values())
    return min((w for w in candidates if seconds[w] <= limit), default=0)


@mistake("choose_workers", "The first candidate that is good enough is taken, in the order given. Take the smallest.")
def first_of_the_list(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    return next(w for w in candidates if seconds[w] <= (1 + slack) * min(seconds.values()))


@mistake("choose_workers", "A prediction exactly at the limit is refused. At most means <=.")
def below_the_limit_only(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    best = min(seconds.values())
    return min(w for w in candidates if seconds[w] < (1 + slack) * best or seconds[w] == best)


@mistake(
    "choose_workers",
    "0 workers are left out, as if multiprocessing always paid. Their prediction is in_main.",
)
def never_zero(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    some = [w for w in candidates if w] or [0]
    return min(w for w in some if seconds[w] <= (1 + slack) * min(seconds[v] for v in some))


@mistake(
    "choose_workers",
    "Without candidates the error is that of min(), which does not say what is missing. Look first, and say it.",
)
def error_of_min(model, in_main, candidates, slack=0.05):
    seconds = {w: predictions(model, in_main, [w])[w] for w in candidates}
    return min(w for w in candidates if seconds[w] <= (1 + slack) * min(seconds.values()))


@mistake("choose_workers", "Work and overhead have changed places. The model is (floor, work, overhead).")
def work_and_overhead_swapped(model, in_main, candidates, slack=0.05):
    floor, overhead, work = model
    seconds = predictions((floor, work, overhead), in_main, candidates)
    return min(w for w in candidates if seconds[w] <= (1 + slack) * min(seconds.values()))


@mistake("choose_workers", "The overhead is left out of the prediction. It is max(floor, work / w + overhead).")
def overhead_forgotten(model, in_main, candidates, slack=0.05):
    floor, work, _ = model
    seconds = predictions((floor, work, 0.0), in_main, candidates)
    return min(w for w in candidates if seconds[w] <= (1 + slack) * min(seconds.values()))


@mistake("choose_workers", "The floor is left out, so more workers always look faster. It is a maximum of two terms.")
def floor_forgotten(model, in_main, candidates, slack=0.05):
    _, work, overhead = model
    seconds = predictions((0.0, work, overhead), in_main, candidates)
    return min(w for w in candidates if seconds[w] <= (1 + slack) * min(seconds.values()))


@mistake("batches_drawn", "The generator counts after its yield, so the last batch of a pass is missed. Count before.")
def counted_after_the_yield(timing, n_batches):
    class Loader:
        drawn = 0

        def __iter__(self):
            while True:
                yield 0
                self.drawn += 1

    loader = Loader()
    timing(loader, n_batches)
    return loader.drawn


@mistake("batches_drawn", "The generator counts after its yield, so the very last batch is missed. Count before.")
def shared_generator_counts_late(timing, n_batches):
    drawn = 0

    def batches():
        nonlocal drawn
        while True:
            yield 0
            drawn += 1

    timing(batches(), n_batches)
    return drawn


@mistake(
    "batches_drawn",
    "The loader holds n_batches batches, so that nobody can draw more from it. Let it never come to an end.",
)
def loader_just_long_enough(timing, n_batches):
    class Loader:
        drawn = 0

        def __iter__(self):
            for i in range(n_batches):
                self.drawn += 1
                yield i

    loader = Loader()
    timing(loader, n_batches)
    return loader.drawn


@mistake(
    "batches_drawn",
    "A loader with one batch to spare cannot show how many too many are drawn. Let it never come to an end.",
)
def one_to_spare(timing, n_batches):
    class Loader:
        drawn = 0

        def __iter__(self):
            for i in range(n_batches + 1):
                self.drawn += 1
                yield i

    loader = Loader()
    timing(loader, n_batches)
    return loader.drawn


@mistake(
    "batches_drawn", "Every new pass starts the count again. Add up all passes: set it to 0 once, not in __iter__."
)
def last_pass_only(timing, n_batches):
    class Loader:
        drawn = 0

        def __iter__(self):
            self.drawn = 0
            return self

        def __next__(self):
            self.drawn += 1
            return 0

    loader = Loader()
    timing(loader, n_batches)
    return loader.drawn


@mistake(
    "batches_drawn", "An error of the timing function is caught, and half a measurement passes for one. Let it through."
)
def error_swallowed(timing, n_batches):
    class Loader:
        drawn = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.drawn += 1
            return 0

    loader = Loader()
    try:
        timing(loader, n_batches)
    except Exception:
        pass
    return loader.drawn


@mistake("batches_drawn", "This is what timing was asked for, not what it drew. Count in the loader.")
def what_was_asked_for(timing, n_batches):
    timing(itertools.repeat(0), n_batches)
    return n_batches


@mistake(
    "batches_drawn",
    "Iterators are counted, not batches: __iter__ is called once a pass. Count where a batch is handed out.",
)
def iterators_counted(timing, n_batches):
    class Loader:
        passes = 0

        def __iter__(self):
            self.passes += 1
            return itertools.repeat(0)

    loader = Loader()
    timing(loader, n_batches)
    return loader.passes


def line_of(mean, spread, n_batches, rate):
    return f"{mean:.3f} ± {spread:.3f} s for {n_batches} batches, {rate:,.0f} images/s"


def without_spread(seconds, n_batches, batch_size):
    mean = seconds.mean().item()
    return f"{mean:.3f} s for {n_batches} batches, {n_batches * batch_size / mean:,.0f} images/s"


@mistake("timing_line", "The braces stand in the line as they are: the string needs an f before its quotes.")
def no_f(seconds, n_batches, batch_size):
    return "{mean:.3f} ± {std:.3f} s for {n_batches} batches, {rate:,.0f} images/s"


@mistake(
    "timing_line",
    "The deviation is divided by n, too small for a few passes. Divide by n - 1: torch.std, or numpy's ddof=1.",
)
def deviation_of_numpy(seconds, n_batches, batch_size):
    if len(seconds) == 1:
        return without_spread(seconds, n_batches, batch_size)
    mean = seconds.mean().item()
    return line_of(mean, seconds.numpy().std(), n_batches, n_batches * batch_size / mean)


@mistake(
    "timing_line",
    "The rates of the passes are averaged, which favours the fast ones. Divide images by the mean seconds.",
)
def mean_of_the_rates(seconds, n_batches, batch_size):
    if len(seconds) == 1:
        return without_spread(seconds, n_batches, batch_size)
    rate = (n_batches * batch_size / seconds).mean().item()
    return line_of(seconds.mean().item(), seconds.std().item(), n_batches, rate)


@mistake("timing_line", "The rate is in batches per second. A batch has batch_size images.")
def batches_a_second(seconds, n_batches, batch_size):
    return timing_line_with_rate(seconds, n_batches, n_batches / seconds.mean().item())


@mistake(
    "timing_line",
    "The images of one pass are divided by the seconds of all passes. Divide by the mean seconds.",
)
def seconds_of_all_passes(seconds, n_batches, batch_size):
    return timing_line_with_rate(seconds, n_batches, n_batches * batch_size / seconds.sum().item())


@mistake(
    "timing_line", "The images of all passes are divided by the seconds of one. A pass has n_batches * batch_size."
)
def images_of_all_passes(seconds, n_batches, batch_size):
    return timing_line_with_rate(seconds, n_batches, len(seconds) * n_batches * batch_size / seconds.mean().item())


def timing_line_with_rate(seconds, n_batches, rate):
    mean = seconds.mean().item()
    if len(seconds) == 1:
        return f"{mean:.3f} s for {n_batches} batches, {rate:,.0f} images/s"
    return line_of(mean, seconds.std().item(), n_batches, rate)


@mistake("timing_line", "One pass has no spread, and n - 1 is 0: the line says nan. Leave out the ± part.")
def nan_for_one_pass(seconds, n_batches, batch_size):
    mean = seconds.mean().item()
    spread = seconds.std(correction=min(1, len(seconds) - 1)).item() if len(seconds) > 1 else float("nan")
    return line_of(mean, spread, n_batches, n_batches * batch_size / mean)


@mistake("timing_line", "One pass has no spread at all, so ± 0.000 claims too much. Leave out the ± part.")
def zero_for_one_pass(seconds, n_batches, batch_size):
    mean = seconds.mean().item()
    spread = seconds.std().item() if len(seconds) > 1 else 0.0
    return line_of(mean, spread, n_batches, n_batches * batch_size / mean)


@mistake("timing_line", "The rate has no comma between thousands. The format of the number is ,.0f.")
def no_commas(seconds, n_batches, batch_size):
    if len(seconds) == 1:
        return without_spread(seconds, n_batches, batch_size).replace(",", "").replace("batches", "batches,")
    mean = seconds.mean().item()
    rate = n_batches * batch_size / mean
    return f"{mean:.3f} ± {seconds.std().item():.3f} s for {n_batches} batches, {rate:.0f} images/s"


RIGHT = {"A": True, "B": False, "C": False, "D": True, "E": False, "F": True, "G": False, "H": True}


@mistake(
    "judge",
    "A is true. The loader starts the workers only; what sends and receives is the iterator, whose code runs in the "
    "process that calls next(): the one of the training loop, in a notebook the kernel.",
)
def main_is_another_process():
    return RIGHT | {"A": False}


@mistake(
    "judge",
    "B is false. Workers are processes, not threads: each has a memory and a copy of the dataset of its own, and what "
    "it keeps there nobody else sees. A cache is filled once in every worker.",
)
def workers_share_the_dataset():
    return RIGHT | {"B": True}


@mistake(
    "judge",
    "C is false. All eight indices go to one worker, which builds the whole batch; the next batch goes to the next "
    "worker. A single batch comes no sooner with more workers, only the stream of them is faster.",
)
def batch_is_divided():
    return RIGHT | {"C": True}


@mistake(
    "judge",
    "D is true. The list of indices is one message and the finished batch another, and collate has already written "
    "the pixels into shared memory. What is sent is the handle of it, as small for 1000 images as for one.",
)
def one_message_a_sample():
    return RIGHT | {"D": False}


@mistake(
    "judge",
    "E is false. Where __getitem__ is a look-up in memory there is next to nothing to divide, and every batch now "
    "costs messages and a start of processes on top. Such a loader is often slower with workers.",
)
def workers_always_pay():
    return RIGHT | {"E": True}


@mistake(
    "judge",
    "F is true. os.cpu_count() counts logical processors, two for each of these cores. To double it, as is sometimes "
    "advised, counts the hardware threads twice.",
)
def cores_counted():
    return RIGHT | {"F": False}


@mistake(
    "judge",
    "G is false. Pinned memory is memory of the host that is never paged out, so that a batch in it can be copied to "
    "the GPU while the program goes on (non_blocking=True). How large the dataset is plays no part.",
)
def pinned_if_it_fits():
    return RIGHT | {"G": True}


@mistake(
    "judge",
    "H is true. Indices of num_workers * prefetch_factor batches are sent at the start, and one more for each batch "
    "that is taken: 12 are always under way, and all may be ready. More workers cost memory.",
)
def prefetch_of_the_whole_loader():
    return RIGHT | {"H": False}


@mistake("judge", "The verdicts are words. True and False are values of their own in Python, without quotes.")
def verdicts_in_words():
    return {letter: str(verdict) for letter, verdict in RIGHT.items()}


def shared_memory(images):
    """An unwritten batch in shared memory for `images`."""
    storage = torch.UntypedStorage._new_shared(sum(image.numel() for image in images))
    return torch.tensor([], dtype=torch.uint8).set_(storage).view(len(images), *images[0].shape)


def stacked(images):
    """A batch of `images` as the task defines it."""
    return torch.stack(images, out=None if get_worker_info() is None else shared_memory(images))


@mistake(
    "collate_bytes",
    "The batch is made of floats, four bytes for each pixel's one. Leave the conversion to the device that computes.",
)
def float_batch(samples):
    images, labels = zip(*samples, strict=True)
    return torch.stack([image.float() / 255 for image in images]), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "The pixels become floats and then bytes again: each is copied at four times its size. Stack the bytes.",
)
def through_floats(samples):
    images, labels = zip(*samples, strict=True)
    return stacked([image.float().to(torch.uint8) for image in images]), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "Each image is copied before it is copied into the batch. torch.stack takes views with any strides as they are.",
)
def cloned_first(samples):
    images, labels = zip(*samples, strict=True)
    return stacked([image.clone() for image in images]), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "In a worker the batch is left in ordinary memory, and torch copies it to shared memory to hand it over. "
    "Ask get_worker_info() and stack into shared memory.",
)
def never_shared(samples):
    images, labels = zip(*samples, strict=True)
    return torch.stack(images), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "The batch is put together first and then moved to shared memory, a second copy. Have the shared memory first, "
    "then stack with out=.",
)
def shared_afterwards(samples):
    images, labels = zip(*samples, strict=True)
    batch = torch.stack(images)
    return batch if get_worker_info() is None else batch.share_memory_(), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "share_memory_() copies the whole tensor, also before anything was written to it. Make the memory shared from the "
    "start: torch.UntypedStorage._new_shared(n_bytes).",
)
def shared_while_empty(samples):
    images, labels = zip(*samples, strict=True)
    batch = torch.empty(len(images), *images[0].shape, dtype=torch.uint8)
    if get_worker_info() is not None:
        batch.share_memory_()
    return torch.stack(images, out=batch), torch.tensor(labels)


@mistake(
    "collate_bytes",
    "The main process gets shared memory too, which nobody shares with it. Ask get_worker_info() whether this is a "
    "worker.",
)
def always_shared(samples):
    images, labels = zip(*samples, strict=True)
    return torch.stack(images, out=shared_memory(images)), torch.tensor(labels)


@mistake(
    "collate_bytes", "The labels are a plain tuple of numbers. Make an int64 tensor of them: torch.tensor(labels)."
)
def labels_left_alone(samples):
    images, labels = zip(*samples, strict=True)
    return stacked(images), labels


@mistake(
    "collate_bytes",
    "The images are read in the order of their memory, which for a permuted view is another one. Stack the images "
    "themselves.",
)
def memory_order(samples):
    images, labels = zip(*samples, strict=True)
    flat = [image.as_strided((image.numel(),), (1,)) for image in images]
    return stacked(flat).view(len(images), *images[0].shape), torch.tensor(labels)


def options(num_workers, device, prefetch_factor, **changes):
    """The right options with some changed."""
    workers = num_workers > 0
    right = {
        "num_workers": num_workers,
        "pin_memory": torch.device(device).type == "cuda",
        "persistent_workers": workers,
        "prefetch_factor": prefetch_factor if workers else None,
        "multiprocessing_context": "fork" if workers else None,
    }
    return right | changes


@mistake(
    "loader_options",
    "pin_memory is always on. Pinned memory serves copies to a CUDA device; for others it is a copy for nothing.",
)
def always_pinned(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, pin_memory=True)


@mistake(
    "loader_options",
    'The device is compared with the word "cuda", which misses "cuda:1" and torch.device objects. Compare '
    "torch.device(device).type.",
)
def compared_with_a_word(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, pin_memory=device == "cuda")


@mistake(
    "loader_options",
    'pin_memory is on for every device but the CPU. Ask for "cuda": other devices have no use for it here.',
)
def pinned_unless_cpu(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, pin_memory=torch.device(device).type != "cpu")


@mistake(
    "loader_options",
    "prefetch_factor is set also without workers, which DataLoader refuses. Without workers it is None.",
)
def always_prefetched(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, prefetch_factor=prefetch_factor)


@mistake(
    "loader_options",
    "persistent_workers is set also without workers, which DataLoader refuses. Without workers it is False.",
)
def always_persistent(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, persistent_workers=True)


@mistake(
    "loader_options",
    "The start method is named also without workers, which DataLoader refuses. Without workers it is None.",
)
def always_forked(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, multiprocessing_context="fork")


@mistake(
    "loader_options",
    "The workers end with each epoch and are started anew for the next. Set persistent_workers where there are some.",
)
def never_persistent(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, persistent_workers=False)


@mistake(
    "loader_options",
    "The start method is left to the platform, which may be spawn or forkserver: they cannot find a Dataset from a "
    'notebook cell. Name it: "fork".',
)
def start_method_of_the_platform(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, multiprocessing_context=None)


@mistake(
    "loader_options",
    "The argument prefetch_factor is not used: there are always two batches a worker. Hand it on.",
)
def two_batches_ahead(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, 2)


def move(batch, device, dictionary=dict, sequence=None, tensor=None):
    """A right `to_device` with one part to get wrong each."""

    def again(item):
        return move(item, device, dictionary, sequence, tensor)

    if isinstance(batch, torch.Tensor):
        return tensor(batch) if tensor else batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return dictionary((key, again(value)) for key, value in batch.items())
    if isinstance(batch, (list, tuple)):
        items = [again(item) for item in batch]
        if sequence:
            return sequence(batch, items)
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch


@mistake(
    "to_device",
    "The tensors are moved without non_blocking=True, so that the processor waits for each copy. Pass it to .to.",
)
def blocking(batch, device):
    return move(batch, device, tensor=lambda tensor: tensor.to(device))


@mistake(
    "to_device",
    "Only the outermost container is looked into. Let the function call itself for each item.",
)
def one_level(batch, device):
    def moved(item):
        return item.to(device, non_blocking=True) if isinstance(item, torch.Tensor) else item

    if isinstance(batch, dict):
        return {key: moved(value) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        items = [moved(item) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return moved(batch)


@mistake("to_device", "Tuples come back as lists. Make the same type again: type(batch)(items).")
def tuples_become_lists(batch, device):
    return move(batch, device, sequence=lambda batch, items: items)


@mistake(
    "to_device",
    "A named tuple comes back as a plain tuple and loses the names of its fields. Make it of type(batch): "
    "type(batch)(*items).",
)
def named_tuples_become_plain(batch, device):
    return move(batch, device, sequence=lambda batch, items: items if isinstance(batch, list) else tuple(items))


@mistake(
    "to_device",
    "A named tuple is made of one list of items, as a tuple is. It takes its fields one by one: type(batch)(*items).",
)
def named_tuple_of_one_list(batch, device):
    return move(batch, device, sequence=lambda batch, items: type(batch)(items))


@mistake(
    "to_device",
    "Dictionaries are handed through unmoved. Their values may be tensors: go over batch.items().",
)
def dictionaries_left_alone(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, (list, tuple)):
        items = [dictionaries_left_alone(item, device) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch


@mistake(
    "to_device",
    "The moved tensors are written into the container that was given, which belongs to the caller. Make a new one.",
)
def dictionary_in_place(batch, device):
    if isinstance(batch, dict):
        for key in batch:
            batch[key] = dictionary_in_place(batch[key], device)
        return batch
    if isinstance(batch, (list, tuple)):
        items = [dictionary_in_place(item, device) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch.to(device, non_blocking=True) if isinstance(batch, torch.Tensor) else batch


@mistake(
    "to_device",
    "Numbers became tensors. What is no tensor is handed through as it is: ask isinstance(batch, torch.Tensor).",
)
def numbers_become_tensors(batch, device):
    if isinstance(batch, dict):
        return {key: numbers_become_tensors(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        items = [numbers_become_tensors(item, device) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    if isinstance(batch, (int, float, torch.Tensor)):
        return torch.as_tensor(batch).to(device, non_blocking=True)
    return batch


@mistake(
    "to_device",
    "A tensor that is on the device already is copied. Without copy=True and clone(), .to returns the tensor itself.",
)
def always_copied(batch, device):
    return move(batch, device, tensor=lambda tensor: tensor.to(device, non_blocking=True, copy=True))


class Base:
    """A right Prefetcher; each mistake below changes one part of it."""

    def __init__(self, loader, device, cuda=torch.cuda):
        self.loader, self.device, self.cuda = loader, torch.device(device), cuda

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        if self.device.type != "cuda":
            return map(self.moved, self.loader)
        return self.handed_out()

    def handed_out(self):
        copies = self.copies(self.cuda.Stream(self.device))
        ready = next(copies, None)
        while ready is not None:
            batch, copied = ready
            ready = next(copies, None)
            self.wait(self.cuda.current_stream(self.device), copied)
            self.keep(batch, self.cuda.current_stream(self.device))
            yield batch

    def copies(self, side):
        for batch in self.loader:
            with self.cuda.stream(side):
                copy, copied = self.moved(batch), side.record_event()
            yield copy, (copied, side)

    def wait(self, computing, copied):
        computing.wait_event(copied[0])

    def keep(self, batch, computing):
        for tensor in batch:
            tensor.record_stream(computing)

    def moved(self, batch):
        return type(batch)(tensor.to(self.device, non_blocking=True) for tensor in batch)


@mistake(
    "Prefetcher",
    "The computing stream waits for the whole side stream, and the next copy is queued there already: nothing "
    "overlaps. Record an event behind each copy and wait for that.",
)
class WaitsForTheStream(Base):
    def wait(self, computing, copied):
        computing.wait_stream(copied[1])


@mistake(
    "Prefetcher",
    "Nothing makes the computing stream wait: it may read a batch that is still being copied. Record an event on the "
    "side stream behind the copy, and let the computing stream wait for it: wait_event.",
)
class NeverWaits(Base):
    def wait(self, computing, copied):
        pass


@mistake(
    "Prefetcher",
    "The event is recorded before the copy is queued, so that to wait for it is not to wait for the copy. Record it "
    "right after the copy.",
)
class EventTooEarly(Base):
    def copies(self, side):
        for batch in self.loader:
            with self.cuda.stream(side):
                copied = side.record_event()
                copy = self.moved(batch)
            yield copy, (copied, side)


@mistake(
    "Prefetcher",
    "Streams are taken from torch.cuda itself, where the check cannot watch them. Take them from the argument `cuda`.",
)
class StreamsOfTorch(Base):
    def __init__(self, loader, device, cuda=torch.cuda):
        super().__init__(loader, device)


@mistake(
    "Prefetcher",
    "No record_stream: when Python lets go of a batch, its memory is free for the next copy, while the computing "
    "stream may still read it.",
)
class KeepsNoMemory(Base):
    def keep(self, batch, computing):
        pass


@mistake(
    "Prefetcher",
    "Only the first tensor of a batch is marked with record_stream. Each of them has memory of its own.",
)
class KeepsTheFirstTensor(Base):
    def keep(self, batch, computing):
        batch[0].record_stream(computing)


@mistake(
    "Prefetcher",
    "record_stream is told the side stream, on which the memory was made. Name the stream that will read it, the "
    "computing one.",
)
class KeepsForTheSideStream(Base):
    def copies(self, side):
        for copy, copied in super().copies(side):
            self.side = side
            yield copy, copied

    def keep(self, batch, computing):
        super().keep(batch, self.side)


@mistake(
    "Prefetcher",
    "Each batch is drawn and copied when it is asked for, so that nothing is under way while computing. Queue the "
    "next copy before you hand out this batch.",
)
class NothingAhead(Base):
    def handed_out(self):
        for batch, copied in self.copies(self.cuda.Stream(self.device)):
            self.wait(self.cuda.current_stream(self.device), copied)
            self.keep(batch, self.cuda.current_stream(self.device))
            yield batch


@mistake(
    "Prefetcher",
    "The last batch is lost: when the loader ends, one batch is still in hand. Hand it out too.",
)
class LosesTheLastBatch(Base):
    def handed_out(self):
        ready = None
        for batch, copied in self.copies(self.cuda.Stream(self.device)):
            if ready is not None:
                self.wait(self.cuda.current_stream(self.device), ready[1])
                self.keep(ready[0], self.cuda.current_stream(self.device))
                yield ready[0]
            ready = batch, copied


@mistake(
    "Prefetcher",
    "All batches are drawn and copied before the first is handed out: they may not fit into memory. Draw one ahead.",
)
class DrawsAll(Base):
    def copies(self, side):
        yield from list(super().copies(side))


@mistake(
    "Prefetcher",
    "synchronize() makes the processor wait until the copies have ended. Let the GPU wait: record an event on the side "
    "stream and pass it to wait_event of the computing one.",
)
class StopsTheProcessor(Base):
    def wait(self, computing, copied):
        copied[0].synchronize()


@mistake(
    "Prefetcher",
    "The copies are queued on the computing stream, where they run in line with the kernels. Make them inside "
    "`with cuda.stream(side):`.",
)
class CopiesInLine(Base):
    def copies(self, side):
        for batch in self.loader:
            copy = self.moved(batch)
            yield copy, (self.cuda.current_stream(self.device).record_event(), side)


@mistake(
    "Prefetcher",
    "Batches are handed out inside `with cuda.stream(side):`, so that the caller computes on the side stream. Leave "
    "the block before the yield.",
)
class YieldsInsideTheBlock(Base):
    def copies(self, side):
        for batch in self.loader:
            with self.cuda.stream(side):
                copy = self.moved(batch)
                yield copy, (side.record_event(), side)


@mistake(
    "Prefetcher",
    "The copies wait for their end: they lack non_blocking=True. Pass it to .to.",
)
class BlockingCopies(Base):
    def moved(self, batch):
        return type(batch)(tensor.to(self.device) for tensor in batch)


@mistake(
    "Prefetcher",
    "There is only one pass: iter(loader) is called once, when the prefetcher is made. Call it in __iter__.",
)
class OnePassOnly(Base):
    def __init__(self, loader, device, cuda=torch.cuda):
        super().__init__(loader, device, cuda)
        self.rest = iter(loader)

    def copies(self, side):
        for batch in self.rest:
            with self.cuda.stream(side):
                copy, copied = self.moved(batch), side.record_event()
            yield copy, (copied, side)


@mistake(
    "Prefetcher",
    "The computing stream is asked for once, when the prefetcher is made. The caller may compute on another one: ask "
    "each time a batch is handed out.",
)
class ComputingStreamOfTheStart(Base):
    def __init__(self, loader, device, cuda=torch.cuda):
        super().__init__(loader, device, cuda)
        self.computing = cuda.current_stream(self.device) if self.device.type == "cuda" else None

    def wait(self, computing, copied):
        super().wait(self.computing, copied)

    def keep(self, batch, computing):
        super().keep(batch, self.computing)


@mistake(
    "Prefetcher",
    "Streams are asked for without naming the device, so they belong to the current GPU, which need not be this one: "
    "Stream(device), current_stream(device).",
)
class StreamsOfTheCurrentGpu(Base):
    def handed_out(self):
        copies = self.copies(self.cuda.Stream())
        ready = next(copies, None)
        while ready is not None:
            batch, copied = ready
            ready = next(copies, None)
            self.wait(self.cuda.current_stream(), copied)
            self.keep(batch, self.cuda.current_stream())
            yield batch


@mistake(
    "Prefetcher",
    "Streams are used whatever the device is. On a device without them hand the moved batches through.",
)
class StreamsOnTheCpu(Base):
    def __iter__(self):
        return self.handed_out()


@mistake(
    "Prefetcher",
    "Batches are always made into lists. Make the kind that came: type(batch)(...).",
)
class AlwaysLists(Base):
    def moved(self, batch):
        return [tensor.to(self.device, non_blocking=True) for tensor in batch]


@mistake(
    "Prefetcher",
    "An exception of the loader ends the pass as if the data were at their end. Let it through.",
)
class SwallowsExceptions(Base):
    def __iter__(self):
        try:
            yield from super().__iter__()
        except Exception:
            return
