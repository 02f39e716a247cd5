"""What the experiments of a unit take at `gpu` scale, and sizes that fit: sizes + machine -> *sizes that fit*.

The sizes of the sources suit a server. Where the disk, the memory or the GPU's memory is smaller, sizes are halved
until what they take is at most KEPT of what is free, and a sentence says so.  Bytes are computed from the sizes: on the
disk those of the files (tests/test_room.py holds the formulas against real files), in memory those of the largest
tensors, times what autograd keeps of them, and of the processes.  Minutes are guesses for one recent GPU.
"""

import math
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

KEPT = 0.8  # share of what is free that may be taken
RESOURCES = {"disk": "of the disk", "memory": "of memory", "gpu": "of the GPU's memory"}
SMALLER_DATA = {"ml-20m": "ml-1m", "ml-1m": "ml-100k"}
RATINGS = {"ml-20m": (138_493, 26_744, 20_000_263), "ml-1m": (6040, 3706, 1_000_209),
           "ml-100k": (943, 1682, 100_000), "tiny": (300, 400, 20_000)}  # users, items, ratings  # fmt: skip
FACES = {"lfw": (5749, 13_233), "tiny": (40, 240)}  # people, images: LFW itself, whose stand-in is smaller
FASHION = 31e6  # bytes of the four files of Fashion-MNIST, whose stand-in is smaller
FLOAT = 4
CONTAINER = Path("/sys/fs/cgroup")  # what limits the container that this process may run in, Linux
FACE = 3 * 250 * 250 * FLOAT  # bytes of an image of LFW as floats
IMAGE = 28 * 28 * FLOAT  # of Fashion-MNIST
PROCESS = 0.5e9  # bytes of a process with torch and a unit's checks: 0.3 to 0.46 GB on the CPU; with CUDA not measured
RANKS = 4  # of the largest experiment of unit 02 with real processes


@dataclass(frozen=True)
class Needs:
    """What a unit takes: {resource: function of its sizes -> bytes}, and minutes.

    shrinks: {resource: the sizes that get smaller where it is short}.
    """

    takes: dict[str, Callable]
    minutes: int
    shrinks: dict[str, tuple]
    only_told: tuple = ()  # resources that somebody else sees to: regression.prepare, as its file may be there


def record_bytes(rows: int, columns: int) -> int:
    """Bytes that a regression problem takes in the end: its record file, and y and w."""
    row = FLOAT * (columns + 1)
    place = 2 ** math.ceil(math.log2(row)) if row < 4096 else math.ceil(row / 4096) * 4096
    return 4096 + rows * (place + FLOAT) + FLOAT * columns


def face_bytes(people: int, images: int) -> int:
    """Bytes of a folder in LFW's layout: 13.7 kB per image, and a block per person."""
    return 13_700 * images + 4096 * people


def rating_bytes(rows: int) -> int:
    """Bytes of prepared ratings: user, item and stars have 4 bytes each, the moment has 8."""
    return 20 * rows + 2000


def trace_bytes(batch: int) -> int:
    """Bytes of the two traces of unit 01, of four batches each: 3.7 and 5.0 MB with batches of 8 and 32."""
    return 3_300_000 + 4 * batch * 14_000


