"""Probes of unit 01_parallel_loading: what must hold for an answer to each exercise."""

import builtins
import collections
import contextlib
import io
import itertools
import logging
import os
import pickle
import random
import re
import sys
import tempfile
import types
import warnings
from pathlib import Path
from unittest import mock

import matplotlib.pyplot as plt
import numpy
import torch
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from PIL import Image, ImageFile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset, get_worker_info

from course.checks.engine import exercise

UNIT = "01_parallel_loading"


PEOPLE = ("Avel_Borin", "Cora_Dunn", "Ede", "Zita_van_Aa")


def _epochs(dataset, epochs=1, num_workers=2, **settings):
    """The batches of each epoch of a DataLoader, a list of lists; no worker is left, whatever the answer did in one.

    Workers are forked, because what a notebook cell defines cannot be pickled.
    """
    if num_workers:
        settings |= {"multiprocessing_context": "fork", "timeout": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of a fork beside threads, torch of workers without a core
        loader = DataLoader(dataset, num_workers=num_workers, **settings)
        return [_epoch(loader) for _ in range(epochs)]


def _epoch(loader):
    batches = iter(loader)
    try:
        return list(batches)
    except Exception as error:
        if not str(error).startswith("Caught "):  # the words of torch for what was raised in a worker
            raise
        raise RuntimeError(f"in a worker: {str(error).strip().splitlines()[-1]}") from None
    finally:
        getattr(batches, "_shutdown_workers", lambda: None)()  # an exception would keep them alive


def _random_state():
    """The state of the three global sources of random numbers, as something that can be compared."""
    return torch.get_rng_state().tolist(), random.getstate(), repr(numpy.random.get_state())


class _Pickler(pickle.Pickler):
    """Takes what stands at the top of a module for found, also where no such module can be imported, as in a test."""

    def reducer_override(self, thing):
        if not isinstance(thing, (type, types.FunctionType)) or "<" in thing.__qualname__:
            return NotImplemented
        found = thing.__module__ in sys.modules
        return NotImplemented if found else (str, (thing.__qualname__,))


def _can_be_pickled(thing):
    try:
        _Pickler(io.BytesIO()).dump(thing)
    except Exception:
        return False
    return True


def _raised(call):
    """(name of the type, message) of the exception that `call()` raises."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""


def _open_among(paths):
    """How many of the files at `paths` this process holds open; 0 where the system does not tell."""
    wanted = {(stat.st_dev, stat.st_ino) for stat in map(os.stat, paths)}
    held = 0
    for number in os.listdir("/dev/fd") if os.path.isdir("/dev/fd") else []:
        with contextlib.suppress(OSError):  # the handle that listed the folder
            stat = os.fstat(int(number))
            held += (stat.st_dev, stat.st_ino) in wanted
    return held


def _picture(rng, height=20, width=26):
    """A smooth PIL image in mode RGB, which JPEG keeps well."""
    coarse = torch.randint(256, (4, 5, 3), generator=rng, dtype=torch.uint8)
    return Image.fromarray(coarse.numpy()).resize((width, height), Image.Resampling.BICUBIC)


def _kind(value):
    """What a tensor is, without its values; of anything else the name of its type."""
    return [f"Tensor {value.dtype}", value.shape] if isinstance(value, torch.Tensor) else type(value).__name__


def _short(path):
    return "/".join(Path(path).parts[-2:])


@exercise(UNIT)
def LFWDataset(answer, device, seed):
    """A folder of small JPEG files, with everything that may lie between them."""
    rng = torch.Generator().manual_seed(seed)
    warnings.simplefilter("ignore", ResourceWarning)  # what stays open is a fact of its own
    whole_only = mock.patch.object(ImageFile, "LOAD_TRUNCATED_IMAGES", False)  # an earlier attempt may have set it
    with tempfile.TemporaryDirectory() as temporary, whole_only:
        folder = Path(temporary).resolve() / "faces"
        names = [f"{person}/{n:02d}.jpg" for person in PEOPLE for n in range(1, 3 + seed % 2)]
        for place in torch.randperm(len(names), generator=rng).tolist():
            path = folder / names[place]
            path.parent.mkdir(parents=True, exist_ok=True)
            _picture(rng, 20 + place, 31).save(path, quality=95)

        dataset = answer(folder)
        yield "is a torch Dataset", isinstance(dataset, Dataset)
        yield "its length is the number of images", len(dataset)
        kinds = {"Path" if isinstance(path, Path) else type(path).__name__ for path in dataset.paths}
        yield "paths is a list of Path", {"paths": type(dataset.paths).__name__, "its items": sorted(kinds)}
        yield "paths holds each <Person>/<name>.jpg", sorted(map(_short, dataset.paths))
        runs = [person for person, _ in itertools.groupby(Path(path).parent for path in dataset.paths)]
        yield "the images of each person stand together", len(runs) == len(PEOPLE)
        yield "paths is sorted by full path", list(dataset.paths) == sorted(dataset.paths)
        place = {_short(path): i for i, path in enumerate(dataset.paths)}
        images = {name: dataset[place[name]] for name in (names[0], names[-1])}
        yield (
            "an image is a float32 tensor (3, H, W)",
            {name: _kind(image) for name, image in images.items()},
        )
        yield "its values", images
        yield "the name of a person", [dataset.name(place[name]) for name in (names[0], names[-1], "Ede/01.jpg")]
        yield "a folder given as a str", len(answer(str(folder)))

        kept = []
        transform = _Keep(kept)
        dataset = answer(folder, transform=transform)
        yield "keeps the transform as self.transform", dataset.transform is transform
        yield "returns what the transform returns", dataset[place[names[1]]]
        yield "the transform is given a PIL image in RGB", [isinstance(kept[0], Image.Image), kept[0].mode]
        yield "no file stays open while the image is used", _open_among(dataset.paths) == 0
        try:
            pixels = numpy.asarray(kept[0])
        except Exception:
            pixels = "none: its file was closed before it was decoded"
        yield "its pixels can still be read then", pixels

        kind, _ = _raised(lambda: answer(folder, transform=_refuse)[0])
        yield "an error of the transform stays what it is", kind
        n = len(names)
        yield "index -1 is the last image", dataset[-1] == dataset[n - 1]
        yield "an index outside raises IndexError", [_raised(lambda i=i: dataset[i])[0] for i in (n, -n - 1)]
        yield "a for loop over it ends", sum(1 for _ in itertools.islice(dataset, 2 * n))

        odd = folder / "Grey" / "01.jpg"
        odd.parent.mkdir()
        for mode in ("L", "CMYK"):
            _picture(rng).convert(mode).save(odd, quality=95)
            dataset = answer(folder)
            i = [_short(p) for p in dataset.paths].index("Grey/01.jpg")
            text = "grey-scale" if mode == "L" else "CMYK"
            yield f"a {text} JPEG gives three channels", tuple(dataset[i].shape)
            yield f"a {text} JPEG in RGB", dataset[i]
        _picture(rng).save(odd, quality=95)
        yield "an image is read when it is asked for, not before", dataset[i]

        _picture(rng, 120, 160).save(odd, quality=95)  # large enough that half of it holds the whole header
        whole = odd.read_bytes()
        for text, content in (("truncated", whole[: len(whole) // 2]), ("foreign", b"<html>Not found</html>")):
            odd.write_bytes(content)
            dataset = answer(folder)
            try:
                dataset[i]
                kind, says, held = "nothing", False, False
            except Exception as error:  # while it is handled, its traceback keeps all variables of the answer
                kind = "OSError" if isinstance(error, OSError) else type(error).__name__
                says, held = str(odd) in str(error), _open_among([odd]) > 0
            yield f"a {text} JPEG raises an OSError", kind
            yield f"a {text} JPEG: the message names the file", says
            yield f"a {text} JPEG: its file is closed", not held
        odd.unlink()

        for text, other in (
            ("files of another kind", "Ede/portrait.png"),
            ("files without an ending", "Ede/jpg"),
            ("files with another ending", "Ede/02.jpeg"),
            ("images that lie in the folder itself", "00.jpg"),
            ("images that lie deeper", "Ede/more/00.jpg"),
            ("images in a hidden folder", ".cache/00.jpg"),
            ("hidden files, as macOS leaves them", "Ede/._01.jpg"),
        ):
            path = folder / other
            path.parent.mkdir(exist_ok=True)
            _picture(rng).save(path, format="JPEG")
            yield f"{text} do not count", sorted(map(_short, answer(folder).paths)) == sorted(names)
            path.unlink()

        empty = folder.parent / "empty"
        (empty / "Nobody").mkdir(parents=True)
        for text, where in (("a folder without images", empty), ("a folder that is not there", empty / "missing")):
            kind, message = _raised(lambda where=where: answer(where))
            yield f"{text} raises FileNotFoundError", kind
            yield f"{text}: the message holds the folder and .jpg", str(where) in message and ".jpg" in message
        yield "can be pickled", _can_be_pickled(answer(folder))


def _refuse(image):
    raise ValueError("this transform refuses every image")


class _Keep:
    """A transform that looks at no pixel and keeps the image that it was given."""

    def __init__(self, kept):
        self.kept = kept

    def __call__(self, image):
        self.kept.append(image)
        return f"{image.width} x {image.height}"


class _Log(logging.Handler):
    """Counts the warnings of matplotlib inside a `with`."""

    def __enter__(self):
        self.count = 0
        logging.getLogger("matplotlib").addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger("matplotlib").removeHandler(self)

    def emit(self, record):
        self.count += record.levelno >= logging.WARNING


def _cells(figure):
    """[(row, column, axes)] of the axes that show an image, in reading order; rows and columns count from 0."""
    shown = [axes for axes in figure.axes if axes.images]
    corners = [axes.get_position(original=True) for axes in shown]
    down, right = [round(-c.y1, 3) for c in corners], [round(c.x0, 3) for c in corners]
    rows, columns = sorted(set(down)), sorted(set(right))
    found = zip((rows.index(y) for y in down), (columns.index(x) for x in right), shown, strict=True)
    return sorted(found, key=lambda cell: cell[:2])


def _pixels(axes):
    """The image that axes show, float32 (H, W, 3) from 0 to 1 in steps of 1/255: one written as bytes is as good."""
    values = torch.as_tensor(numpy.array(axes.images[0].get_array()))
    return values / 255 if values.dtype == torch.uint8 else values.float()


def _upright(axes):
    """True if the first row of the image that axes show is on top."""
    image = axes.images[0]
    _, _, bottom, top = image.get_extent()
    first, last = (top, bottom) if image.origin == "upper" else (bottom, top)
    (_, first), (_, last) = axes.transData.transform([(0, first), (0, last)])
    return bool(first > last)


def _title(axes):
    return "".join(axes.get_title(loc) for loc in ("left", "center", "right"))


def _font(axes):
    """Points of the largest title of axes."""
    titles = (axes.title, axes._left_title, axes._right_title)
    return max((title.get_fontsize() for title in titles if title.get_text()), default=0)


def _has_ticks(axes):
    if not (axes.axison and axes.get_visible()):
        return False
    ticks = [tick for way in (axes.xaxis, axes.yaxis) if way.get_visible() for tick in way.get_major_ticks()]
    return any(part.get_visible() for t in ticks for part in (t.tick1line, t.tick2line, t.label1, t.label2))


@exercise(UNIT)
def batch_grid(answer, device, seed):
    """The figure, looked at axes by axes."""
    before = plt.get_fignums()
    warnings.simplefilter("ignore", DeprecationWarning)  # numpy's, of tensors that matplotlib is given as they are
    try:
        yield from _facts_of_grid(answer, device, torch.Generator().manual_seed(seed), seed % 3, before)
    finally:
        for number in set(plt.get_fignums()) - set(before):
            plt.close(number)


def _facts_of_grid(answer, device, rng, more, left_open):
    def batch(n):
        titles = [f"{PEOPLE[i % 4].replace('_', ' ')} {i}" for i in torch.randperm(n, generator=rng).tolist()]
        return (0.1 + 0.6 * torch.rand(n, 3, 5 + more, 4, generator=rng)).to(device), titles

    def places(figure):
        return [f"row {row}, column {column}: {_title(axes)}" for row, column, axes in _cells(figure)]

    images, titles = batch(9 + more)
    figure = answer(images, titles)
    yield "returns a matplotlib Figure", "Figure" if isinstance(figure, Figure) else type(figure).__name__
    cells = _cells(figure)
    yield "each image has axes of its own", [len(axes.images) for _, _, axes in cells]
    shown = torch.stack([_pixels(axes) for _, _, axes in cells]) if cells else torch.zeros(0)
    yield "each is shown with its colours along the last axis", tuple(shown.shape)
    expected = images.permute(0, 2, 3, 1).cpu()
    yield "no image is stretched to brighter or darker", _close(shown.amax((1, 2, 3)), expected.amax((1, 2, 3)))
    yield "the values of the images, in reading order", _close(shown, expected)
    yield "no image is upside down", all(_upright(axes) for _, _, axes in cells)
    yield "no image is stretched", all(axes.get_aspect() in (1, "equal") for _, _, axes in cells)
    yield "rows and columns, and the title of each image", places(figure)
    yield "titles have at most 10 points", all(_font(axes) <= 10 for _, _, axes in cells)
    yield "no ticks", not any(_has_ticks(axes) for _, _, axes in cells)
    empty = [axes for axes in figure.axes if not axes.images]
    yield "axes without an image are off", not any(axes.axison and axes.get_visible() for axes in empty)
    wide, high = figure.get_size_inches() / (8, 2)  # by default eight columns
    yield "the figure is 1 to 2.5 inches wide a column", 1 <= wide <= 2.5
    yield "the figure is 1 to 2.5 inches high a row", 1 <= high <= 2.5
    yield "no figure is left open in pyplot", plt.get_fignums() == left_open
    images, titles = batch(4)
    yield "a last row that is full", places(answer(images, titles, columns=2))
    yield "fewer images than columns", places(answer(images[:2], titles[:2], columns=3))
    yield "a single column", places(answer(images[:2], titles[:2], columns=1))
    yield "a single image in a single column", places(answer(images[:1], titles[:1], columns=1))
    wild = (images[:2] - 0.4) * 1.8 + 0.5  # from -0.04 to 1.04
    with _Log() as log:
        shown = torch.stack([_pixels(axes) for _, _, axes in _cells(answer(wild, ["low", "high"], columns=2))])
    clamped = wild.clamp(0, 1).permute(0, 2, 3, 1).cpu()
    yield "values a hair outside are clamped, the others stay", _close(shown, clamped)
    yield "matplotlib has nothing to warn about", log.count
    for text, short in (("too few", titles[:3]), ("too many", [*titles, "more"])):
        kind, _ = _raised(lambda short=short: answer(images, short, columns=4))
        yield f"{text} titles raise ValueError", kind
    yield "a refused call leaves no figure open either", plt.get_fignums() == left_open


def _close(seen, expected):
    """True if no value is further off than the steps of bytes."""
    return seen.shape == expected.shape and bool(((seen - expected).abs() <= 1.01 / 255).all())


@exercise(UNIT, apart=True)
def batch_plan(answer, device, seed):
    """The plan, and what a real loader does."""
    size, workers = 3 + seed % 3, 2 + seed % 2
    n = size * (2 * workers + 1)

    def pairs(*args, **kwargs):
        return [(worker, list(batch)) for worker, batch in answer(*args, **kwargs)]

    def indices(*args, **kwargs):
        return [batch for _, batch in pairs(*args, **kwargs)]

    def builders(*args, **kwargs):
        return [worker for worker, _ in pairs(*args, **kwargs)]

    plan = answer(n, size, workers)
    yield "returns a list", type(plan).__name__
    form = {"lengths": sorted({len(pair) for pair in plan}), "first of the pair": type(plan[0][0]).__name__}
    yield "of pairs (worker, indices)", form
    yield "as many pairs as batches", len(plan)
    yield "the indices of each batch", indices(n, size, workers)
    yield "the worker of each batch", builders(n, size, workers)
    yield "a last batch that is not full", indices(n - 1, size, workers)
    yield "a last batch of a single item: the workers", builders(n - size + 1, size, workers)
    yield "drop_last leaves out a last batch that is not full", indices(n - 1, size, workers, drop_last=True)
    yield "drop_last keeps a last batch that is full", indices(n, size, workers, drop_last=True)
    yield "without workers the main process builds all: None", builders(n, size, 0)
    yield "without workers the batches are the same", indices(n - 1, size, 0, True)
    yield "a single worker", builders(n, size, 1)
    yield "more workers than batches", builders(2 * size, size, 7)
    yield "a batch size of 1", pairs(3, 1, 2)
    yield "fewer items than a batch: one batch", pairs(size - 1, size, workers)
    yield "fewer items than a batch, drop_last: no batch", pairs(size - 1, size, workers, drop_last=True)
    yield "an empty dataset: no batch", pairs(0, size, workers)
    (real,) = _epochs(_Witness(n - 1), num_workers=workers, batch_size=size)
    real = [(batch[0, 1].item(), batch[:, 0].tolist()) for batch in real]
    yield "equal to what a real DataLoader does", pairs(n - 1, size, workers) == real


class _Witness(Dataset):
    """Item i is [i, id of the worker]."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor([i, get_worker_info().id])


@exercise(UNIT)
def WorkerWitness(answer, device, seed):
    """The witness, asked in the main process and in workers."""
    n, size = 9 + seed % 4, 2 + seed % 2
    main = os.getpid()
    dataset = answer(n)
    yield "its length is n", len(dataset)
    item = dataset[n - 1]
    yield "an item is an int64 tensor of 3 numbers", _kind(item)
    yield "the first number of item i is i", [dataset[i][0].item() for i in range(n)]
    yield "in the main process the worker's id is -1", item[1].item()
    yield "in the main process, the main process's id", item[2].item() == main
    (batches,) = _epochs(dataset, num_workers=0, batch_size=size)
    yield "a loader without workers: who makes each batch", [batch[:, 1].tolist() for batch in batches]
    yield "a loader without workers: all in the main process", all(bool((b[:, 2] == main).all()) for b in batches)
    processes = torch.zeros(2, dtype=torch.int64).share_memory_()

    def report(worker_id):
        processes[worker_id] = os.getpid()

    (batches,) = _epochs(dataset, batch_size=size, worker_init_fn=report)
    items = torch.cat(batches)
    yield "two workers: the items come in order", items[:, 0]
    yield "two workers: who makes each batch", [batch[:, 1].tolist() for batch in batches]
    yield "two workers: no item is made in the main process", not (items[:, 2] == main).any()
    yield "two workers are two processes", len(items[:, 2].unique())
    yield "the id of the process is that of the worker", torch.equal(items[:, 2], processes[items[:, 1]])


@exercise(UNIT)
def heavy_transform(answer, device, seed):
    """Pictures after the transform, from the same torch seeds."""
    rng = torch.Generator().manual_seed(seed)
    picture = _picture(rng, 44 + seed % 5, 60)
    white = Image.new("RGB", picture.size, "white")
    given = picture.tobytes()
    transform = answer()

    def seen(image, torch_seed):
        torch.manual_seed(1000 * seed + torch_seed)
        return transform(image)

    def landing(image):
        lit = (image >= (image.min() + image.max()) / 2).all(0)
        row, column = lit.nonzero().double().mean(0).tolist()
        return {"share of the frame": lit.double().mean().item(), "row of its middle": row, "column": column}

    yield "returns a callable", callable(transform)
    first = seen(picture, 0)
    yield "makes a float32 tensor (3, H, W) of an image", _kind(first)
    many = torch.stack([seen(picture, i) for i in range(8)])
    yield "all values lie from 0 to 1", bool(((many >= 0) & (many <= 1)).all())
    yield "the same torch seed gives the same picture", torch.equal(first, seen(picture, 0))
    yield "another torch seed gives another", not torch.equal(first, many[1])
    torch.manual_seed(seed)
    yield "so does the next call", not torch.equal(transform(picture), transform(picture))
    before = _random_state()[1:]
    seen(picture, 1)
    yield "numpy's and Python's random numbers are not touched", _random_state()[1:] == before
    numpy.random.seed(seed + 1)
    random.seed(seed + 1)
    yield "nor do they matter", torch.equal(first, seen(picture, 0))
    yield "the image itself stays as it was", picture.tobytes() == given
    yield "where a white picture lands", [landing(seen(white, i)) for i in range(8)]
    grey = Image.new("RGB", picture.size, (90, 130, 60))
    yield "the colours of a picture of one colour", [seen(grey, i).amax((1, 2)) for i in range(8)]
    yield "eight pictures", many
    yield "can be pickled", _can_be_pickled(transform)


class _Drawing(Dataset):
    """Item i is [id of the worker, a draw of the dataset's Generator]; an rng that is no Generator draws -1."""

    def __init__(self, n):
        self.n, self.rng = n, numpy.random.default_rng(20260101)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        draw = self.rng.random() if isinstance(self.rng, numpy.random.Generator) else -1.0
        return torch.tensor([get_worker_info().id, draw], dtype=torch.float64)


@exercise(UNIT, changes_inputs=True)
def seed_worker(answer, device, seed):
    """The numbers that two workers draw in two epochs."""
    n = 12 + 4 * (seed % 3)

    def draws(loader_seed, epochs=1):
        """For each epoch the draws of worker 0 and of worker 1."""
        generator = torch.Generator().manual_seed(loader_seed)
        passes = _epochs(_Drawing(n), epochs, batch_size=2, worker_init_fn=answer, generator=generator)
        items = [torch.cat(batches) for batches in passes]
        return [[x[x[:, 0] == worker, 1].tolist() for worker in (0, 1)] for x in items]

    before = _random_state()
    result = answer(0)
    yield "in the main process: does nothing, returns None", type(result).__name__
    yield "and leaves the random numbers of the main process", _random_state() == before
    (first, second), (again,), (other,) = draws(seed, 2), draws(seed), draws(seed + 1)
    everything = [x for epoch in (first, second, again, other) for worker in epoch for x in worker]
    yield "rng is a numpy Generator in each worker", min(everything) >= 0
    start = _Drawing(n).rng.random(n).tolist()
    yield "the rng that was copied is replaced in each worker", not {first[0][0], first[1][0]} & set(start)
    yield "a worker does not repeat itself", len(set(first[0])) == len(first[0])
    yield "the two workers draw different numbers", not set(first[0]) & set(first[1])
    yield "the second epoch does not repeat the first", not set(sum(first, [])) & set(sum(second, []))
    yield "the same generator of the loader, the same numbers", again == first
    yield "another generator of the loader, other numbers", not set(sum(other, [])) & set(sum(first, []))


class _Asked(Dataset):
    """Item i is `ask(i)`, an int, made wherever the loader has it made."""

    def __init__(self, ask, n):
        self.ask, self.n = ask, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor(self.ask(i))


@contextlib.contextmanager
def _watched_hash():
    """A list that gets every text, or tuple with a text in it, that Python's `hash` is asked for in the block."""
    texts, original = [], builtins.hash

    def watched(value):
        parts = value if isinstance(value, tuple) else (value,)
        texts.extend(part for part in parts if isinstance(part, (str, bytes)))
        return original(value)

    with mock.patch.object(builtins, "hash", watched):
        yield texts


@exercise(UNIT)
def sample_seed(answer, device, seed):
    """Laws of a good hash of three numbers."""
    small = list(itertools.product(range(seed, seed + 10), range(12), range(12)))
    large = list(itertools.product((0, *(10**k for k in range(10)), 2**10, 2**16, 2**20), repeat=3))
    large += itertools.product((2**31, 2**31 + 1, 2**32 - 1), repeat=3)

    value = answer(seed, 2, 3)
    yield "returns an int", type(value).__name__
    with _watched_hash() as texts:
        again = answer(seed, 2, 3)
    yield "does not use Python's hash of a text, another in each process", not texts
    yield "the same three numbers give the same seed", again == value
    before = _random_state()
    answer(seed, 5, 5)
    untouched = _random_state() == before
    torch.manual_seed(seed + 1)
    random.seed(seed + 1)
    numpy.random.seed(seed + 1)
    yield "whatever was drawn before", answer(seed, 2, 3) == value
    yield "the global random numbers stay as they were", untouched
    some, all_large = [answer(*triple) for triple in small], [answer(*triple) for triple in large]
    yield "lies from 0 to 2**63 - 1", 0 <= min(some + all_large) and max(some + all_large) < 2**63
    yield "more than 32 bits are used", max(some + all_large) >= 2**32
    (batches,) = _epochs(_Asked(lambda i: answer(seed, 1, i), 8), batch_size=2)
    asked = torch.cat(batches).tolist()
    yield "is the same in a worker", asked == [answer(seed, 1, i) for i in range(8)]
    for text, place in (("index", 2), ("epoch", 1), ("seed", 0)):
        triples = [tuple(k if i == place else 1 for i in range(3)) for k in range(40)]
        yield f"another {text}, another seed", len({answer(*triple) for triple in triples})
    yield "different triples of small numbers give different seeds", len(set(some))
    yield "different triples of large numbers too", len(set(all_large))
    epochs = [answer(seed, epoch, index) for epoch in (0, 1) for index in range(1500)]
    yield "two epochs of 1500 images have 3000 seeds", len(set(epochs))
    # a bit that changes in half of 300 cases lies with nine deviations of 0.029 between 0.24 and 0.76
    for text, place in (("index", 2), ("epoch", 1), ("seed", 0)):
        neighbours = [(t, tuple(x + (i == place) for i, x in enumerate(t))) for t in small[:300]]
        changed = [answer(*t) ^ answer(*u) for t, u in neighbours]
        shares = [sum(c >> bit & 1 for c in changed) / len(changed) for bit in range(63)]
        yield f"the next {text} changes about half of the bits", abs(sum(shares) / 63 - 0.5) < 0.05
        yield f"the next {text} may change each of the 63 bits", all(0.24 < share < 0.76 for share in shares)


LONG = 200  # batches of a loader that nobody should come to the end of


def _form(tensor):
    """What a tensor is, without its values."""
    form = {name: getattr(tensor, name, None) for name in ("dtype", "shape")}
    return {"type": type(tensor).__name__, **form, "device": getattr(getattr(tensor, "device", None), "type", None)}


def _error(call, *args, **options):
    """(name, message) of the exception that a call raises; ("no error", "") if it raises none."""
    try:
        call(*args, **options)
    except Exception as error:
        return type(error).__name__, str(error)
    return "no error", ""


def _names_both(message, asked, found):
    return {str(asked), str(found)} <= set(re.findall(r"\d+", message))


class _Machine:
    """A loader, its workers, a GPU and a clock in one, without real time: each step has a cost and is written down.

    Args: seconds that a step costs in the first pass, twice as many in the second, three times in the third: `start`
        of the workers, each `batch`, what it leaves `queued` on the GPU; `waiting` is queued from the beginning.
        ends: {number of a pass: batches that the loader has in it}; LONG in all others.
    """

    def __init__(self, start=0.0, batch=0.0, queued=0.0, waiting=0.0, ends=()):
        self.start, self.batch, self.queued = start, batch, queued
        self.waiting, self.ends = waiting, dict(ends)
        self.now, self.passes, self.events = 1000.0, 0, []

    def clock(self):
        self.events.append("clock")
        return self.now

    def synchronize(self):
        self.events.append("synchronize")
        self.now, self.waiting = self.now + self.waiting, 0.0

    def __iter__(self):
        self.events.append("iter")
        self.passes += 1
        self.now += self.start * self.passes
        return _Batches(self, self.passes)

    def drawn(self):
        """How many batches were drawn in each pass."""
        passes = " ".join(self.events).split("iter")[1:]
        return {f"pass {i}": steps.count("batch") for i, steps in enumerate(passes, 1)}


class _Batches:
    """One pass over a _Machine."""

    def __init__(self, machine, number):
        self.machine, self.number, self.left = machine, number, machine.ends.get(number, LONG)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        self.machine.events.append("batch")
        self.machine.now += self.machine.batch * self.number
        self.machine.waiting += self.machine.queued * self.number
        return self.number


@exercise(UNIT)
def seconds_per_pass(answer, device, seed):
    """Passes timed by a clock that the loader moves."""
    n, repeats = 6 + seed % 5, 3 + seed % 3
    machine = _Machine(batch=0.25)
    seconds = answer(machine, n, repeats, 2, None, machine.clock)
    yield "returns a float64 tensor, one value for each pass that counts", _form(seconds)
    yield "iter(loader) is called once in each pass, also to warm up", machine.passes
    yield "every pass draws n_batches batches, not one more", machine.drawn()
    yield "the seconds of the passes, the two to warm up left out", seconds

    def measured(warmup=1, synchronize=True, **costs):
        machine = _Machine(**costs)
        return answer(machine, n, repeats, warmup, machine.synchronize if synchronize else None, machine.clock)

    yield "without warm-up every pass counts", measured(warmup=0, batch=0.5)
    yield "the start of the workers is inside the time", measured(start=2.0)
    yield "with synchronize: work that the pass left queued is inside", measured(queued=0.125)
    yield "with synchronize: work queued before the pass is not", measured(warmup=0, waiting=50.0)
    yield "everything at once", measured(warmup=2, start=2.0, batch=0.25, queued=0.5, waiting=50.0)
    machine = _Machine()
    answer(machine, 2, 1, 0, machine.synchronize, machine.clock)
    yield "what happens in a pass of two batches, in this order", machine.events

    kind, _ = _error(answer, _Machine(ends={1: n, 2: n}), n, 1, 1, None, lambda: 0.0)
    yield "a loader that holds exactly n_batches is long enough", kind
    kind, message = _error(answer, _Machine(ends={1: n - 2}), n, 1, 0, None, lambda: 0.0)
    yield "a pass that ends early is a ValueError", kind
    yield "its message contains the number asked for and the number found", _names_both(message, n, n - 2)
    kind, message = _error(answer, _Machine(ends={1: n - 1}), n, 2, 1, None, lambda: 0.0)
    yield "so is a pass to warm up that ends one batch early", [kind, _names_both(message, n, n - 1)]
    kind, message = _error(answer, (i for i in range(n + 4)), n, 2, 0, None, lambda: 0.0)
    yield "so is a generator that the first pass has used up", [kind, _names_both(message, n, 4)]
    kind, message = _error(answer, [], n, 1, 0, None, lambda: 0.0)
    yield "so is an empty loader", [kind, _names_both(message, n, 0)]
    machine = _Machine(batch=0.5)
    yield "by default one pass to warm up and five that count", answer(machine, n, clock=machine.clock)
    yield "with the real clock all seconds are above 0", bool((answer(_Machine(), n) > 0).all())


def _random_states():
    _, keys, place, *_ = numpy.random.get_state()
    return {"Python": random.getstate(), "NumPy": (keys.tolist(), place), "torch": torch.get_rng_state().tolist()}


@exercise(UNIT)
def sweep(answer, device, seed):
    """Settings measured round by round, in orders that nobody can foresee."""
    n, rounds = 10 + seed % 3, 4 + seed % 3
    settings = [{"workers": i} for i in range(n)]  # no keys of a dictionary

    def swept(rounds, *args, given=settings, **options):
        """The answer's result, and the places of the settings in the order in which they were measured."""
        places, copy = [], list(given)

        def measure(setting):
            places.append(next((i for i, known in enumerate(given) if known is setting), -1))
            return 100.0 * places[-1] + len(places)

        return answer(measure, copy, rounds, *args, **options), places

    seconds, places = swept(rounds, seed)
    yield "returns a float64 tensor, a row for each setting, a column for each round", _form(seconds)
    yield "measure is called once for each setting and round", len(places)
    yield "it is given the settings themselves", min(places) >= 0
    orders = [places[i : i + n] for i in range(0, len(places), n)]
    yield "each round visits every setting once", {f"round {i}": sorted(order) for i, order in enumerate(orders, 1)}
    yield "rows stand in the order of settings", (seconds // 100)
    right = torch.empty(n, rounds, dtype=torch.float64)
    for called, place in enumerate(places):
        right[place, called // n] = 100.0 * place + called + 1
    yield "columns stand in the order of the rounds", torch.equal(seconds, right)
    yield "no two rounds have the same order", len(set(map(tuple, orders))) == rounds
    yield "the same seed gives the same orders", swept(rounds, seed)[1] == places
    yield "another seed gives other orders", swept(rounds, seed + 1)[1] != places

    places = swept(60, seed + 2)[1]
    orders = [places[i : i + n] for i in range(0, len(places), n)]
    early = [{order.index(place) < n // 2 for order in orders} for place in range(n)]
    yield "every setting comes early in some rounds and late in others", all(len(halves) == 2 for halves in early)
    # neighbours stay neighbours by chance in 2 (n - 1) / n places a round: 110 in all, with a deviation of about 10
    together = sum(abs(a - b) == 1 for order in orders for a, b in itertools.pairwise(order))
    turned = sum(order == before[::-1] for before, order in itertools.pairwise(orders))
    yield "an order is shuffled, not turned or read backwards", together < 190 and turned < 10
    # by chance a setting has not yet come right after another one in less than a hundredth of all pairs
    followed = {pair for order in orders for pair in itertools.pairwise(order)}
    yield "any setting may come right after any other", len(followed) > 0.9 * n * (n - 1)
    before = _random_states()
    swept(rounds, seed)
    yield (
        "global random numbers stay as they were",
        {name: before[name] == now for name, now in _random_states().items()},
    )
    given = list(settings)
    answer(lambda setting: 1.0, given, 3, seed)
    yield "the list of settings stays as it was", given == settings
    calls = itertools.count()
    twins = answer(lambda setting: float(next(calls) // 4), [2, 2, [], []], 5, seed)
    yield "equal settings have rows of their own", twins
    yield "settings can be tensors", swept(2, seed, given=[torch.ones(2), torch.ones(2), torch.zeros(2)])[0] // 100
    yield "one setting", swept(rounds, seed, given=settings[:1])[0]
    yield "one round", swept(1, seed)[0] // 100
    places = []
    result = answer(lambda setting: float(places.append(setting["workers"]) or 1), settings)
    yield "by default five rounds", result.shape
    yield "by default seed 0", places == swept(5, 0)[1]


@exercise(UNIT)
def worker_plot(answer, device, seed):
    """An error bar for each number of workers, read back from the figure."""
    rng = torch.Generator().manual_seed(seed)
    workers = [0, 1, 2, 3 + seed % 2, 8, 16 + seed % 5]
    seconds = 3.0 + torch.rand(len(workers), 5 + seed % 3, generator=rng, dtype=torch.float64)
    seconds += torch.arange(len(workers)).flip(0)[:, None]

    theirs, opened = plt.figure(), plt.get_fignums()
    try:
        figure = answer(list(workers), seconds)
        left = plt.get_fignums()
    finally:
        for number in plt.get_fignums():
            if number not in opened[:-1]:
                plt.close(number)
    yield "returns a matplotlib Figure", "Figure" if isinstance(figure, Figure) else type(figure).__name__
    yield "it is a new one, and one that others have open stays empty", figure is not theirs and not theirs.axes
    yield "the new one is closed in pyplot", not set(left) - set(opened)
    yield "those of others stay open", set(opened) <= set(left)
    yield "there is one pair of axes", len(figure.axes)
    found = _errorbars(figure.axes[0])
    yield "drawn by one call of errorbar", len(found)
    shown = _read(found[0])
    yield "x is the number of workers", shown["x"]
    yield "and the axes are linear", {"x axis": figure.axes[0].get_xscale(), "y axis": figure.axes[0].get_yscale()}
    named = [f"{w} workers" for w in workers]
    yield "y is the mean over the passes", dict(zip(named, shown["y"], strict=False))
    yield "there are bars", len(shown["bars"])
    ends = [{"lower end": low, "upper end": high} for low, high in shown["bars"]]
    yield "bars reach one sample standard deviation (n - 1) down and up", dict(zip(named, ends, strict=False))
    yield "the bars have caps", bool(shown["caps"])
    ax = figure.axes[0]
    yield "the x label contains the word workers", "workers" in ax.get_xlabel().lower()
    words = set(re.findall(r"[a-zµ]+", ax.get_ylabel().lower()))
    units = {"s", "sec", "secs", "second", "seconds"}
    yield "the y label names the unit, s", bool(words & units)
    yield "the y label says what is measured, too", bool(words - units)
    yield "the y axis starts at 0", float(ax.get_ylim()[0])
    yield "the y axis shows the bars to their ends", bool(ax.get_ylim()[1] >= max(high for _, high in shown["bars"]))
    yield "the x axis has ticks at the numbers of workers and nowhere else", sorted(map(float, ax.get_xticks()))

    wide = torch.tensor([[0.1, 0.2, 3.0], [0.4, 0.5, 0.9]], dtype=torch.float64)
    figure = answer([4, 1], wide)
    plt.close(figure)
    ax = figure.axes[0]
    shown = _read(_errorbars(ax)[0])
    yield "three passes, workers in another order: the ends of the bars", [list(pair) for pair in shown["bars"]]
    yield "and a y axis from 0, though a bar reaches below", float(ax.get_ylim()[0])


def _errorbars(ax):
    return [c for c in ax.containers if isinstance(c, ErrorbarContainer)]


def _read(container):
    """What a drawn errorbar says: x, y, [(lower end, upper end)] of its bars, how many lines of caps."""
    line, caps, collections = container
    bars = [[tuple(map(float, point)) for point in segment] for c in collections[:1] for segment in c.get_segments()]
    x, y = (line.get_xdata(orig=False), line.get_ydata(orig=False)) if line else _middles(bars)
    ends = [(low[1], high[1]) for low, high in bars]
    return {"x": list(map(float, x)), "y": list(map(float, y)), "bars": ends, "caps": len(caps)}


def _middles(bars):
    """Where the points lie if errorbar was told to draw none."""
    return [low[0] for low, _ in bars], [(low[1] + high[1]) / 2 for low, high in bars]


@exercise(UNIT, apart=True)
def predict_seconds(answer, device, seed):
    """The model: a line in 1 / w over a floor."""
    work, overhead, floor = 0.3 + 0.01 * (seed % 7), 0.02 + 0.001 * (seed % 5), 0.07
    workers = [1, 2, 3, 5, 8, 16]
    yield (
        "returns a float64 tensor, one value for each number of workers",
        _form(answer(workers, floor, work, overhead)),
    )
    yield "the work alone is divided among the workers", answer(workers, 0.0, work, 0.0)
    yield "the overhead is added, whatever the number of workers", answer(workers, 0.0, work, overhead)
    yield "with a floor", answer(workers, floor, work, overhead)
    yield "a floor above everything", answer(workers, 10.0, work, overhead)
    yield "a single number of workers", answer([4], floor, work, overhead)
    for dtype in (torch.int64, torch.float32):
        given = torch.tensor(workers[::-1], dtype=dtype, device=device)
        yield f"a tensor, {str(dtype)[6:]}, in another order", answer(given, floor, work, overhead)


def _kinked(workers, floor, work, overhead, noise=0.0, rng=None):
    """Seconds a batch by the model, with noise in per cent of each value."""
    seconds = torch.tensor([max(floor, work / w + overhead) for w in workers], dtype=torch.float64)
    return (
        seconds * (1 + noise / 100 * torch.randn(len(workers), generator=rng, dtype=torch.float64))
        if noise
        else seconds
    )


def _model_at(workers, work, overhead, share):
    """Seconds on a line, the last one raised so that the best line misses by `share` of the sum of the squares."""
    seconds = _kinked(workers, 0.0, work, overhead)
    x = 1 / torch.tensor(workers, dtype=torch.float64)
    apart = x - x.mean()
    leverage = 1 / len(x) + apart[-1] ** 2 / apart.square().sum()
    seconds[-1] += (share * seconds.square().sum() / (1 - leverage)).sqrt()
    return seconds


def _named(model):
    """What came back, with a name for each place."""
    return dict(zip(("floor", "work", "overhead"), model, strict=False))


@exercise(UNIT, apart=True)
def fit_workers(answer, device, seed):
    """The model recovered from exact seconds, and fitted to noisy ones."""
    rng = torch.Generator().manual_seed(seed)
    work, overhead = 0.4 + 0.01 * (seed % 9), 0.03 + 0.001 * (seed % 7)
    workers = [1, 2, 3, 4, 6, 8, 12, 16]

    def fitted(*model, noise=0.0, workers=workers):
        return _named(answer(list(workers), _kinked(workers, *model, noise, rng)))

    model = answer(list(workers), _kinked(workers, 0.0, work, overhead))
    yield "returns three Python floats", [type(value).__name__ for value in model]
    yield "exact seconds on the line: no floor, it is 0.0", _named(model)
    yield "exact seconds, the last one on a floor", fitted(work / 13 + overhead, work, overhead)
    yield "exact seconds, the last four on a floor", fitted(work / 5 + overhead, work, overhead)
    yield "exact seconds, all but two on a floor", fitted(work / 2.5 + overhead, work, overhead)
    yield "the line meets the floor exactly at 8 workers", fitted(work / 8 + overhead, work, overhead)
    yield "without work all seconds are overhead, not floor", fitted(0.0, 0.0, overhead)
    yield "an overhead below 0 is returned as it is", fitted(0.0, work, -0.02)
    yield "a time that rises with the workers has work below 0", fitted(0.0, -0.1, 0.5)
    yield "three points", fitted(work / 2.5 + overhead, work, overhead, workers=[2, 4, 9])
    for unit, scale in (("seconds", 1.0), ("microseconds", 1e6), ("hours", 1 / 3600)):
        raised = [
            _named(answer(list(workers), scale * _model_at(workers, work, overhead, by))) for by in (0.7e-12, 1.4e-12)
        ]
        yield f"a floor that gains less than the allowance, in {unit}", raised[0]
        yield f"a floor that gains a little more, in {unit}", raised[1]
    yield "milliseconds give a thousand times the numbers", fitted(*(1000 * x for x in (work / 5, work, overhead)))
    exact = _kinked(workers, 0.0, work, overhead)
    yield "float32 seconds will do", _named(answer(list(workers), exact.float()))
    for noise in (3, 10, 30):
        for where, floor in (
            ("no floor", 0.0),
            ("a floor from 5 on", work / 5 + overhead),
            ("from 2 on", work + overhead),
        ):
            for again in ("", ", other seconds"):
                yield f"noise of {noise} %, {where}{again}", fitted(floor, work, overhead, noise=noise)
    for points in (3, 4, 5, 12):
        few = sorted(random.Random(seed + points).sample(range(1, 33), points))
        yield f"noisy, {points} points", fitted(0.09, work, overhead, noise=10, workers=few)


@exercise(UNIT, apart=True)
def choose_workers(answer, device, seed):
    """The fewest that are nearly the best; seconds are halves and quarters, so that limits are met exactly."""
    work = 8.0 * (1 + seed % 3)
    line, flat, powers = (0.0, work, 0.0), (work / 4, work, 0.0), [1, 2, 4, 8, 16]
    chosen = answer(flat, 10 * work, powers)
    yield "returns a whole number", type(chosen).__name__
    yield "on the floor more workers gain nothing: take the fewest there", chosen
    yield "above the floor the best is the one with the most workers", answer(line, 10 * work, powers)
    yield "candidates in any order", answer(flat, 10 * work, [16, 2, 8, 4, 1])
    yield (
        "the overhead counts: 4 workers are nearly as good as 16",
        answer((0.0, work, 4 * work), 10 * work, powers, 0.05),
    )
    yield "slack of a half", answer((work * 3 / 16, work, 0.0), 10 * work, [1, 2, 4, 8], 0.5)
    yield "a prediction that meets the limit exactly is near enough", answer(line, 10 * work, [8, 6, 4], 1.0)
    yield "one just above the limit is not", answer(line, 10 * work, [8, 6, 4], 0.99)
    yield "without slack only equals of the best", answer(flat, 10 * work, powers, slack=0.0)
    tiny = tuple(x / 1000 for x in line)
    yield "slack is a share, not seconds", answer(tiny, work, powers)
    yield "slack is a share of the best, not of 0 workers", answer(line, 100 * work, [0, *powers], 0.05)
    yield "0 workers, when the main process alone is the fastest", answer(flat, work / 8, [0, *powers])
    yield "0 workers, when the main process is nearly as fast", answer(flat, work / 4 * 1.03, [4, 2, 0, 1])
    yield "0 workers are the slowest: not chosen", answer(flat, work, [0, *powers])
    yield "0 is no candidate: its seconds play no part", answer(line, work / 1000, powers)
    yield "0 is the only candidate", answer(flat, 10 * work, [0])
    yield "by default 0.05: a loss of 4 % is near enough", answer((0.0, 0.96, 0.48), 10.0, [13, 16, 12])
    yield "by default 0.05: one of 6 % is not", answer((0.0, 1.0, 0.0), 10.0, [100, 94])
    kind, message = _error(answer, flat, work, [])
    yield "no candidates: a ValueError", kind
    yield "its message contains the word candidates", "candidates" in message.lower()


def _timings():
    """{what it does: a timing function}, more or less faithful to what it is asked for."""

    def exact(loader, n):
        batches = iter(loader)
        for _ in range(n):
            next(batches)

    def while_loop(loader, n):
        batches, i = iter(loader), 0
        while i < n:
            next(batches)
            i += 1

    def breaks_late(loader, n):
        for i, _ in enumerate(loader):
            if i == n:
                break

    def breaks_later(loader, n):
        for i, _ in enumerate(loader):
            if i > n:
                break

    def one_short(loader, n):
        for _ in zip(range(n - 1), loader, strict=False):
            pass

    def passes(one_pass, count):
        return lambda loader, n: [one_pass(loader, n) for _ in range(count)]

    return {
        "one pass that is exact": exact,
        "an exact one that uses islice": lambda loader, n: list(itertools.islice(loader, n)),
        "an exact one that uses while": while_loop,
        "one batch too many": breaks_late,
        "one batch too many, of zip": lambda loader, n: list(zip(loader, range(n), strict=False)),
        "two batches too many": breaks_later,
        "one batch too few": one_short,
        "no batch at all": lambda loader, n: iter(loader),
        "five exact passes": passes(exact, 5),
        "three passes, each two batches too many": passes(breaks_later, 3),
        "twenty times as many: your loader never ends": lambda loader, n: list(itertools.islice(loader, 20 * n)),
        "two iterators in turn": lambda loader, n: list(zip(range(n), loader, loader, strict=False)),
    }


@exercise(UNIT, apart=True)
def batches_drawn(answer, device, seed):
    """The learner's count for timing functions that we know."""
    n, asked = 10 + seed % 7, []
    drawn = answer(lambda loader, n_batches: asked.append(n_batches), n)
    yield "returns a whole number", type(drawn).__name__
    yield "calls timing once, with the loader and n_batches", asked
    exact = _timings()["one pass that is exact"]
    yield "the same timing twice: each call starts from 0", [answer(exact, n), answer(exact, n)]
    for text, timing in _timings().items():
        yield text, answer(timing, n)
    yield "asked for a single batch: two batches too many", answer(_timings()["two batches too many"], 1)
    yield "asked for a single batch: an exact one", answer(exact, 1)

    def fails(loader, n_batches):
        next(iter(loader))
        raise ZeroDivisionError("of the timing function")

    yield "an exception of timing is not caught", _error(answer, fails, n)[0]


@exercise(UNIT, apart=True)
def timing_line(answer, device, seed):
    """The line for calm, scattered, single and fast passes."""
    rng = torch.Generator().manual_seed(seed)
    n, size = 50 + seed % 9, 16 + seed % 4
    equal = torch.full((4,), 2.5, dtype=torch.float64)
    yield "returns a string", type(answer(equal, n, size)).__name__
    yield "four passes that took equally long", answer(equal, n, size)
    seconds = 3 + torch.rand(5, generator=rng, dtype=torch.float64)
    line = answer(seconds, n, size)
    yield "five passes: the mean", line.partition(" ")[0]
    yield "five passes: the sample standard deviation, divided by n - 1", line.partition("±")[2].split(" ")[:2]
    yield "five passes: the whole line", line
    wide = torch.tensor([0.5, 4.0, 1.0], dtype=torch.float64)
    yield "the rate is that of the mean seconds", answer(wide, n, size)
    yield "thousands have a comma in the rate, and none in the batches", answer(wide / 64, 1000 + n, 512)
    yield "a slow loader: the rate has no decimals", answer(100 * seconds, n, size)
    yield "two passes", answer(seconds[:2], n, size)
    yield "a single pass has no spread", answer(seconds[:1], n, size)


TRUE = "ADFH"
TOPICS = {
    "A": "who the main process is",
    "B": "what the processes share",
    "C": "who builds a batch",
    "D": "how many messages, and where the pixels go",
    "E": "when workers pay",
    "F": "what os.cpu_count() counts",
    "G": "what pin_memory is for",
    "H": "how many batches are under way",
}


@exercise(UNIT, apart=True)
def judge(answer, device, seed):
    """The verdicts one by one, up to the first that is wrong: that one alone decides what is said about it."""
    verdicts = answer()
    yield "returns a dictionary", "dict" if isinstance(verdicts, dict) else type(verdicts).__name__
    yield "with the letters A to H", sorted(map(str, verdicts))
    yield "each has True or False", {letter: type(verdicts[letter]).__name__ for letter in TOPICS}
    for letter, topic in TOPICS.items():
        yield f"{letter}: {topic}", verdicts[letter]
        if verdicts[letter] != (letter in TRUE):
            return


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
            for tensor in [t for t in _tensors(made + written) if t.nbytes >= self.smallest]:
                self.bytes += tensor.nbytes
                self.all_shared &= tensor.is_shared()
        return result


def _tensors(value):
    """All tensors in nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def _in_worker(function):
    """What `function()` returns in a forked worker of a DataLoader: plain data; an exception is raised here."""

    def run(_):
        try:
            return function(), None
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"

    (((value, error),),) = _epochs([0], num_workers=1, collate_fn=run)
    if error:
        raise RuntimeError(f"in a worker process, {error}")
    return value


@exercise(UNIT)
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

    def in_worker():
        batches = [watched(samples), watched(make(n, permuted=True)), watched(make(1))]
        return [batch | {"images": batch["images"].tolist()} for batch in batches]

    there = _in_worker(in_worker)
    yield "in a worker the batch lies in shared memory", all(batch["shared"] for batch in there)
    yield "in a worker: the pixels", [torch.tensor(batch["images"]) for batch in there]
    yield "in a worker the pixels are written into shared memory at once", all(batch["at once"] for batch in there)
    yield "in a worker: how often the memory of the batch is written", [batch["times"] for batch in there]
    yield "in a worker: bytes of memory for each value of the batch", [batch["memory"] for batch in there]


@exercise(UNIT)
def loader_options(answer, device, seed):
    """The options, as a real DataLoader understands them."""
    workers, ahead = 2 + seed % 3, 3 + seed % 4

    def understood(*args, **kwargs):
        """The options as attributes of a loader made with them, or how DataLoader refuses them."""
        names = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # more workers than this machine has cores
                loader = DataLoader([0], **answer(*args, **kwargs))
        except (TypeError, ValueError) as error:
            return dict.fromkeys((*names, "start method"), f"refused by DataLoader: {error}")
        context = loader.multiprocessing_context
        seen = {name: getattr(loader, name) for name in names}
        return seen | {"start method": context and context.get_start_method()}

    options = answer(workers, "cpu")
    known = {"num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "multiprocessing_context"}
    yield "returns a dictionary", type(options).__name__
    yield "no options beside the five", sorted(set(options) - known)
    each = {f"num_workers={n}": understood(n, "cpu") for n in (0, 1, workers)}
    yield "num_workers", {text: seen["num_workers"] for text, seen in each.items()}
    yield "persistent_workers, where there are workers", {t: s["persistent_workers"] for t, s in each.items()}
    yield "prefetch_factor, where there are workers", {t: s["prefetch_factor"] for t, s in each.items()}
    yield "the start method is fork, where there are workers", {t: s["start method"] for t, s in each.items()}
    pinned = {d: understood(workers, d)["pin_memory"] for d in ("cpu", "cuda", "cuda:1")}
    yield "pin_memory: for a CUDA device only", pinned
    pinned = {repr(d): understood(workers, d)["pin_memory"] for d in map(torch.device, ("cuda:0", "cuda", "cpu"))}
    yield "pin_memory: the device as a torch.device", pinned
    yield "pin_memory: no CUDA device either", {d: understood(workers, d)["pin_memory"] for d in ("mps", "meta")}
    yield "without workers, a CUDA device", understood(0, "cuda")
    yield "prefetch_factor as given", [understood(1, "cpu", f)["prefetch_factor"] for f in (1, 2, ahead)]
    yield "prefetch_factor by name", understood(workers, "cpu", prefetch_factor=ahead)["prefetch_factor"]
    yield "prefetch_factor is given, but there are no workers", understood(0, "cpu", ahead)


class _Mover(torch.Tensor):
    """A tensor that writes down how it is moved: one bool a move, True for non_blocking."""

    moves = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in ("to", "cuda", "copy_"):
            cls.moves.append(bool(kwargs.get("non_blocking")) or any(arg is True for arg in args))
        return super().__torch_function__(func, types, args, kwargs)


_Faces = collections.namedtuple("_Faces", "images labels")


class _Sheet:
    """Something that is no tensor and has a method `to` all the same."""

    def to(self, *args, **kwargs):
        return "moved"


def _skeleton(batch):
    """The containers and tensors of `batch` as nested names and shapes."""
    if isinstance(batch, torch.Tensor):
        return f"tensor {tuple(batch.shape)} {batch.dtype}"
    if isinstance(batch, dict):
        return {"a": type(batch).__name__, "of": [(f"key {key!r}", _skeleton(value)) for key, value in batch.items()]}
    if isinstance(batch, (list, tuple)):
        return {"a": type(batch).__name__, "of": [_skeleton(item) for item in batch]}
    return type(batch).__name__


def _leaves(batch):
    """Everything in `batch` that is no container, in order."""
    if isinstance(batch, (list, tuple, dict)):
        items = batch.values() if isinstance(batch, dict) else batch
        return [leaf for item in items for leaf in _leaves(item)]
    return [batch]


@exercise(UNIT)
def to_device(answer, device, seed):
    """Structures of tensors, moved; without a GPU the "meta" device stands for another device."""
    rng = torch.Generator().manual_seed(seed)
    away = torch.device("meta") if device.type == "cpu" else device
    marker = object()

    def tensor(*shape):
        return torch.randn(shape, generator=rng)

    def moved(batch, target=away):
        """The skeleton of the answer and the devices of its tensors."""
        result = answer(batch, target)
        devices = {leaf.device.type for leaf in _leaves(result) if isinstance(leaf, torch.Tensor)}
        return {"structure": _skeleton(result), "devices": sorted(devices)}

    x = tensor(2 + seed % 4, 3)
    yield "a tensor", moved(x)
    yield "a tuple of two tensors", moved((x, tensor(4)))
    yield "a list stays a list", moved([tensor(2), x])
    yield "a dictionary keeps its keys", moved({"images": x, "labels": tensor(5), 3: tensor(1)})
    yield "a list in a tuple in a dictionary", moved({"pair": (x, [tensor(2), {"deep": tensor(3)}])})
    yield "a named tuple stays one", moved(_Faces(x, tensor(2)))
    yield "a named tuple in a list, and one that holds a list", moved([_Faces(x, [tensor(2), tensor(1)])])
    yield "empty containers", moved([(), [], {}])
    others = ["Ada", 3, 2.5, None, True, marker, range(3), {1, 2}, _Sheet()]
    result = answer((x, others, {"name": marker}), away)
    yield (
        "other objects come through, as the same objects",
        {
            "types": [type(leaf).__name__ for leaf in _leaves(result)[1:]],
            "same": all(a is b for a, b in zip(_leaves(result)[1:], [*others, marker], strict=False)),
        },
    )
    yield "a lone string comes through", answer("Ada", away)
    yield "the device by its name", moved([x], str(away))

    given = {"faces": [x, x], "more": {"labels": x}}
    answer(given, away)
    kept = [given["faces"][0] is x, given["faces"][1] is x, given["more"]["labels"] is x]
    yield "the containers that were given still hold their own tensors", all(kept)
    here = x.to(device)
    result = answer([here, {"again": here}, here.t()], device)
    yield "on the device already: the values", result
    yield "on the device already: no copy is made", [t.data_ptr() == here.data_ptr() for t in _leaves(result)]

    yield "gradients can flow through a move", answer([x.clone().requires_grad_()], away)[0].requires_grad
    spies = [tensor(3).as_subclass(_Mover) for _ in range(5)]
    _Mover.moves.clear()
    answer([spies[0], (spies[1], {"b": spies[2]}), _Faces(spies[3], spies[4])], away)
    seen = {"tensors moved": len(_Mover.moves), "with non_blocking=True": sum(_Mover.moves)}
    yield "every tensor is moved once, with non_blocking=True", seen
    if device.type == "cuda":
        yield "the values, after a copy from pinned memory", answer([x.pin_memory(), x], device)


class _Stream:
    """A queue of work.  `after` holds the copies that have ended before whatever is queued next begins."""

    def __init__(self, cuda, device):
        self.cuda, self.device, self.after = cuda, cuda.device_of(device), set()

    def record_event(self, event=None):
        event = event or self.cuda.Event()
        event.record(self)
        return event

    def wait_event(self, event):
        self.after |= event.after

    def wait_stream(self, stream):
        self.after |= stream.after

    def synchronize(self):
        self.cuda.stop(self.after)

    def query(self):
        return True

    def __enter__(self):
        self.block = self.cuda.stream(self)
        self.block.__enter__()
        return self

    def __exit__(self, *error):
        return self.block.__exit__(*error)


class _Event:
    """A place in a queue: the copies that have ended when it is reached."""

    def __init__(self, cuda):
        self.cuda, self.after = cuda, frozenset()

    def record(self, stream=None):
        self.after = frozenset((stream or self.cuda.current_stream()).after)

    def wait(self, stream=None):
        (stream or self.cuda.current_stream()).wait_event(self)

    def synchronize(self):
        self.cuda.stop(self.after)

    def query(self):
        return True


class _Cuda:
    """What `torch.cuda` is to a Prefetcher, for two GPUs that are not there; the first is the current one.

    Nothing runs.  Every stream knows which copies come before its next piece of work, and that is what is asked about.
    """

    def __init__(self):
        self.gpu, self.stops, self.copies = 0, 0, []
        self.default = {0: _Stream(self, 0), 1: _Stream(self, 1)}
        self.current, self.streams = dict(self.default), []

    def Stream(self, device=None, priority=0):
        self.streams.append(_Stream(self, device))
        return self.streams[-1]

    def Event(self, *args, **kwargs):
        return _Event(self)

    def device_of(self, device):
        """The torch.device meant by an index, a name, a torch.device or None (the current one)."""
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
        return torch.device("cuda", self.gpu if device.index is None else device.index)

    def current_stream(self, device=None):
        return self.current[self.device_of(device).index]

    def default_stream(self, device=None):
        return self.default[self.device_of(device).index]

    def set_stream(self, stream):
        self.gpu = stream.device.index
        self.current[self.gpu] = stream

    @contextlib.contextmanager
    def stream(self, stream):
        before = self.gpu, dict(self.current)
        if stream is not None:
            self.set_stream(stream)
        try:
            yield stream
        finally:
            self.gpu, self.current = before

    @contextlib.contextmanager
    def device(self, device):
        before, self.gpu = self.gpu, self.device_of(device).index
        try:
            yield
        finally:
            self.gpu = before

    def current_device(self):
        return self.gpu

    def is_available(self):
        return True

    def synchronize(self, device=None):
        self.stop(range(len(self.copies)))

    def stop(self, after):
        """The processor waits until the copies `after` have ended: they come before all that is queued from now on."""
        self.stops += 1
        for stream in (*self.default.values(), *self.streams):
            stream.after |= set(after)


class _Host(torch.Tensor):
    """A tensor in pinned memory, of batch number `batch`, that the _Cuda `cuda_of` copies; _Loader sets both."""

    def to(self, device=None, dtype=None, non_blocking=False, copy=False, **kwargs):
        if torch.device(device).type != "cuda":
            return super().to(device, dtype, non_blocking, copy, **kwargs)
        cuda, there = self.cuda_of, self.clone().as_subclass(_There)
        there.place, there.batch, there.non_blocking = len(cuda.copies), self.batch, bool(non_blocking)
        there.gpu = cuda.device_of(device)
        there.stream, there.marked = cuda.current_stream(there.gpu), []
        cuda.copies.append(there)
        there.stream.after.add(there.place)
        if not non_blocking:
            cuda.stop([there.place])
        return there

    def cuda(self, device=None, non_blocking=False, **kwargs):
        return self.to("cuda" if device is None else device, non_blocking=non_blocking)

    def pin_memory(self, device=None):
        return self

    def is_pinned(self, device=None):
        return True


class _There(torch.Tensor):
    """A copy on a GPU that is not there: on which stream it was queued, which streams its memory is kept for."""

    device = property(lambda self: self.gpu)
    is_cuda = True

    def record_stream(self, stream):
        self.marked.append(stream)

    def to(self, *args, **kwargs):
        return self


class _LoaderFailed(Exception):
    """An exception of a loader."""


class _Loader:
    """`n` batches of two tensors, drawn one by one and counted; each pass has values of its own."""

    def __init__(self, n, rng, kind=tuple, cuda=None, fails_at=None):
        self.n, self.kind, self.cuda, self.fails_at, self.drawn, self.passes = n, kind, cuda, fails_at, 0, 0
        self.values = torch.randn((n, 2, 3), generator=rng)

    def __len__(self):
        return self.n

    def __iter__(self):
        self.drawn, self.passes = 0, self.passes + 1
        for number, pair in enumerate(self.values * self.passes):
            if number == self.fails_at:
                raise _LoaderFailed("the loader failed")
            self.drawn += 1
            yield self.kind(self._tensor(values, number) for values in pair)

    def _tensor(self, values, number):
        tensor = values.clone()
        if self.cuda is not None:
            tensor = tensor.as_subclass(_Host)
            tensor.cuda_of, tensor.batch = self.cuda, number
        return tensor


def _values(batches):
    """The first values of each tensor of some batches."""
    return [[tensor.as_subclass(torch.Tensor).tolist() for tensor in batch] for batch in batches]


def _handed_out(prefetcher, loader, device):
    """The batches of a pass, and what held when each was handed out: name -> list, mostly of bools."""
    cuda, batches, held = loader.cuda, [], collections.defaultdict(list)
    computing = cuda.current_stream(device)
    for number, batch in enumerate(itertools.islice(prefetcher, loader.n + 2), 1):
        copies = [t for t in batch if isinstance(t, _There)]
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


@exercise(UNIT)
def Prefetcher(answer, device, seed):
    """Order of the copies, watched through a stand-in for torch.cuda; then the same loop on the device at hand."""
    rng = torch.Generator().manual_seed(seed)
    n = 4 + seed % 4
    gpu = torch.device("cuda", 0)

    def make(n=n, kind=tuple, target=gpu, **options):
        cuda = _Cuda()
        loader = _Loader(n, rng, kind, cuda, **options)
        return cuda, loader, answer(loader, target, cuda)

    cuda, loader, prefetcher = make()
    yield "its length is that of the loader", len(prefetcher)
    try:
        next(iter(prefetcher))
    except NotImplementedError:
        raise
    except (RuntimeError, AssertionError):  # what torch.cuda raises on a machine without a GPU
        pass
    yield "a side stream is made by the argument `cuda`", len(cuda.streams) > 0
    cuda, loader, prefetcher = make()
    batches, held = _handed_out(prefetcher, loader, gpu)
    main = cuda.current_stream(gpu)
    yield "as many batches as the loader has", len(batches)
    yield "the batches of the loader, in order", _values(batches)
    yield "every tensor of a batch is a copy on the device", all(held["copied"])
    yield "each tensor is copied once", len(cuda.copies)
    yield "tuples stay tuples", [type(batch).__name__ for batch in batches]
    yield "the copies are made with non_blocking=True", all(t.non_blocking for t in cuda.copies)
    yield "the copies are queued on a stream of their own", all(t.stream is not main for t in cuda.copies)
    yield "when a batch is handed out, the caller's stream is the current one", all(held["back"])
    yield "when a batch is handed out, the copy of the next one is queued", all(held["ahead"])
    yield "when a batch is handed out, no more than the next one has been drawn", all(held["no more"])
    yield "the computing stream waits for something on the side stream", bool(main.after)
    yield "the computing stream waits for the copy of its batch", all(held["waits"])
    yield "and not for the copy of the next batch", all(held["free"])
    yield "the processor waits for nothing: no synchronize", cuda.stops == 0
    yield "record_stream is called on both tensors of a batch", held["marked"]
    yield "record_stream is told the computing stream, which will read them", all(held["kept"])

    def values(loader, prefetcher):
        return _values(_handed_out(prefetcher, loader, gpu)[0])

    yield "a second pass: the batches that the loader gives then", values(loader, prefetcher)
    next(iter(prefetcher))
    yield "a pass after one that was broken off starts from the first batch", values(loader, prefetcher)
    cuda, loader, prefetcher = make(kind=list)
    yield "lists stay lists", [type(batch).__name__ for batch in _handed_out(prefetcher, loader, gpu)[0]]
    yield "a loader of one batch", values(*make(1)[1:])
    yield "an empty loader gives no batch", values(*make(0)[1:])
    yield "an exception of the loader reaches the caller", [_fails(make(fails_at=at)[2]) for at in (0, 2)]
    cuda, loader, prefetcher = make()
    with cuda.stream(_Stream(cuda, gpu)):
        held = _handed_out(prefetcher, loader, gpu)[1]
    yield (
        "a caller that computes on a stream of its own",
        {"it waits for its batch": all(held["waits"]), "the memory is kept for it": all(held["kept"])},
    )
    cuda, loader, prefetcher = make()
    other, batches = _Stream(cuda, gpu), iter(prefetcher)
    next(batches)
    with cuda.stream(other):
        batch = next(batches)
        held = [t.place in other.after and any(stream is other for stream in t.marked) for t in batch]
    yield "a caller that changes its stream in the middle of a pass", all(held)
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

    def on_cpu(n, target, kind=tuple):
        cuda, loader = _Cuda(), _Loader(n, rng, kind)
        batches = list(itertools.islice(answer(loader, target, cuda), n + 2))
        return {
            "batches": _values(batches),
            "types": sorted({type(batch).__name__ for batch in batches}),
            "devices": sorted({tensor.device.type for batch in batches for tensor in batch}),
            "streams made": len(cuda.streams),
        }

    yield "on the CPU", on_cpu(n, torch.device("cpu"))
    yield "on the CPU, by name, lists", on_cpu(n, "cpu", list)
    yield "on the CPU: one batch, and none", [on_cpu(n, "cpu") for n in (1, 0)]
    loader = _Loader(3, rng)
    prefetcher = answer(loader, "cpu")
    yield "on the CPU: two passes", [_values(itertools.islice(prefetcher, 5)) for _ in range(2)]
    yield "on the CPU: the length", len(prefetcher)
    meta = [[tensor.device.type for tensor in batch] for batch in answer(_Loader(2, rng), "meta")]
    yield 'on a device of another kind, "meta"', meta
    if device.type == "cuda":
        yield "on this GPU: sums that are computed while the next batch is copied", _sums(answer, device, rng)


def _fails(prefetcher):
    """True if a pass ends with the exception of the loader."""
    try:
        collections.deque(prefetcher, maxlen=0)
    except _LoaderFailed:
        return True
    return False


def _sums(answer, device, rng):
    """Sum of each batch, taken on the GPU behind a long computation that the next copies could overtake."""
    batches = [(torch.randint(9, (1 << 20,), generator=rng).pin_memory(),) for _ in range(8)]
    work, sums = torch.eye(2048, device=device), []
    for (values,) in answer(batches, device):
        for _ in range(10):
            work = work @ work
        sums.append(values.sum() + work[0, 1].long())
        del values
    return torch.stack(sums)
