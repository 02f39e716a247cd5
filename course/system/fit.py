"""What the experiments of a unit need at `gpu` scale, and sizes that fit this machine.

Where the disk, the memory or the GPU's memory is too small, sizes are halved until the unit needs
at most KEPT of what is free, and a sentence says so. The bytes are those of files, of the largest
tensors with what autograd keeps of them, and of processes. Minutes are guesses for one recent GPU.
"""

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from course.system.folders import data_folder

KEPT = 0.8  # share of what is free that may be taken
RESOURCES = {"disk": "of the disk", "memory": "of memory", "gpu": "of the GPU's memory"}
RATINGS = {"ml-20m": 20_000_263, "ml-1m": 1_000_209, "ml-100k": 100_000}
SMALLER_DATA = {"ml-20m": "ml-1m", "ml-1m": "ml-100k"}
CONTAINER = Path("/sys/fs/cgroup")  # what limits the container that this process may run in, Linux
# bytes of a process with torch and a unit's checks: 0.3 to 0.46 GB on the CPU; with CUDA not
# measured
PROCESS = 0.5e9
FACE = 3 * 250 * 250 * 4  # bytes of an image of LFW as floats
WORKERS = min(2 * (os.cpu_count() or 1), 32)  # the most that unit 01 starts


@dataclass(frozen=True)
class Need:
    """Bytes of a resource: `fixed`, and bytes per unit of each size in `per`, which gets smaller if
    they do not fit.

    The unit of a data set is a rating, that of several numbers the largest. `join` combines the
    bytes of the sizes: sum if their tensors exist together, max if one after the other.
    """

    fixed: float
    per: dict[str, float] = field(default_factory=dict)
    join: object = sum
    shrinks: bool = True  # False: something else makes it fit

    def bytes(self, sizes: dict[str, object]) -> float:
        return self.fixed + self.join(
            [each * _amount(sizes[name]) for name, each in self.per.items()] or [0]
        )


# unit -> minutes, {resource: Need}
NEEDS = {
    "01_parallel_loading": (25, {
        "disk": Need(0.212e9),  # the images and two traces
        # three per worker
        "memory": Need(PROCESS, {"batch_size": 3 * WORKERS * FACE, "starved_images": FACE / 4}),
        "gpu": Need(0, {"batch_size": 8 * 3 * 224 * 224 * 4}),
    }),
    "02_data_parallel": (30, {
        "disk": Need(31e6),
        # four ranks and the notebook
        "memory": Need(5 * PROCESS, {"bytes": 4 * 3, "batches": 4 * 28 * 28 * 4}),
        "gpu": Need(0, {"batches": 4 * 28 * 28 * 32 * 4}),
    }),
    "03_large_batch": (60, {
        "disk": Need(0, {"dataset": 20}),
        # twice: seen pairs, and an epoch with four negatives
        "memory": Need(PROCESS, {"dataset": 650}),
        # and the largest batch
        "gpu": Need(0, {"dataset": 325, "critical_times": 4096 * 6 * 200 * 4}),
    }),
    "04_fast_loading": (60, {
        # datasets/regression.py makes its file fit
        "disk": Need(0, {"rows": 41_783}, shrinks=False),
        "memory": Need(PROCESS, {"rows": 4 * 10_001}),
        "gpu": Need(0, {"batch_size": 8 * 10_000 * 4}),
    }),
    # the embedding, the product, and the gradients of both; drawn on the CPU
    "05_batch_grouping": (20, {
        "memory": Need(PROCESS, {"emb_dims": 8 * 2**14, "rows_of_groups": 8 * 2**18, "rows_of_cost": 8 * 2**23}, max),
        "gpu": Need(0, {"emb_dims": 16 * 2**14, "rows_of_groups": 16 * 2**18, "rows_of_cost": 16 * 2**23}, max),
    }),
    "06_faster_training": (45, {
        "disk": Need(31e6),
        # all images, those of a split, and a copy that changes
        "memory": Need(PROCESS + 3 * 70_000 * 28 * 28 * 4),
        "gpu": Need(0, {"gelu_numbers": 6 * 4, "block_rows": 8 * 16 * 2048 * 4, "few_megabytes": 2**20}, max),
    }),
}  # fmt: skip