def _loading(s):
    """Bytes of the batches that workers hold, three each, and of the validation images of part 7 as floats."""
    workers = min(2 * (os.cpu_count() or 1), max(1, s.images // s.batch_size // 2))
    return 3 * workers * s.batch_size * FACE + s.starved_images // 4 * FACE


def _ratings(s):
    """Bytes of who has seen what, and of an epoch with four negatives: users, items, labels, order."""
    users, items, rows = RATINGS[s.dataset]
    return users * items + 5 * rows * (8 + 8 + 4 + 8)


def _rows(s):
    return FLOAT * s.rows * (s.columns + 1)


def _largest_batch(s):
    """Numbers in the largest padded batch of unit 05."""
    cost = s.rows_of_cost * max(s.padded_lengths) * s.emb_dim
    demo = 256 * 64 * max(s.emb_dims)
    groups = s.rows_of_groups * 256 * s.u_dim
    return max(cost, demo, groups)


NEEDS = {
    "01_parallel_loading": Needs({
        "disk": lambda s: face_bytes(*FACES[s.dataset]) + trace_bytes(s.batch_size),
        "memory": lambda s: PROCESS + _loading(s),
        "gpu": lambda s: 8 * s.batch_size * 3 * 224 * 224 * FLOAT,
    }, 25, {"memory": ("batch_size", "starved_images"), "gpu": ("batch_size",)}),
    "02_data_parallel": Needs({
        "disk": lambda s: FASHION,
        "memory": lambda s: (RANKS + 1) * PROCESS + RANKS * 3 * max(s.bytes) + 4 * max(s.batches) * IMAGE,
        "gpu": lambda s: 4 * max(s.batches) * 28 * 28 * 32 * FLOAT,
    }, 30, {"memory": ("bytes", "batches"), "gpu": ("batches",)}),
    "03_large_batch": Needs({
        "disk": lambda s: rating_bytes(RATINGS[s.dataset][2]),
        "memory": lambda s: PROCESS + 2 * _ratings(s),
        "gpu": lambda s: _ratings(s) + max(s.critical_times) * s.base_batch * 6 * 200 * FLOAT,
    }, 60, {"disk": ("dataset",), "memory": ("dataset",), "gpu": ("dataset", "critical_times")}),
    "04_fast_loading": Needs({
        "disk": lambda s: record_bytes(s.rows, s.columns) + record_bytes(min(s.rows, s.rows_written), s.columns),
        "memory": lambda s: PROCESS + _rows(s),
        "gpu": lambda s: 8 * s.batch_size * s.columns * FLOAT,
    }, 60, {"memory": ("rows", "ladder"), "gpu": ("batch_size",)}, ("disk",)),
    "05_batch_grouping": Needs({
        "memory": lambda s: PROCESS + 2 * FLOAT * _largest_batch(s),  # drawn there, and moved
        "gpu": lambda s: 4 * FLOAT * _largest_batch(s),  # embedding, product, and the gradients of both
    }, 20, dict.fromkeys(("memory", "gpu"), ("padded_lengths", "rows_of_cost", "emb_dims", "rows_of_groups"))),
    "06_faster_training": Needs({
        "disk": lambda s: FASHION,
        "memory": lambda s: PROCESS + 3 * 70_000 * IMAGE,  # all images, those of a split, and a copy that changes
        "gpu": lambda s: max(6 * s.gelu_numbers * FLOAT,
                             8 * s.blocks * s.block_rows * s.block_width * FLOAT,
                             s.few_megabytes * 2**20, s.kept_budget),
    }, 45, {"gpu": ("gelu_numbers", "block_rows", "few_megabytes", "kept_budget")}),
}  # fmt: skip


def data_place() -> Path:
    """The folder of the prepared data, or the nearest one above it that exists."""
    folder = Path(os.environ.get("COURSE_DATA") or Path(__file__).parents[1] / "data").absolute()
    return next(there for there in (folder, *folder.parents) if there.exists())


def free_bytes() -> dict[str, float]:
    """{resource: bytes that are free}, as far as they can be found out."""
    found = {"disk": shutil.disk_usage(data_place()).free}
    if (memory := free_memory()) is not None:
        found["memory"] = memory
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        found["gpu"] = torch.cuda.mem_get_info()[0]
    return found


def free_memory() -> int | None:
    """Bytes of memory that are free, as the system and the container say; None where the system does not.

    What the page cache holds of files counts as free, because it is given back when it is asked for.
    """
    try:
        free = 1024 * _numbers(Path("/proc/meminfo"))["MemAvailable:"]
    except (OSError, KeyError):  # not Linux
        return None
    try:
        limit, used = (int((CONTAINER / f"memory.{name}").read_text()) for name in ("max", "current"))
        return min(free, limit - used + _numbers(CONTAINER / "memory.stat")["inactive_file"])
    except (OSError, KeyError, ValueError):  # no container, or one without a limit
        return free


def _numbers(path):
    """{first word: the number that follows it} of the lines of a file."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def fitted(unit: str, sizes: dict[str, object], free: dict[str, float]) -> tuple[dict[str, object], list[str]]:
    """(`sizes` with some of them smaller where a resource is short, sentences that say what is taken and what shrank).

    Args:
        sizes: {name: value} of the unit at `gpu` scale.
        free: bytes that are free of each of RESOURCES; one that is left out is not looked at.
    """
    if unit not in NEEDS:
        return sizes, []
    needs, small = NEEDS[unit], dict(sizes)
    asked = _takes(needs, small)
    while short := _short(needs, small, free):
        smaller = small | {name: _smaller(small[name]) for name in needs.shrinks.get(short, ())}
        if smaller == small:
            break
        small = smaller
    said = [f"{unit} at gpu scale takes up to {_listed(asked)}, and {needs.minutes} minutes, at a guess."]
    changed = [name for name in sizes if small[name] != sizes[name]]
    if changed:
        are = ", ".join(f"{name} {_shown(sizes[name])} -> {_shown(small[name])}" for name in changed)
        said.append(f"Free are {_listed(free)}, so sizes shrink: {are}; that takes {_listed(_takes(needs, small))}.")
    if short:
        said.append(f"That is still too much {RESOURCES[short]}: expect it to fail, or set COURSE_SCALE=laptop.")
    return small, said


def _takes(needs, sizes):
    return {name: of(SimpleNamespace(**sizes)) for name, of in needs.takes.items()}


def _short(needs, sizes, free):
    """The first resource of which `sizes` take too much, or None."""
    asked = {name: n for name, n in _takes(needs, sizes).items() if name not in needs.only_told}
    return next((name for name, n in asked.items() if n > KEPT * free.get(name, float("inf"))), None)


def _smaller(value):
    """The next smaller value of a size: half a number, all but the last of several, the next smaller data set."""
    if isinstance(value, str):
        return SMALLER_DATA.get(value, value)
    if isinstance(value, tuple):
        return value[:-1] if len(value) > 1 else value
    return max(1, value // 2)


def _shown(value):
    return f"{value:,}" if isinstance(value, int) else str(value)


def _listed(found):
    named = [f"{found[name] / 1e9:.1f} GB {words}" for name, words in RESOURCES.items() if name in found]
    return ", ".join(named)
