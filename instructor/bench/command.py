"""`course bench NAME`: the command lines of all benchmarks.

Each is imported when it runs, with all that it needs.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

POSITIVE = click.IntRange(1)
OPTIMIZERS = ["sgd", "adam", "lars"]
BATCHES = [1024, 4096, 16384, 49152, 147456]
DEFAULT_SIZES = ["200000x1000", "100000x4000"]

# an option whose help shows its default
_option = partial(click.option, show_default=True)


class Size(click.ParamType):
    """(rows, columns) of "200000x1000"."""

    name = "NxD"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return (rows, columns); fail with a usage error if `value` is not a size."""
        rows, _, columns = value.partition("x")
        if not (rows.isdecimal() and columns.isdecimal()):
            self.fail(f"{value} is not a size; write rows x columns like 200000x1000", param, ctx)
        return int(rows), int(columns)


def _rounds(default: int) -> Callable[[Any], Any]:
    return _option(
        "--rounds", type=POSITIVE, default=default, help="How often each is timed, at most."
    )


def _batch_size(default: int, text: str) -> Callable[[Any], Any]:
    return _option("--batch-size", type=POSITIVE, default=default, help=text)


def _folder(name: str, text: str, **options: Any) -> Callable[[Any], Any]:
    return click.option(name, type=click.Path(path_type=Path), help=text, **options)


_record = click.option(
    "--record",
    is_flag=True,
    help="Also put the table into this machine's record and docs/.",
)


def _run(benchmark: Callable[..., Any], arguments: tuple, record: bool) -> None:
    """Run `benchmark`; if asked, keep the tables that it returns."""
    from instructor.authoring.records import this_machine
    from instructor.bench.tables import keep

    machine = this_machine()  # before a contestant changes the number of threads
    tables = benchmark(*arguments)
    if record:
        click.echo(keep(tables, machine))


@click.group(epilog="Example: course bench loading epochs --rounds 3")
def bench() -> None:
    """Run a benchmark.

    Contestants take turns, and the tables show ratios with their intervals and the machine.
    """


@bench.command(epilog="Example: course bench lfw paths --batch-size 32")
@click.argument("what", type=click.Choice(["paths"]))
@_folder("--folder", "Holds <Person>/<image>.jpg (default: prepared LFW).")
@_rounds(15)
@_batch_size(64, "Images per batch.")
@_record
def lfw(what: str, folder: Path | None, rounds: int, batch_size: int, record: bool) -> None:
    """How fast LFW can be loaded: decoders, workers and threads, at equal pixels."""
    from instructor.bench import lfw

    _run(lfw.paths, (folder, rounds, batch_size), record)


@bench.command(epilog="Example: course bench loading epochs --sizes 200000x1000")
@click.argument("what", type=click.Choice(["epochs", "sgd"]))
@_option(
    "--sizes",
    type=Size(),
    multiple=True,
    default=DEFAULT_SIZES,
    help="Rows x columns of the data (may be repeated).",
)
@_rounds(15)
@_batch_size(2048, "Rows per batch.")
@_folder("--ffcv", "Holds FFCV's packages, where it is not installed.")
@_record
def loading(
    what: str,
    sizes: tuple[tuple[int, int], ...],
    rounds: int,
    batch_size: int,
    ffcv: Path | None,
    record: bool,
) -> None:
    """How fast rows reach a linear regression, against memcpy, PyTorch's loaders and FFCV."""
    from instructor.bench import loading

    _run(loading.run, (what, sizes, rounds, batch_size, ffcv), record)


@bench.command("data-parallel", epilog="Example: course bench data-parallel steps --ranks 4")
@click.argument("what", type=click.Choice(["steps"]))
@_option("--ranks", type=POSITIVE, default=2, help="Number of processes.")
@_rounds(31)
@_batch_size(64, "Images per rank.")
@_record
def data_parallel(what: str, ranks: int, rounds: int, batch_size: int, record: bool) -> None:
    """What DDP by hand costs compared with torch's."""
    from instructor.bench import data_parallel

    _run(data_parallel.steps, (ranks, rounds, batch_size), record)


@bench.group(epilog="Example: course bench ncf accuracy --model dot --factors 64")
def ncf() -> None:
    """Neural Collaborative Filtering on MovieLens 1M."""


@ncf.command(epilog="Example: course bench ncf accuracy --model neumf --factors 32 --seeds 3")
@_option("--model", type=click.Choice(["neumf", "dot"]), default="neumf", help="Which one.")
@_option("--factors", type=POSITIVE, multiple=True, default=[8, 32], help="May be repeated.")
@_option("--epochs", type=POSITIVE, default=20, help="Passes over the training data.")
@_option("--seeds", type=POSITIVE, default=3, help="Runs with the settings that are chosen.")
def accuracy(model: str, factors: tuple[int, ...], epochs: int, seeds: int) -> None:
    """HR@10 and NDCG@10 on ML-1M: settings chosen on validation items, then tested once."""
    from instructor.bench import ncf

    for number in factors:
        ncf.accuracy(model, number, epochs, seeds)


@bench.command("rate-maps", epilog="Example: course bench rate-maps --seeds 1")
@_option("--seeds", type=POSITIVE, default=3, help="Runs per square.")
def rate_maps(seeds: int) -> None:
    """Run the maps of batch size and learning rate that part 03/2 shows, and write them.

    It takes about 15 minutes per seed on a core, and continues where it was interrupted.
    """
    from instructor.bench import rate_maps

    rate_maps.run(seeds)


