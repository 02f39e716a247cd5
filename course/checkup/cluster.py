"""The devices that a plan is for: "8xH100@450GB/s" or a file -> *Cluster*."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.errors import CourseError

GB = 1e9
# bytes of memory, from the data sheets of NVIDIA
MEMORY = {"V100": 32e9, "A100": 80e9, "H100": 80e9, "H200": 141e9, "B200": 180e9, "L4": 24e9}
_CLUSTER = re.compile(r"(\d+)x([A-Za-z0-9]+)@(\d+(?:\.\d+)?)GB/s")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)GB", re.IGNORECASE)
FILE = ".toml"
NEEDED = ("devices", "memory", "bandwidth")
# {key of a file: what its value is, for an error}
KEYS = {
    "devices": "a whole number of devices, such as 8",
    "memory": "GB of a device, such as 80",
    "bandwidth": "GB/s that a device sends, such as 450",
    "latency": "microseconds per message, such as 5",
    "speed": "how many times as fast a device computes as the one that was watched, such as 2.5",
    "overlap": "true or false: whether DDP and ZeRO send while they compute",
}


@dataclass(frozen=True)
class Cluster:
    """So many devices, bytes of memory of each, and bytes per second that each sends."""

    devices: int
    memory: float
    bandwidth: float
    latency: float = 0.0  # seconds per message
    speed: float = 1.0  # times that of the device that was watched
    overlap: bool = True  # whether DDP and ZeRO send while they compute


def parse(text: str) -> Cluster:
    """The Cluster of "8xH100@450GB/s", "8x24GB@10GB/s" or the path of a TOML file.

    Raises: CourseError if the text is not of this form, the device is not known, or the file does
        not describe a cluster.
    """
    if text.endswith(FILE):
        return _of_file(Path(text))
    found = _CLUSTER.fullmatch(text)
    if not found or int(found[1]) < 1 or float(found[3]) == 0:
        raise CourseError(
            f"--plan {text} is no cluster; write it as 8xH100@450GB/s or 8x24GB@10GB/s."
        )
    said = _SIZE.fullmatch(found[2])
    if not said and found[2].upper() not in MEMORY:
        raise CourseError(
            f"the memory of {found[2]} is not known; say it, as in {found[1]}x24GB@{found[3]}GB/s. "
            f"Known are {', '.join(MEMORY)}."
        )
    memory = float(said[1]) * GB if said else MEMORY[found[2].upper()]
    return Cluster(int(found[1]), memory, float(found[3]) * GB)


def _of_file(path: Path) -> Cluster:
    """The Cluster that a file describes.  Raises: CourseError if it does not describe one."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CourseError(f"cannot read the cluster file {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CourseError(f"the cluster file {path} is not TOML: {error}.") from None
    fault = _fault(values)
    if fault:
        raise CourseError(f"{path} {fault}.")
    return Cluster(
        devices=values["devices"],
        memory=values["memory"] * GB,
        bandwidth=values["bandwidth"] * GB,
        latency=values.get("latency", 0) / 1e6,
        speed=values.get("speed", 1.0),
        overlap=values.get("overlap", True),
    )


def _fault(values: dict[str, Any]) -> str:
    """What the first wrong key of a file is, as the rest of a sentence; "" if there is none."""
    for key, value in values.items():
        if key not in KEYS:
            return f'has an unknown key "{key}"; known are {", ".join(KEYS)}'
        if not _is_right(key, value):
            return f"says that {key} is {value!r}; write {KEYS[key]}"
    for key in NEEDED:
        if key not in values:
            return f"lacks {key}, {KEYS[key]}"
    return ""


def _is_right(key: str, value: Any) -> bool:
    """Whether the value of a key has its type and size."""
    if key == "overlap":
        return isinstance(value, bool)
    kinds = (int,) if key == "devices" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    is_finite = value < float("inf")  # nan is not, either
    return is_finite and (value >= 0 if key == "latency" else value > 0)
