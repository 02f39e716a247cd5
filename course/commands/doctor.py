"""`course doctor`: is this machine ready for the course? A line per thing, and what to do.

Nothing heavy is imported at the top, because this module is there to name a broken installation. A
line is " ok ", a note " -- " (the course works, with less) or " NO " (it does not); only " NO "
makes the exit code 1.
"""

import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from course import checks
from course.device import cores, scale
from course.notebook.registry import all_units, has_solutions
from course.system.fit import data_place, free_memory
from course.system.folders import data_folder

GIB = 2**30
# that the data of all units take at most, with temporary files
DISK_GIB = {"smoke": 0.5, "laptop": 3, "gpu": 6}
MEMORY_GIB = 3  # that the largest part takes at laptop scale
SHARED_GIB = 0.25  # of /dev/shm, through which loader workers send batches
GPU_GIB = 2  # of the GPU's memory
PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "PIL",
    "matplotlib",
    "tqdm",
    "cloudpickle",
    "jupyterlab",
    "nbgrader",
)
MARKS = {"ok": " ok ", "note": " -- ", "fail": " NO "}
DRIVER = Path("/proc/driver/nvidia/version")
OLDEST_DRIVER = {"12": 525.60, "13": 580.0}  # of each generation of CUDA
# the newest build of torch for drivers from this one on
BUILDS = ((580.0, "auto"), (570.0, "cu128"), (525.60, "cu126"))
# the exercise whose check is tried: it computes in milliseconds
TRIED_UNIT = "03_large_batch"
TRIED_EXERCISE = "scaled_lr"


@dataclass(frozen=True)
class Finding:
    """What is said of one thing."""

    state: str  # "ok", "note" or "fail"
    sentence: str
    advice: str = ""  # what to do if the state is not "ok"


def _ok(sentence):
    return Finding("ok", sentence)


def _note(sentence, advice):
    return Finding("note", sentence, advice)


def _fail(sentence, advice):
    return Finding("fail", sentence, advice)


def python() -> Finding:
    """The version of Python, and the system."""
    system = platform.system()
    sentence = f"{platform.python_version()} on {system}"
    advice = {
        "Windows": "Use WSL 2: workers of units 01, 02, 04 start by fork, and grading needs Linux.",
        "Darwin": "Page faults, open files and cold caches are counted on Linux only; grading too.",
    }
    return _note(sentence, advice[system]) if system in advice else _ok(sentence)