@ncf.command(epilog="Example: course bench ncf critical --optimizer adam --batch 1024 --batch 4096")
@_option(
    "--optimizer",
    type=click.Choice(OPTIMIZERS),
    multiple=True,
    default=OPTIMIZERS,
    help="Whose learning rates are searched.",
)
@_option("--batch", type=POSITIVE, multiple=True, default=BATCHES, help="Batch sizes, rising.")
@_option("--seeds", type=POSITIVE, default=3, help="Runs with each learning rate.")
@_option("--target", type=click.FloatRange(0, 1), default=0.55, help="Validation HR@10.")
def critical(optimizer: tuple[str, ...], batch: tuple[int, ...], seeds: int, target: float) -> None:
    """Updates to a target against batch size, learning rates searched: see part 3 of unit 03."""
    from instructor.bench import critical_batch

    critical_batch.run(optimizer, sorted(batch), seeds, target)


@bench.command(epilog="Example: course bench grouping --asym asym-main --rounds 3")
@click.argument("what", type=click.Choice(["epochs", "thresholds"]), default="epochs")
@_folder("--asym", "Holds asym's package, to take part.", metavar="FOLDER")
@_option("--dims", type=POSITIVE, multiple=True, default=[64, 256, 1024], help="Embeddings.")
@_rounds(15)
@_record
def grouping(
    what: str, asym: Path | None, dims: tuple[int, ...], rounds: int, record: bool
) -> None:
    """How fast batches of ragged sequences train, padded, grouped, flat, and by asym."""
    from instructor.bench import grouping

    _run(grouping.run, (what, asym, dims, rounds), record)


@bench.command(epilog="Example: course bench speedrun --seeds 1")
@_option("--seeds", type=POSITIVE, default=6, help="Runs of each contestant.")
@_option("--target", type=click.FloatRange(0, 1), default=0.9, help="Validation accuracy.")
@_record
def speedrun(seeds: int, target: float, record: bool) -> None:
    """How long Fashion-MNIST takes to 90 %: plain, with all advice, and each piece left out."""
    from instructor.bench import speedrun

    _run(speedrun.run, (seeds, target), record)


@bench.command(epilog="Example: course bench grading all --cohort 1000")
@click.argument("unit", default="03_large_batch")
@_option("--submissions", type=POSITIVE, default=6, help="Solved ones, for the ratio.")
@_rounds(3)
@click.option(
    "--cohort",
    type=POSITIVE,
    metavar="N",
    help="Instead: kill and resume a batch of N submissions.",
)
def grading(unit: str, submissions: int, rounds: int, cohort: int | None) -> None:
    """How fast UNIT, or all units, are graded compared with nbgrader autograde.

    With --cohort: whether a killed batch resumes.
    """
    from course.notebook.registry import parts, units
    from instructor.bench import grading

    if unit != "all":
        parts(unit)  # says what the units are, if this is none
    grading.run(units() if unit == "all" else [unit], submissions, rounds, cohort)


@bench.command(epilog="Example: course bench checks")
@_record
def checks(record: bool) -> None:
    """How long a learner waits for a check, with right and with wrong answers."""
    from instructor.bench import checks

    _run(checks.run, (), record)


@bench.command(epilog="Example: course bench checkup --only padding")
@_option("--steps", type=POSITIVE, default=60, help="Steps that are watched, and timed.")
@_option("--minutes", type=click.FloatRange(0.01), default=0.3, help="As of course checkup.")
@_rounds(7)
@click.option("--only", multiple=True, metavar="SCRIPT", help="Of tests/planted (may be repeated).")
@click.option("--peers", is_flag=True, help="Ask TraceML, if it is there, and torch's patterns.")
@click.option(
    "--public",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Try public scripts, too: clones of pytorch/examples, karpathy/nanoGPT and others.",
)
@click.option("--ranks", is_flag=True, help="Instead: how often a late rank is named.")
@click.option("--fresh", is_flag=True, help="Forget the rows that are kept.")
@click.option(
    "--within",
    type=click.FloatRange(0.1),
    metavar="MINUTES",
    help="Stop before that; the next call continues.",
)
@_record
def checkup(
    steps: int,
    minutes: float,
    rounds: int,
    only: tuple[str, ...],
    peers: bool,
    public: Path | None,
    ranks: bool,
    fresh: bool,
    within: float | None,
    record: bool,
) -> None:
    """Whether advice names a planted fault first, and what following it is worth.

    Rows are kept: an interrupted benchmark continues with the next call.
    """
    from instructor.bench import checkup, late_ranks

    if ranks:
        _run(late_ranks.run, (), record)
        return
    _run(checkup.run, (steps, minutes, rounds, only, peers, public, fresh, within), record)


@bench.command(epilog="Example: course bench gpu --minutes 10")
@click.option(
    "--minutes", type=click.FloatRange(1), help="Stop after that; the next call continues."
)
@click.option(
    "--only",
    multiple=True,
    metavar="STEP",
    help="grading, tests, smoke, UNIT, UNIT/PART, linear, race, ncf, grouping, copies or checkup; "
    "may be given several times.",
)
@click.option("--fresh", is_flag=True, help="Forget the steps that are kept.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="At smoke size, on a pretended CUDA device: build/results-gpu-dry.md.",
)
def gpu(minutes: float | None, only: tuple[str, ...], fresh: bool, dry_run: bool) -> None:
    """Benchmark the course on a GPU, in steps with time limits, into its record."""
    from instructor.bench import gpu

    gpu.run(dry_run, minutes, only, fresh)
