"""The device and the scale of the experiments, from the environment.

COURSE_DEVICE names a torch device (default: CUDA where there is one, else the CPU), COURSE_SCALE
one of SCALES
(default: gpu with CUDA, else laptop).  The sizes of every experiment are here and nowhere else.
"""

import os
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from course.errors import CourseError, counted
from course.system import fit

if TYPE_CHECKING:  # importing torch takes a second, so each function that needs it does so itself
    import torch

# of the container, Linux: CPU microseconds per period, and the period
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
BUSY = 2.0  # processes that wait or run, per core, above which a machine is busy
PATIENCE = 2.5  # factor of time limits on a busy machine
# seconds per part, minutes on two cores, the sizes of the sources
SCALES = (
    "smoke",
    "laptop",
    "gpu",
)
VIRTUAL_BYTES = (2**10, 2**14, 2**17, 2**20, 2**23, 2**26, 2**30)

# unit -> name of a size -> its value at (smoke, laptop, gpu)
SIZES = {
    "01_parallel_loading": {
        "dataset": ("tiny", "lfw", "lfw"),
        "images": (64, 320, 4096),
        "batch_size": (8, 32, 64),
        "rounds": (2, 3, 5),  # passes that are timed
        "paired_rounds": (1, 5, 7),  # in which one worker is measured before many are
        "cores_seconds": (0.05, 0.2, 0.4),  # of making items in one process and in all, per round
        "handed_over": (2, 6, 8),  # batches of a pass in which nothing is computed
        "starts": (1, 1, 3),  # how often workers are started to time it
        "uneven": (90, 270, 450),  # items of the dataset that is slow now and then
        "starved_images": (
            60,
            480,
            2048,
        ),  # of the run that is rescued, a quarter of them for validation
        "starved_epochs": (2, 3, 3),
        "starved_rounds": (1, 2, 3),
    },
    "02_data_parallel": {
        "dataset": ("tiny", "fashion", "fashion"),
        "batch_size": (16, 64, 256),  # of one rank
        "rounds": (2, 7, 11),  # paired measurements
        "batches": (
            (4, 16),
            (1, 4, 16, 64, 256, 1024),
            (16, 64, 256, 1024, 4096, 16384),
        ),  # of the inference curve
        "bytes": (
            (2**10, 2**16),
            (2**10, 2**13, 2**16, 2**19, 2**22, 2**24),
            (2**10, 2**14, 2**18, 2**22, 2**26),
        ),
        "epochs": (1, 3, 5),  # of the torchrun script
        "overlap_width": (
            256,
            512,
            512,
        ),  # of the layers whose backward overlaps with a slow wire, on the CPU
        "virtual_ranks": (8, 64, 64),
        "virtual_bytes": ((2**10, 2**20, 2**30), VIRTUAL_BYTES, VIRTUAL_BYTES),
        "shard_steps": (2, 5, 5),  # of the sharded optimizers beside DDP
    },
    "03_large_batch": {
        "dataset": ("tiny", "ml-100k", "ml-20m"),
        "base_batch": (64, 256, 4096),  # the batch that everything else is a multiple of
        "base_lr": (0.5, 0.5, 2.0),  # of SGD at the base batch
        "adam_lr": (
            (0.01, 0.035),
            (0.01, 0.035),
            (0.003, 0.02),
        ),  # at 16 and at 192 times the base batch
        "seeds": (1, 3, 3),  # of every comparison
        "lars_lr": (100.0, 120.0, 120.0),
        "lars_lr_constant": (15.0, 15.0, 15.0),  # without decay
        "sgd_lr_192": (24.0, 24.0, 24.0),  # with warm-up and decay
        "epochs": (3, 6, 10),
        "perf_steps": (5, 10, 20),
        "amp_steps": (1, 2, 20),
        "amp_pairs": (1, 3, 5),
        "target": (0.48, 0.55, 0.55),  # validation HR@10 of the critical-batch experiment
        "target_epochs": (3, 15, 15),  # most that a run to the target may take
        "critical_times": (
            (4, 16, 192),
            (4, 16, 64, 192, 576),
            (4, 16, 64, 192, 576),
        ),  # times the base batch
        "critical_seeds": (1, 3, 3),
        "noise_seeds": (1, 2, 2),
    },
    "04_fast_loading": {
        "rows": (2000, 100_000, 1_000_000),
        "columns": (64, 1000, 10_000),
        "batch_size": (128, 2048, 2048),
        "rounds": (2, 5, 5),
        "one_by_one": (200, 2000, 4000),  # rows that are loaded one by one
        "rows_written": (500, 25_000, 20_000),  # when writers are timed
        "gathered": (
            (2**16, 2**18),
            (2**23, 34 * 2**20),
            (2**23, 34 * 2**20),
        ),  # bytes of two batches
        "page": (2**11, 2**18, 2**18),  # bytes
        "window": (2**17, 2**25, 2**25),  # bytes, or a batch if that is more
        "sorted_rows": (2048, 65_536, 131_072),  # of the file that orders are compared on
        "sorted_page_rows": (16, 128, 256),
        "sorted_batch": (16, 64, 64),
        "blocks": (2, 4, 8),  # of a batch that is used up block by block
        "epochs": (2, 10, 10),
        "few_epochs": (4, 12, 12),  # of the comparison of methods
        "cold_rows": (512, 16_384, 32_768),  # that are read from the disk again and again
        "targets": (8, 32, 128),  # columns of the matrix with which such a batch is multiplied
    },
    "05_batch_grouping": {
        "emb_dim": (32, 256, 8192),  # and width of the hidden layer
        "attention_dim": (16, 64, 512),
        "padded_lengths": (
            (8, 16, 32),
            (32, 64, 128, 256),
            (128, 256, 512, 1024),
        ),  # of sequences of four tokens
        "rows_of_cost": (8, 16, 64),  # sequences of that batch
        "repeats": (1, 5, 10),  # timed calls
        "demo_rows": (512, 1024, 1024),  # sequences of the demonstration's set
        "emb_dims": ((16, 32), (64, 256), (64, 1024, 8192)),  # at which grouping is timed
        "rounds": (1, 5, 7),
        "lengths": (2000, 20_000, 50_000),  # of the search for thresholds
        "trials": ((1, 10), (1, 10, 100), (1, 10, 100)),  # of the random search
        "rows_of_groups": (
            128,
            512,
            2048,
        ),  # sequences of the batch with which all methods are compared
        "u_dim": (16, 32, 1024),  # embedding dimension there
        "rows_of_overhead": (
            64,
            256,
            2048,
        ),  # sequences of the batch that is cut into 1 to 32 groups
        "overhead_dim": (
            8,
            16,
            512,
        ),  # embedding dimension there: small, so that the overhead shows
        "rows_of_waste": (2048, 32_768, 65_536),  # sequences of the set whose batches are chosen
        "rows_of_training": (256, 1024, 8192),
        "batch_size": (16, 64, 256),
        "training_batch": (16, 16, 64),
        "training_epochs": (1, 3, 4),
        "seeds": (1, 3, 5),
        "attention_rows": (16, 64, 256),  # sequences of the flat batch with attention
    },
    "06_faster_training": {
        "dataset": ("tiny", "fashion", "fashion"),
        "rounds": (1, 5, 7),  # of contestants that take turns
        # part 1, find out what is slow
        "cheap_batch": (16, 32, 512),
        "cheap_steps": (2, 6, 40),  # of one timed run
        "cheap_rounds": (
            1,
            6,
            10,
        ),  # of the table of advice; even, so that each way begins equally often
        "regime_numbers": (2**12, 2**24, 2**28),  # of one operation that memory bounds
        "regime_width": (16, 1024, 8192),  # of a product that arithmetic bounds
        "eval_images": (100, 300, 10_000),
        "norm_steps": (4, 20, 200),  # with and without normalisation
        "norm_seeds": (1, 3, 5),
        # part 2, fewer steps
        "few_width": (
            4,
            8,
            32,
        ),  # channels of the first convolution; the others have 2 and 4 times as many
        "few_images": (640, 2560, 40_000),
        "few_batch": (32, 64, 128),
        "few_epochs": (2, 3, 4),
        "few_range": (20, 100, 100),  # steps of the range test
        "few_lr": (0.014, 0.014, 0.014),  # of SGD with momentum, where nothing else is said
        "few_peaks": ((0.035, 0.14), (0.035, 0.14), (0.035, 0.14)),  # of the schedules
        "few_seeds": (1, 3, 3),
        "few_decay_steps": (10, 60, 1000),
        "few_megabytes": (4, 16, 128),  # budget of a step
        "few_target_epochs": (2, 5, 5),  # at most, until the target is reached
        "few_target_steps": (1, 50, 100),  # but as many steps at least
        # part 3, cheaper steps
        "step_batch": (16, 128, 1024),  # images per step
        "steps_per_turn": (1, 2, 10),  # of each rung of the ladder, in each of twice as many rounds
        "gelu_numbers": (2**12, 2**22, 2**27),
        "loss_seeds": (2, 4, 5),  # of the baseline that the losses of the ladder are held against
        # part 4, memory for time, and the race
        "blocks": (4, 16, 16),  # of the checkpointed model
        "block_width": (32, 256, 2048),
        "block_rows": (64, 512, 8192),  # rows of its batch
        "accumulated_batch": (64, 256, 1024),
        "race_images": (600, 5000, None),  # None: all that are not for validation
        "race_target": (
            {"stand-in": 0.6, "real": 0.6},
            {"stand-in": 0.835, "real": 0.85},
            {"stand-in": 0.97, "real": 0.9},
        ),
        "race_seeds": (1, 3, 3),
        # what is left out of the advice, None: each in turn
        "race_left_out": (("data in memory", "one cycle"), ("data in memory", "one cycle"), None),
        "race_epochs": (4, 8, 12),  # at most, of a run
    },
}


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


