"""Sizes that fit this machine: what a unit needs at `gpu` scale -> *fitted* -> sizes, sentences.

Where the disk, the memory or the GPU's memory is too small, sizes are halved until the unit needs
at most KEPT_SHARE of what is free, and a sentence says so. The bytes are those of files, of the
largest tensors with what autograd keeps of them, and of processes. What each unit needs is in
course/experiment_sizes/.
"""

import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from course.system.folders import data_folder

KEPT_SHARE = 0.8  # of what is free that may be taken
RESOURCES = {"disk": "of the disk", "memory": "of memory", "gpu": "of the GPU's memory"}
RATINGS = {"ml-20m": 20_000_263, "ml-1m": 1_000_209, "ml-100k": 100_000}
SMALLER_DATA = {"ml-20m": "ml-1m", "ml-1m": "ml-100k"}
CONTAINER = Path("/sys/fs/cgroup")  # what limits the container that this process may run in, Linux
# of a process with torch and a unit's checks: 0.3 to 0.46 GB on the CPU; with CUDA not measured
PROCESS_BYTES = 0.5e9


@dataclass(frozen=True)
class Need:
    """Bytes of a resource: `fixed`, and bytes per unit of each size in `per`.

    The sizes in `per` get smaller if they do not fit. The unit of a data set is a rating, that of
    several numbers the largest. `join` combines the bytes of the sizes: sum if their tensors exist
    together, max if one after the other.
    """

    fixed: float
    per: dict[str, float] = field(default_factory=dict)
    join: Callable[[Iterable[float]], float] = sum
    shrinks: bool = True  # False: something else makes it fit

    def bytes(self, sizes: dict[str, object]) -> float:
        """The bytes that are needed at `sizes`, {name: value}."""
        if not self.per:
            return self.fixed
        return self.fixed + self.join(
            each * _amount(sizes[name]) for name, each in self.per.items()
        )


@dataclass(frozen=True)
class UnitNeeds:
    """What the experiments of a unit take at `gpu` scale."""

    minutes: int  # a guess for one recent GPU
    resources: dict[str, Need]  # by their names in RESOURCES; one that is left out is not needed


def data_place() -> Path:
    """The folder of the prepared data, or the nearest one above it that exists."""
    folder = data_folder().absolute()
    return next(there for there in (folder, *folder.parents) if there.exists())


def free_bytes() -> dict[str, float]:
    """{resource: bytes that are free}, as far as the system says."""
    free = {"disk": shutil.disk_usage(data_place()).free}
    memory = free_memory()
    if memory is not None:
        free["memory"] = memory
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        free["gpu"] = torch.cuda.mem_get_info()[0]
    return free


def free_memory() -> int | None:
    """Bytes of memory that are free, as the system and the container say, or None if unknown.

    What the page cache holds of files counts as free, because the system gives it back on demand.
    """
    try:
        free = 1024 * _numbers(Path("/proc/meminfo"))["MemAvailable:"]
    except (OSError, KeyError):  # not Linux
        return None
    try:
        limit = int((CONTAINER / "memory.max").read_text())
        used = int((CONTAINER / "memory.current").read_text())
        cached = _numbers(CONTAINER / "memory.stat")["inactive_file"]
    except (OSError, KeyError, ValueError):  # no container, or one without a limit
        return free
    return min(free, limit - used + cached)


def _numbers(path):
    """{first word: the number that follows it} of the lines of a file."""
    numbers = {}
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) > 1 and words[1].isdecimal():
            numbers[words[0]] = int(words[1])
    return numbers


def fitted(
    unit: str, needs: UnitNeeds, sizes: dict[str, object], free: dict[str, float]
) -> tuple[dict[str, object], list[str]]:
    """(`sizes`, smaller where a resource is short; sentences for the reader).

    The sentences say what the unit needs and what shrank.

    Args:
        unit: its name, for the sentences.
        sizes: {name: value} of the unit at `gpu` scale.
        free: bytes that are free of each of RESOURCES; one that is left out counts as plenty.
    """
    resources = needs.resources
    small = dict(sizes)
    while short := _short(resources, small, free):
        smaller = small | {name: _smaller(small[name]) for name in resources[short].per}
        if smaller == small:
            break
        small = smaller
    total = _listed(_bytes(resources, sizes))
    sentences = [
        f"{unit} at gpu scale takes up to {total}, and {needs.minutes} minutes, at a guess."
    ]
    changes = _changes(sizes, small)
    if changes:
        less = _listed(_bytes(resources, small))
        sentences.append(
            f"Free are {_listed(free)}, so sizes shrink: {', '.join(changes)}; that takes {less}."
        )
    if short:
        advice = "expect it to fail, or set COURSE_SCALE=laptop."
        sentences.append(f"That is still too much {RESOURCES[short]}: {advice}")
    return small, sentences


def _changes(sizes, small):
    """Texts "rows 1,000 -> 500" of the values that differ."""
    changes = []
    for name, value in sizes.items():
        if small[name] != value:
            changes.append(f"{name} {_shown(value)} -> {_shown(small[name])}")
    return changes


def _bytes(resources, sizes):
    return {name: need.bytes(sizes) for name, need in resources.items()}


def _short(resources, sizes, free):
    """The first resource of which `sizes` need too much, or None."""
    for name, need in resources.items():
        if need.shrinks and need.bytes(sizes) > KEPT_SHARE * free.get(name, float("inf")):
            return name
    return None


def _amount(value):
    if isinstance(value, str):
        return RATINGS.get(value, 0)
    return max(value) if isinstance(value, tuple) else value


def _smaller(value):
    """The next smaller value of a size.

    Half a number, all but the last of several, the next smaller data set.
    """
    if isinstance(value, str):
        return SMALLER_DATA.get(value, value)
    if isinstance(value, tuple):
        return value[:-1] if len(value) > 1 else value
    return max(1, value // 2)


def _shown(value):
    return f"{value:,}" if isinstance(value, int) else str(value)


def _listed(n_bytes):
    """Text "2.0 GB of the disk, 1.5 GB of memory" of {resource: bytes}."""
    texts = []
    for name, words in RESOURCES.items():
        if name in n_bytes:
            texts.append(f"{n_bytes[name] / 1e9:.1f} GB {words}")
    return ", ".join(texts)
