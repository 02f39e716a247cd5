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
from pathlib import Path

import torch

from course.datasets import lfw
from course.device import device, machine
from course.errors import CourseError, command
from course.loading.loaders import effective_cores, forked, one_worker_costs
from course.measure.timing import time_in_turn, timing_line
from course.notebook.solutions import load_definitions, load_solutions
from course.plots import parallel_loading as plots
from course.system.files import atomic_write
from course.text import counted

UNIT = "01_parallel_loading"
PASSES = 5


@command
def main(argv=None):
    args = parse(argv)
    answers = load_own(args.answers) if args.answers else load_solutions(UNIT)
    try:
        run(answers, args)
    except (
        OSError
    ) as error:  # no images, or a broken one; from a worker it brings a traceback, whose end it is
        raise CourseError(str(error).strip().splitlines()[-1].removeprefix("OSError: ")) from None
    except (NotImplementedError, NameError, AttributeError) as error:
        if not args.answers:
            raise
        name = traceback.extract_tb(error.__traceback__)[-1].name
        raise CourseError(
            f"{args.answers}: an answer is missing or unfinished ({name}: {error!r})."
        ) from None
    except RuntimeError as error:
        if not any(
            words in str(error) for words in ("equal size", "resize storage")
        ):  # of torch.stack, with out=
            raise
        raise CourseError(
            "the images have several sizes, and a batch needs one; resize them first."
        ) from None


def load_own(path):
    """The definitions of the notebook at `path`, or of all notebooks of the unit's parts in the
    folder at `path`.
    """
    notebooks = sorted(path.glob("[0-9]_*.ipynb")) if path.is_dir() else [path]
    if not notebooks or not path.exists():
        raise CourseError(
            f"-answers {path}: no such notebook or folder of notebooks; give the path of yours."
        )
    own = types.SimpleNamespace()
    for notebook in notebooks:
        vars(own).update(vars(load_definitions(notebook)))
    return own


def run(answers, args):
    """Do what the flags ask, with the LFWDataset, transform, timer and prediction of `answers`."""
    folder = args.path_to_folder or lfw.folder()
    dataset = answers.LFWDataset(folder, lfw.heavy_transform() if args.heavy else None)
    first = dataset[0]
    print(
        f"{len(dataset):,} images in {folder}; the first is {dataset.name(0)}, {tuple(first.shape)}, {first.dtype}"
    )
    if args.visualize_batch:
        chosen = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))[
            : args.batch_size
        ].tolist()
        images, titles = (
            torch.stack([dataset[i] for i in chosen]),
            [dataset.name(i) for i in chosen],
        )
        keep(plots.batch_grid(images, titles), Path(args.save) / "lfw_batch.png")
    if args.get_timing:
        report_timing(answers, dataset, args)
    if not (args.visualize_batch or args.get_timing):
        print(
            "Next: -visualize_batch draws a batch, -get_timing -num_workers 0 1 2 4 times the loader."
        )