def packages() -> Finding:
    """The packages of the course, and whether torch and torchvision are a pair."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return _fail(
            f"{', '.join(missing)} not installed", "make install puts all of it into .venv."
        )
    shown = ("torch", "torchvision", "jupyterlab")
    versions = " ".join(f"{name} {importlib.metadata.version(name)}" for name in shown)
    try:
        import torch
        import torchvision.ops

        torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except Exception as error:
        advice = "The two do not fit together; remove .venv, then make install."
        return _fail(f"{versions}: {_line(error)}", advice)
    return _ok(versions)


def disk() -> Finding:
    """Free space where the data go."""
    folder = data_folder()
    there = data_place()
    if not os.access(there, os.W_OK):
        return _fail(f"{folder} cannot be written", "Name another folder with COURSE_DATA.")
    free = shutil.disk_usage(there).free / GIB
    needed = DISK_GIB[scale()]
    sentence = f"{free:.0f} GiB free for {folder}, at most {needed:g} GiB needed at {scale()} scale"
    if free >= needed:
        return _ok(sentence)
    advice = "Make room, name another folder with COURSE_DATA, or set COURSE_SCALE=smoke."
    if scale() == "gpu" and free > DISK_GIB["laptop"]:
        return _note(sentence, advice)  # sizes shrink to what fits
    return _fail(sentence, advice)


def memory() -> Finding:
    """Memory that is free now, as far as the system and the container say it."""
    free = free_memory()
    if free is None:
        return _note("unknown on this system", f"Have {MEMORY_GIB} GiB free.")
    sentence = f"{free / GIB:.1f} GiB free"
    if free >= MEMORY_GIB * GIB:
        return _ok(sentence)
    advice = "Close other programs and notebooks, or set COURSE_SCALE=smoke."
    return _note(f"{sentence}, {MEMORY_GIB} needed", advice)


def processors() -> Finding:
    """The cores that this process may use."""
    count = cores()
    if count < 2:
        advice = "Loader workers and ranks need two; ask for another core, else expect no speed-up."
        return _note("1", advice)
    return _ok(str(count))


def shared_memory() -> Finding:
    """Room in /dev/shm, which containers often keep at 64 MB."""
    place = Path("/dev/shm")
    if not place.exists():
        return _ok("not used on this system")
    free = shutil.disk_usage(place).free / GIB
    if free < SHARED_GIB:
        sentence = f"{free:.2f} GiB free in {place}, {SHARED_GIB} needed"
        return _fail(sentence, "docker run --shm-size=1g gives more.")
    return _ok(f"{free:.1f} GiB free in {place}")


def browser() -> Finding:
    """A browser that JupyterLab can open, and the port that it takes."""
    try:
        name = webbrowser.get().name
    except webbrowser.Error:
        advice = "course lab --no-browser prints an address; open it where you have one."
        return _note("none found", advice)
    with socket.socket() as probe:
        is_free = probe.connect_ex(("127.0.0.1", 8888))
    port = "free" if is_free else "taken, JupyterLab takes the next one"
    return _ok(f"{name}; port 8888 is {port}")


def gpu() -> Finding:
    """The GPU that torch sees, after one computation on it."""
    import torch

    if not torch.cuda.is_available():
        driver = re.search(r"  (\d+\.\d+)", DRIVER.read_text()) if DRIVER.exists() else None
        if driver:
            return _fail(*why_no_gpu(driver[1], torch.version.cuda))
        advice = "Everything runs on the CPU; a cell that needs a GPU says so and is skipped."
        return _note("none", advice)
    torch.ones(256, device="cuda").sum().item()  # raises if nothing can be computed there
    free, total = torch.cuda.mem_get_info()
    name = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    sentence = f"{name}, {free / GIB:.0f} of {total / GIB:.0f} GiB free"
    if free < GPU_GIB * GIB:
        advice = "Choose another with CUDA_VISIBLE_DEVICES, or set COURSE_DEVICE=cpu."
        return _note(sentence, advice)
    return _ok(sentence)


def why_no_gpu(driver: str, cuda: str | None) -> tuple[str, str]:
    """(what is found, advice) where a driver is there and torch sees no GPU.

    Args:
        driver: its version, such as "550.54".
        cuda: the version of CUDA that torch was built for; None if it was built for processors
            alone.

    Source: table of minimum drivers in NVIDIA's "CUDA Compatibility": a build for CUDA 12 or 13
    runs on every driver from the first of that generation on.
    """
    fits = next((build for oldest, build in BUILDS if float(driver) >= oldest), None)
    has = f"torch for CUDA {cuda}" if cuda else "torch is built for processors alone"
    if fits is None:
        found = f"driver {driver} is too old for CUDA 12; {has}"
        return found, "Install driver 525 or later, or set COURSE_DEVICE=cpu."
    if cuda and float(driver) >= OLDEST_DRIVER.get(cuda.partition(".")[0], 0):
        found = f"driver {driver} and {has} fit, but torch sees no GPU"
        try_it = "python -c 'import torch; torch.zeros(1).cuda()'"
        return found, f"nvidia-smi and {try_it} say why; else COURSE_DEVICE=cpu."
    found = f"there is driver {driver}; {has}"
    return found, f"make lab TORCH={fits} installs a torch that uses the GPU."


def data() -> Finding:
    """Which data sets are real and which will be stand-ins."""
    folders = {"LFW": "lfw", "Fashion-MNIST": "fashion", "MovieLens": "movielens"}
    real = [name for name, folder in folders.items() if _has_real_data(data_folder() / folder)]
    rest = [name for name in folders if name not in real]
    if not rest:
        return _ok(", ".join(real))
    advice = "The course works with them; make data (or course data --download) gets the real ones."
    return _note(f"{', '.join(real) or 'none'}; stand-ins for {', '.join(rest)}", advice)


def _has_real_data(folder):
    if not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir()]
    return any(not name.startswith(("standin", ".")) for name in names)


def ranks() -> Finding:
    """Whether two processes of this machine can sum a tensor, as unit 02 and torchrun do."""
    import torch
    import torch.distributed as dist

    from course.parallel.distributed import run_ranks

    # raises if they cannot
    run_ranks(lambda rank, world_size: dist.all_reduce(torch.ones(1)), 2, backend="gloo")
    return _ok("two summed a tensor over gloo")


def check() -> Finding:
    """Whether a check refuses a wrong answer and, where solutions are, accepts the reference."""
    name = TRIED_EXERCISE
    here = {exercise.name for unit in all_units() for exercise in unit.exercises}
    if name not in here:
        advice = "Run the first check of your first notebook instead."
        return _note(f"{name} is not in this folder", advice)
    exercise = checks.exercise(TRIED_UNIT, name)
    said = exercise.judge(lambda *_, **__: -1.0, device="cpu")
    if said.correct:
        advice = "Unpack or clone the course again, into another folder."
        return _fail(f"the check of {name} accepts -1", advice)
    if not has_solutions():
        return _ok(f"{name}: a wrong answer is refused")
    import torch

    judge = exercise.at(torch.device("cpu"))
    right = judge.verdict(judge.run(exercise.reference()))
    if not right.correct:
        return _fail(f"the check of {name} refuses its reference", "\n".join(right.report))
    return _ok(f"{name}: the reference is correct, a wrong answer is refused")


# in the order of the output; the slow ones last
LOOKS: dict[str, Callable[[], Finding]] = {
    "Python": python,
    "packages": packages,
    "disk": disk,
    "memory": memory,
    "cores": processors,
    "shared memory": shared_memory,
    "browser": browser,
    "GPU": gpu,
    "data": data,
    "processes": ranks,
    "check": check,
}


def look(name: str) -> Finding:
    """The Finding about `name`, one of LOOKS; an error while looking is a "fail"."""
    try:
        return LOOKS[name]()
    except Exception as error:
        sentence = f"{type(error).__name__}: {_line(error)}"
        return _fail(sentence, "make install, then course doctor again.")


def _line(error):
    return " ".join(str(error).split())[:200]


def doctor(say: Callable[[str], None] = print) -> int:
    """Pass the lines of all findings, advice below each, to `say`; return the exit code."""
    failed = 0
    for name in LOOKS:
        finding = look(name)
        failed += finding.state == "fail"
        say(f"{MARKS[finding.state]} {name:<14}{finding.sentence}")
        if finding.advice:
            say(f"{'':19}{finding.advice}")
    say("")
    if failed:
        say(f"{failed} of {len(LOOKS)} need you: see NO above.")
        return 1
    say("Ready: course lab opens the notebooks.")
    return 0