def data_place() -> Path:
    """The folder of the prepared data, or the nearest one above it that exists."""
    folder = data_folder().absolute()
    return next(there for there in (folder, *folder.parents) if there.exists())


def free_bytes() -> dict[str, float]:
    """{resource: bytes that are free}, as far as the system says."""
    free = {"disk": shutil.disk_usage(data_place()).free}
    if (memory := free_memory()) is not None:
        free["memory"] = memory
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        free["gpu"] = torch.cuda.mem_get_info()[0]
    return free


def free_memory() -> int | None:
    """Bytes of memory that are free, as the system and the container say; None where the system
    does not.

    What the page cache holds of files counts as free, because the system gives it back on demand.
    """
    try:
        free = 1024 * _numbers(Path("/proc/meminfo"))["MemAvailable:"]
    except (OSError, KeyError):  # not Linux
        return None
    try:
        limit, used = (
            int((CONTAINER / f"memory.{name}").read_text()) for name in ("max", "current")
        )
        return min(free, limit - used + _numbers(CONTAINER / "memory.stat")["inactive_file"])
    except (OSError, KeyError, ValueError):  # no container, or one without a limit
        return free


def _numbers(path):
    """{first word: the number that follows it} of the lines of a file."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def fitted(
    unit: str, sizes: dict[str, object], free: dict[str, float]
) -> tuple[dict[str, object], list[str]]:
    """(`sizes`, some of them smaller if a resource is short; sentences that say what the unit needs
    and what shrank).

    Args:
        sizes: {name: value} of the unit at `gpu` scale.
        free: bytes that are free of each of RESOURCES; one that is left out counts as plenty.
    """
    (minutes, needs), small = NEEDS[unit], dict(sizes)
    while short := _short(needs, small, free):
        smaller = small | {name: _smaller(small[name]) for name in needs[short].per}
        if smaller == small:
            break
        small = smaller
    sentences = [
        f"{unit} at gpu scale takes up to {_listed(_bytes(needs, sizes))}, and {minutes} minutes, at a guess."
    ]
    changes = [
        f"{name} {_shown(sizes[name])} -> {_shown(small[name])}"
        for name in sizes
        if small[name] != sizes[name]
    ]
    if changes:
        shrunk = (
            f"so sizes shrink: {', '.join(changes)}; that takes {_listed(_bytes(needs, small))}."
        )
        sentences.append(f"Free are {_listed(free)}, {shrunk}")
    if short:
        sentences.append(
            f"That is still too much {RESOURCES[short]}: expect it to fail, or set COURSE_SCALE=laptop."
        )
    return small, sentences


def _bytes(needs, sizes):
    return {name: need.bytes(sizes) for name, need in needs.items()}


def _short(needs, sizes, free):
    """The first resource of which `sizes` need too much, or None."""
    for name, need in needs.items():
        if need.shrinks and need.bytes(sizes) > KEPT * free.get(name, float("inf")):
            return name
    return None


def _amount(value):
    if isinstance(value, str):
        return RATINGS.get(value, 0)
    return max(value) if isinstance(value, tuple) else value


def _smaller(value):
    """The next smaller value of a size: half a number, all but the last of several, the next
    smaller data set.
    """
    if isinstance(value, str):
        return SMALLER_DATA.get(value, value)
    if isinstance(value, tuple):
        return value[:-1] if len(value) > 1 else value
    return max(1, value // 2)


def _shown(value):
    return f"{value:,}" if isinstance(value, int) else str(value)


def _listed(n_bytes):
    return ", ".join(
        f"{n_bytes[name] / 1e9:.1f} GB {words}"
        for name, words in RESOURCES.items()
        if name in n_bytes
    )
