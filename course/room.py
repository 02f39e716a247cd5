"""What the experiments of a unit take at `gpu` scale, and sizes that fit: sizes + machine -> *sizes that fit*.

The sizes of the sources suit a server. Where the disk, the memory or the GPU's memory is smaller, sizes are halved
until what they take is at most KEPT of what is free, and a sentence says so.  What a unit takes is estimated from the
largest tensors of its experiments, times what autograd keeps of them; minutes are estimates for one recent GPU.
"""

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
RATINGS = {"ml-20m": (138_493, 26_744, 20e6), "ml-1m": (6040, 3706, 1e6), "ml-100k": (943, 1682, 1e5)}
FLOAT = 4
CONTAINER = Path("/sys/fs/cgroup")  # what limits the container that this process may run in, Linux


@dataclass(frozen=True)
class Needs:
    """What a unit takes: {resource: function of its sizes -> bytes}, and minutes.

    shrinks: {resource: the sizes that get smaller where it is short}.
    """

    takes: dict[str, Callable]
    minutes: int
    shrinks: dict[str, tuple]
    only_told: tuple = ()  # resources that somebody else sees to: regression.prepare, as its file may be there


def _ratings(s):
    """Bytes of who has seen what, and of an epoch with four negatives: users, items, labels, order."""
    users, items, rows = RATINGS[s.dataset]
    return users * items + 5 * rows * (8 + 8 + 4 + 8)


def _rows(s):
    return FLOAT * s.rows * (s.columns + 1)


def _padded(s):
    """Bytes of the largest padded batches of unit 05, with what backward needs of them."""
    token = 4 * FLOAT  # embedding, product, and the gradients of both
    cost = s.rows_of_cost * max(s.padded_lengths) * s.emb_dim
    demo = 256 * 64 * max(s.emb_dims)
    groups = s.rows_of_groups * 256 * s.u_dim
    return token * max(cost, demo, groups)


NEEDS = {
    "01_parallel_loading": Needs({
        "disk": lambda s: 3e8,
        "memory": lambda s: 4 * s.images * 250 * 250 * 3,
        "gpu": lambda s: 8 * s.batch_size * 3 * 224 * 224 * FLOAT,
    }, 25, {"memory": ("images",), "gpu": ("batch_size",)}),
    "02_data_parallel": Needs({
        "memory": lambda s: 8 * max(s.bytes) + 16 * max(s.batches) * 28 * 28,
        "gpu": lambda s: 4 * max(s.batches) * 28 * 28 * 32 * FLOAT,
    }, 30, {"memory": ("bytes",), "gpu": ("batches",)}),
    "03_large_batch": Needs({
        "disk": lambda s: 60 * RATINGS[s.dataset][2],
        "memory": lambda s: 2 * _ratings(s),
        "gpu": lambda s: _ratings(s) + max(s.critical_times) * s.base_batch * 6 * 200 * FLOAT,
    }, 60, {"disk": ("dataset",), "memory": ("dataset",), "gpu": ("dataset", "critical_times")}),
    "04_fast_loading": Needs({
        "disk": _rows,
        "memory": _rows,
        "gpu": lambda s: 8 * s.batch_size * s.columns * FLOAT,
    }, 60, {"memory": ("rows", "ladder"), "gpu": ("batch_size",)}, ("disk",)),
    "05_batch_grouping": Needs({
        "memory": lambda s: 2e9,
        "gpu": _padded,
    }, 20, {"gpu": ("padded_lengths", "rows_of_cost", "emb_dims", "rows_of_groups")}),
    "06_faster_training": Needs({
        "memory": lambda s: 2e9,
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
    said = [f"{unit} at gpu scale takes up to {_listed(asked)}, and perhaps {needs.minutes} minutes."]
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
