"""Load LFW in parallel, look at a batch, time the loader.

    python -m course.lfw_dataset
    python -m course.lfw_dataset -visualize_batch
    python -m course.lfw_dataset -get_timing -num_workers 0 1 2 4 -heavy

Unit 01 as a command, with the flags of the script from which the unit descends (DTU 02476), one
dash or two. It uses the answers to the unit's exercises: the reference solutions, or with -answers
PATH your own, from the folder of your notebooks or from one of them.
"""

import argparse
import os
import platform
import sys
import traceback
import types
import warnings
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch.utils.data import DataLoader, Dataset

from course.datasets import lfw
from course.device import device, machine
from course.errors import CourseError, command
from course.loading.loaders import effective_cores, forked, one_worker_costs
from course.measure.comparison import Comparison, compare_measured
from course.measure.timing import timing_line
from course.notebook.solutions import load_definitions, load_solutions
from course.plots import parallel_loading as plots
from course.system.files import atomic_write
from course.text import counted

UNIT = "01_parallel_loading"
PASSES = 5


@command
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line `argv`; what the user can fix is one sentence."""
    args = parse(argv)
    answers = load_own(args.answers) if args.answers else load_solutions(UNIT)
    try:
        run(answers, args)
    except OSError as error:  # no images, or a broken one
        # from a worker it brings a traceback, whose last line it is
        last_line = str(error).strip().splitlines()[-1]
        raise CourseError(last_line.removeprefix("OSError: ")) from None
    except (NotImplementedError, NameError, AttributeError) as error:
        if not args.answers:
            raise
        name = traceback.extract_tb(error.__traceback__)[-1].name
        raise CourseError(
            f"{args.answers}: an answer is missing or unfinished ({name}: {error!r})."
        ) from None
    except RuntimeError as error:
        # of torch.stack, and of torch.stack with out=
        if "equal size" not in str(error) and "resize storage" not in str(error):
            raise
        raise CourseError(
            "the images have several sizes, and a batch needs one; resize them first."
        ) from None


def load_own(path: Path) -> types.SimpleNamespace:
    """The definitions of the notebook at `path`, or of all parts' notebooks in that folder."""
    notebooks = sorted(path.glob("[0-9]_*.ipynb")) if path.is_dir() else [path]
    if not notebooks or not path.exists():
        raise CourseError(
            f"-answers {path}: no such notebook or folder of notebooks; give the path of yours."
        )
    own = types.SimpleNamespace()
    for notebook in notebooks:
        vars(own).update(vars(load_definitions(notebook)))
    return own


def run(answers: Any, args: argparse.Namespace) -> None:
    """Do what the flags ask, with the LFWDataset, transform, timer and prediction of `answers`."""
    folder = args.path_to_folder or lfw.folder()
    dataset = answers.LFWDataset(folder, lfw.heavy_transform() if args.heavy else None)
    first = dataset[0]
    found = f"{len(dataset):,} images in {folder}"
    print(f"{found}; the first is {dataset.name(0)}, {tuple(first.shape)}, {first.dtype}")
    if args.visualize_batch:
        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))
        chosen = order[: args.batch_size].tolist()
        images = torch.stack([dataset[i] for i in chosen])
        titles = [dataset.name(i) for i in chosen]
        keep(plots.batch_grid(images, titles), Path(args.save) / "lfw_batch.png")
    if args.get_timing:
        report_timing(answers, dataset, args)
    if not (args.visualize_batch or args.get_timing):
        timing = "-get_timing -num_workers 0 1 2 4 times the loader"
        print(f"Next: -visualize_batch draws a batch, {timing}.")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The namespace of flags; a wrong one ends the program with a sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m course.lfw_dataset", description=__doc__.splitlines()[0]
    )

    def flag(name, help, **options):
        parser.add_argument(f"-{name}", f"--{name}", help=help, **options)

    n = {"type": int, "metavar": "N"}
    folder = "holds <Person>/<image>.jpg (default: prepared LFW)"
    workers = "one or several numbers (default: 0)"
    timing = f"time {PASSES} passes; with several -num_workers compare them, draw lfw_timing.png"
    own = "use your answers: folder of notebooks, or one of them"
    flag("path_to_folder", folder, type=Path, metavar="FOLDER")
    flag("batch_size", "images per batch (default: 64)", default=64, **n)
    flag("num_workers", workers, nargs="+", default=[0], **n)
    flag("visualize_batch", "draw a random batch: lfw_batch.png", action="store_true")
    flag("get_timing", timing, action="store_true")
    flag("batches_to_check", "batches per pass (default: 100, or all)", default=100, **n)
    flag("heavy", "use the heavy transform instead of ToTensor", action="store_true")
    flag("save", "where figures go (default: here)", default=".", metavar="FOLDER")
    flag("answers", own, type=Path, metavar="PATH")
    args = parser.parse_args(argv)
    if min(args.num_workers) < 0 or min(args.batch_size, args.batches_to_check) < 1:
        parser.error(
            "-num_workers takes numbers of 0 or more, -batch_size and -batches_to_check 1 or more."
        )
    return args


