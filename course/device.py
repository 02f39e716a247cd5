"""The device and the scale of the experiments, from the environment, and the machine's cores.

COURSE_DEVICE names a torch device (default: CUDA where there is one, else the CPU), COURSE_SCALE
one of SCALES (default: gpu with CUDA, else laptop).
"""

import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

from course.errors import CourseError
from course.text import counted

if TYPE_CHECKING:  # importing torch takes a second, so each function that needs it does so itself
    import torch

# of the container, Linux: CPU microseconds per period, and the period
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
# seconds per part; minutes on two cores; minutes on a GPU
SCALES = ("smoke", "laptop", "gpu")


def device() -> "torch.device":
    """The torch.device to compute on: COURSE_DEVICE, else CUDA if present, else the CPU.

    Raises: CourseError if torch cannot use the device that COURSE_DEVICE names.
    """
    import torch

    name = os.environ.get("COURSE_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise CourseError(
            f"COURSE_DEVICE is {name!r}, which torch cannot use ({why}). Unset it or set cpu."
        ) from None
    return torch.device(name)


def scale() -> str:
    """The scale of experiments, one of SCALES: COURSE_SCALE, else gpu on CUDA, else laptop.

    Raises: CourseError for any other name.
    """
    name = os.environ.get("COURSE_SCALE") or ("gpu" if device().type == "cuda" else "laptop")
    if name not in SCALES:
        raise CourseError(f"COURSE_SCALE is {name!r}; it must be one of {', '.join(SCALES)}.")
    return name


def own_gpus() -> int:
    """How many ranks have their own GPU; 0 where there is one GPU at most, and ranks use cores."""
    import torch

    gpus = torch.cuda.device_count() if device().type == "cuda" else 0
    return gpus if gpus > 1 else 0


def cores() -> int:
    """The logical cores that this process may use.

    Those it may run on, or fewer if its container has a CPU quota.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    try:
        quota, period = CPU_QUOTA.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no such limit, or "max"
        return allowed


def physical_cores() -> int:
    """The cores behind `cores()`: hardware threads that share a core count once.

    As many as `cores()` if unknown.
    """
    try:
        siblings = set()
        for cpu in os.sched_getaffinity(0):
            topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
            siblings.add((topology / "thread_siblings_list").read_text())
        return min(cores(), len(siblings))
    except (OSError, AttributeError):  # not Linux
        return cores()


def machine() -> str:
    """One line that names what a measurement ran on: processor or GPU, cores, threads, versions."""
    import torch

    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    if device().type == "cuda":
        return f"{torch.cuda.get_device_name()}, {versions}"
    own = f"{counted(os.cpu_count(), 'core')}, {counted(torch.get_num_threads(), 'thread')}"
    return f"{_processor()}, {own}, {versions}"


def machine_name() -> str:
    """A short name of the machine, e.g. "2 cores, Intel Xeon" or "H200"."""
    import torch

    if device().type == "cuda":
        return torch.cuda.get_device_name().removeprefix("NVIDIA ")
    processor = re.sub(r"\((R|TM)\)|@.*|\b(CPU|Processor)\b", "", _processor())
    return f"{counted(cores(), 'core')}, {' '.join(processor.split())}"


def _processor():
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":")[1].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()