def sizes(unit: str) -> SimpleNamespace:
    """A namespace of the sizes of `unit`'s experiments at the current scale.

    At `gpu` scale prints what they take, and sizes shrink to what the machine has
    (course.system.fit).
    Raises: CourseError if no such unit has sizes.
    """
    if unit not in SIZES:
        raise CourseError(f"no unit is called {unit!r}; the units are {', '.join(SIZES)}.")
    column = SCALES.index(scale())
    values = {name: at_scale[column] for name, at_scale in SIZES[unit].items()}
    if SCALES[column] == "gpu":
        values, sentences = fit.fitted(unit, values, fit.free_bytes())
        print("\n".join(sentences))
    return SimpleNamespace(**values)


def cores() -> int:
    """The logical cores that this process may use: those it may run on, or fewer if its container
    has a CPU quota.
    """
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = CPU_QUOTA.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no such limit, or "max"
        return allowed


def is_busy() -> bool:
    """True if more than BUSY processes per core want to run; False if the system does not count
    them.
    """
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > BUSY * (os.cpu_count() or 1)


def physical_cores() -> int:
    """The cores behind `cores()`: hardware threads that share a core count once; as many as
    `cores()` if unknown.
    """
    try:
        lists = [
            Path(f"/sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list")
            for i in os.sched_getaffinity(0)
        ]
        return min(cores(), len({path.read_text() for path in lists}))
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


def _processor():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(
                line.split(":")[1].strip() for line in lines if line.startswith("model name")
            )
    except (OSError, StopIteration):  # not Linux, or a processor without a name
        return platform.processor() or platform.machine()