def report_timing(answers: Any, dataset: Dataset, args: argparse.Namespace) -> None:
    """Print a line for each number of workers; draw several, and predict from 0 and two more."""
    available = -(-len(dataset) // args.batch_size)
    n_batches = min(args.batches_to_check, available)
    if n_batches < args.batches_to_check:
        asked = f"{args.batches_to_check} batches of {args.batch_size}"
        print(f"{asked} asked, there are {available}: timing {available}")
    workers = sorted(set(args.num_workers))
    if len(workers) == 1:
        passes = time_workers(answers, dataset, workers[0], args.batch_size, n_batches)
        print_timing(workers[0], passes, n_batches, args.batch_size)
        print(machine())
        return
    compared = compare_workers(answers, dataset, workers, args.batch_size, n_batches)
    for count, passes in zip(workers, compared.seconds.values(), strict=True):
        print_timing(count, passes, n_batches, args.batch_size)
    print(compared)
    print(machine())
    keep(plots.worker_plot(workers, compared), Path(args.save) / "lfw_timing.png")
    if workers[0] == 0 and len(workers) > 2:
        in_main = compared.median(compared.base) / n_batches
        report_prediction(answers, dataset, args.batch_size, workers, in_main)


def print_timing(count: int, passes: torch.Tensor, n_batches: int, batch_size: int) -> None:
    """Print the line of the seed: mean and spread of the passes."""
    print(f"{counted(count, 'worker')}: {timing_line(passes, n_batches, batch_size)}")


def report_prediction(
    answers: Any, dataset: Dataset, batch_size: int, workers: Sequence[int], in_main: float
) -> None:
    """Print the times predicted from one worker's costs, and the best number of workers.

    Args:
        in_main: measured seconds per batch without workers.
    """
    costs = one_worker_costs(dataset, batch_size)
    in_parallel = effective_cores(dataset)
    predicted = answers.predict_seconds(workers[1:], costs.cpu, costs.main, in_parallel)
    known = {0: in_main} | dict(zip(workers[1:], predicted.tolist(), strict=True))
    text = ", ".join(f"{count}: {1000 * value:.1f}" for count, value in known.items())
    best = counted(answers.choose_workers(known), "worker")
    print(f"predicted from one worker, ms per batch: {text}; take {best}")


def time_workers(
    answers: Any, dataset: Dataset, count: int, batch_size: int, n_batches: int
) -> torch.Tensor:
    """Seconds of PASSES passes over `n_batches` batches with `count` workers: float64 (PASSES,).

    Workers are persistent and started by a pass that is not counted, so loading is timed, not
    starting.
    """
    (loader,) = worker_loaders(dataset, [count], batch_size)
    return answers.seconds_per_pass(loader, n_batches, repeats=PASSES, warmup=1)


def compare_workers(
    answers: Any, dataset: Dataset, workers: Sequence[int], batch_size: int, n_batches: int
) -> Comparison:
    """The Comparison of passes over `n_batches` batches with each number of `workers`.

    Workers are persistent and started by a pass that is not counted.
    """
    loaders = {}
    for count, loader in zip(workers, worker_loaders(dataset, workers, batch_size), strict=True):
        loaders[counted(count, "worker")] = loader

    def seconds_of_pass(name: str) -> float:
        return answers.seconds_per_pass(loaders[name], n_batches, repeats=1, warmup=0).item()

    progress = sys.stdout.isatty()
    return compare_measured(list(loaders), seconds_of_pass, progress=progress)


def worker_loaders(dataset: Dataset, workers: Sequence[int], batch_size: int) -> list[DataLoader]:
    """A DataLoader for each number of `workers`, pinned for CUDA.

    Torch computes in one thread from now on, as in a worker: an image is too little work for
    several.
    """
    # more workers than cores: that is the question
    warnings.filterwarnings("ignore", "This DataLoader will create")
    torch.set_num_threads(1)
    pin = device().type == "cuda"
    return [forked(dataset, batch_size, count, pin_memory=pin) for count in workers]


def keep(figure: Figure, path: Path) -> None:
    """Save `figure` at `path` and, on a desktop, show it.

    Raises: CourseError if it cannot be written.
    """
    with atomic_write(path, "Name a folder that can be written with -save FOLDER.") as file:
        figure.savefig(file, format="png")
    print(f"figure: {path}")
    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if platform.system() != "Linux" or has_display:
        webbrowser.open(path.resolve().as_uri())


if __name__ == "__main__":
    main()