def parse(argv):
    """The namespace of flags; a wrong one ends the program with a sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m course.lfw_dataset", description=__doc__.splitlines()[0]
    )

    def flag(name, **options):
        parser.add_argument(f"-{name}", f"--{name}", **options)

    flag(
        "path_to_folder",
        type=Path,
        metavar="FOLDER",
        help="holds <Person>/<image>.jpg (default: prepared LFW)",
    )
    flag("batch_size", type=int, default=64, metavar="N", help="images per batch (default: 64)")
    flag(
        "num_workers",
        type=int,
        nargs="+",
        default=[0],
        metavar="N",
        help="one or several numbers (default: 0)",
    )
    flag("visualize_batch", action="store_true", help="draw a random batch: lfw_batch.png")
    flag(
        "get_timing",
        action="store_true",
        help=f"time {PASSES} passes; with several -num_workers draw lfw_timing.png",
    )
    flag(
        "batches_to_check",
        type=int,
        default=100,
        metavar="N",
        help="batches per pass (default: 100, or all)",
    )
    flag("heavy", action="store_true", help="use the heavy transform instead of ToTensor")
    flag("save", default=".", metavar="FOLDER", help="where figures go (default: here)")
    flag(
        "answers",
        type=Path,
        metavar="PATH",
        help="use your answers: folder of notebooks, or one of them",
    )
    args = parser.parse_args(argv)
    if min(args.num_workers) < 0 or min(args.batch_size, args.batches_to_check) < 1:
        parser.error(
            "-num_workers takes numbers of 0 or more, -batch_size and -batches_to_check 1 or more."
        )
    return args


def report_timing(answers, dataset, args):
    """Print a line for each number of workers; with several, draw them; with 0 and two more,
    predict.
    """
    available = -(-len(dataset) // args.batch_size)
    n_batches = min(args.batches_to_check, available)
    if n_batches < args.batches_to_check:
        print(
            f"{args.batches_to_check} batches of {args.batch_size} asked, there are {available}: timing {available}"
        )
    workers = sorted(set(args.num_workers))
    seconds = time_workers(answers, dataset, workers, args.batch_size, n_batches)
    for count, passes in zip(workers, seconds, strict=True):
        print(f"{counted(count, 'worker')}: {timing_line(passes, n_batches, args.batch_size)}")
    print(machine())
    if len(workers) > 1:
        keep(plots.worker_plot(workers, seconds), Path(args.save) / "lfw_timing.png")
    if workers[0] == 0 and len(workers) > 2:
        report_prediction(
            answers, dataset, args.batch_size, workers, seconds[0].mean().item() / n_batches
        )


def report_prediction(answers, dataset, batch_size, workers, in_main):
    """Print the times predicted from one worker's costs, and the best number of workers.

    Args:
        in_main: measured seconds per batch without workers.
    """
    costs = one_worker_costs(dataset, batch_size)
    predicted = answers.predict_seconds(
        workers[1:], costs.cpu, costs.main, effective_cores(dataset)
    )
    known = {0: in_main} | dict(zip(workers[1:], predicted.tolist(), strict=True))
    text = ", ".join(f"{count}: {1000 * value:.1f}" for count, value in known.items())
    print(
        f"predicted from one worker, ms per batch: {text}; take {counted(answers.choose_workers(known), 'worker')}"
    )


def time_workers(answers, dataset, workers, batch_size, n_batches):
    """Seconds of PASSES passes over `n_batches` batches, a float64 tensor (len(workers), PASSES),
    measured in turn.

    Workers are persistent and started by a pass that is not counted, so loading is timed, not
    starting.
    """
    loaders, progress = worker_loaders(answers, dataset, workers, batch_size), sys.stdout.isatty()
    return time_in_turn(loaders, PASSES, answers.seconds_per_pass, n_batches, progress)


def worker_loaders(answers, dataset, workers, batch_size):
    """A DataLoader for each number of `workers`, pinned for CUDA; torch computes in one thread from
    now on.

    One thread as in a worker: an image is too little work for several.
    """
    # more workers than cores: that is the question
    warnings.filterwarnings("ignore", "This DataLoader will create")
    torch.set_num_threads(1)
    pin = device().type == "cuda"
    return [forked(dataset, batch_size, count, pin_memory=pin) for count in workers]


def keep(figure, path):
    """Save `figure` at `path` and, on a desktop, show it. Raises: CourseError if it cannot be
    written.
    """
    with atomic_write(path, "Name a folder that can be written with -save FOLDER.") as file:
        figure.savefig(file, format="png")
    print(f"figure: {path}")
    if (
        platform.system() != "Linux"
        or os.environ.get("DISPLAY")
        or os.environ.get("WAYLAND_DISPLAY")
    ):
        webbrowser.open(path.resolve().as_uri())


if __name__ == "__main__":
    main()
