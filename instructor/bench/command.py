"""`course bench NAME`: the command lines of all benchmarks. Each is imported when it runs, with all
that it needs.
"""

from pathlib import Path

import click

POSITIVE = click.IntRange(1)


class Size(click.ParamType):
    """(rows, columns) of "200000x1000"."""

    name = "NxD"

    def convert(self, value, param, ctx):
        rows, _, columns = value.partition("x")
        if not (rows.isdecimal() and columns.isdecimal()):
            self.fail(f"{value} is not a size; write rows x columns like 200000x1000", param, ctx)
        return int(rows), int(columns)


def _rounds(default):
    return click.option(
        "--rounds",
        type=POSITIVE,
        default=default,
        show_default=True,
        help="How often each is timed.",
    )


def _batch_size(default, text="Items per batch."):
    return click.option(
        "--batch-size", type=POSITIVE, default=default, show_default=True, help=text
    )


@click.group(epilog="Example: course bench loading epochs --rounds 3")
def bench():
    """Run a benchmark: contestants take turns, and the tables show medians with their spread and
    the machine.
    """


@bench.command(epilog="Example: course bench lfw paths --batch-size 32")
@click.argument("what", type=click.Choice(["paths"]))
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Holds <Person>/<image>.jpg (default: prepared LFW).",
)
@_rounds(7)
@_batch_size(64, "Images per batch.")
def lfw(what, folder, rounds, batch_size):
    """How fast LFW can be loaded: decoders, workers and threads, at equal pixels."""
    from instructor.bench import lfw

    lfw.paths(folder, rounds, batch_size)


@bench.command(epilog="Example: course bench loading epochs --sizes 200000x1000")
@click.argument("what", type=click.Choice(["epochs", "sgd"]))
@click.option("--sizes", type=Size(), multiple=True, default=["200000x1000", "100000x4000"], show_default=True,
              help="Rows x columns of the data (may be repeated).")  # fmt: skip
@_rounds(7)
@_batch_size(2048, "Rows per batch.")
@click.option(
    "--ffcv",
    type=click.Path(path_type=Path),
    help="Holds FFCV's packages, where it is not installed.",
)
def loading(what, sizes, rounds, batch_size, ffcv):
    """How fast rows reach a linear regression, against memcpy, PyTorch's loaders and FFCV where
    there is one.
    """
    from instructor.bench import loading

    loading.run(what, sizes, rounds, batch_size, ffcv)


@bench.command("data-parallel", epilog="Example: course bench data-parallel steps --ranks 4")
@click.argument("what", type=click.Choice(["steps"]))
@click.option("--ranks", type=POSITIVE, default=2, show_default=True, help="Number of processes.")
@_rounds(31)
@_batch_size(64, "Images per rank.")
def data_parallel(what, ranks, rounds, batch_size):
    """What DDP by hand costs compared with torch's."""
    from instructor.bench import data_parallel

    data_parallel.steps(ranks, rounds, batch_size)


@bench.group(epilog="Example: course bench ncf accuracy --model dot --factors 64")
def ncf():
    """Neural Collaborative Filtering on MovieLens 1M."""


@ncf.command(epilog="Example: course bench ncf accuracy --model neumf --factors 32 --seeds 3")
@click.option(
    "--model",
    type=click.Choice(["neumf", "dot"]),
    default="neumf",
    show_default=True,
    help="Which one.",
)
@click.option(
    "--factors",
    type=POSITIVE,
    multiple=True,
    default=[8, 32],
    show_default=True,
    help="May be repeated.",
)
@click.option(
    "--epochs", type=POSITIVE, default=20, show_default=True, help="Passes over the training data."
)
@click.option(
    "--seeds",
    type=POSITIVE,
    default=3,
    show_default=True,
    help="Runs with the settings that are chosen.",
)
def accuracy(model, factors, epochs, seeds):
    """HR@10 and NDCG@10 on ML-1M: settings chosen on validation items, tested once on the test
    items.
    """
    from instructor.bench import ncf

    for number in factors:
        ncf.accuracy(model, number, epochs, seeds)


@ncf.command(epilog="Example: course bench ncf critical --optimizer adam --batch 1024 --batch 4096")
@click.option("--optimizer", type=click.Choice(["sgd", "adam", "lars"]), multiple=True, default=["sgd", "adam", "lars"],
              show_default=True, help="Whose learning rates are searched.")  # fmt: skip
@click.option("--batch", type=POSITIVE, multiple=True, default=[1024, 4096, 16384, 49152, 147456], show_default=True,
              help="Batch sizes, rising.")  # fmt: skip
@click.option(
    "--seeds", type=POSITIVE, default=3, show_default=True, help="Runs with each learning rate."
)
@click.option(
    "--target",
    type=click.FloatRange(0, 1),
    default=0.55,
    show_default=True,
    help="Validation HR@10.",
)
def critical(optimizer, batch, seeds, target):
    """Updates to a target against batch size, learning rates searched: the table in part 3 of unit
    03.
    """
    from instructor.bench import critical_batch

    critical_batch.run(optimizer, sorted(batch), seeds, target)


@bench.command(epilog="Example: course bench grouping --asym asym-main --rounds 3")
@click.argument("what", type=click.Choice(["epochs", "thresholds"]), default="epochs")
@click.option(
    "--asym",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Holds asym's package, to take part.",
)
@click.option(
    "--dims",
    type=POSITIVE,
    multiple=True,
    default=[64, 256, 1024],
    show_default=True,
    help="Embeddings.",
)
@_rounds(5)
def grouping(what, asym, dims, rounds):
    """How fast batches of ragged sequences train, padded, grouped and flat, and asym if you have
    it.
    """
    from instructor.bench import grouping

    grouping.run(what, asym, dims, rounds)


@bench.command(epilog="Example: course bench speedrun --seeds 1")
@click.option(
    "--seeds", type=POSITIVE, default=3, show_default=True, help="Runs of each contestant."
)
@click.option(
    "--target",
    type=click.FloatRange(0, 1),
    default=0.9,
    show_default=True,
    help="Validation accuracy.",
)
def speedrun(seeds, target):
    """How long Fashion-MNIST takes to 90 %, plain, with all advice of unit 06, and with each piece
    left out.
    """
    from instructor.bench import speedrun

    speedrun.run(seeds, target)


@bench.command(epilog="Example: course bench grading all --cohort 1000")
@click.argument("unit", default="03_large_batch")
@click.option(
    "--submissions", type=POSITIVE, default=6, show_default=True, help="Solved ones, for the ratio."
)
@_rounds(3)
@click.option(
    "--cohort",
    type=POSITIVE,
    metavar="N",
    help="Instead: kill and resume a batch of N submissions.",
)
def grading(unit, submissions, rounds, cohort):
    """How fast UNIT, or all units, are graded compared with nbgrader autograde, and whether a
    killed batch resumes.
    """
    from course.notebook.registry import parts, units
    from instructor.bench import grading

    if unit != "all":
        parts(unit)  # says what the units are, if this is none
    grading.run(units() if unit == "all" else [unit], submissions, rounds, cohort)


@bench.command(epilog="Example: course bench checks")
def checks():
    """How long a learner waits for a check, with right and with wrong answers."""
    from instructor.bench import checks

    checks.run()


@bench.command(epilog="Example: course bench checkup --only padding")
@click.option(
    "--steps",
    type=POSITIVE,
    default=60,
    show_default=True,
    help="Steps that are watched, and timed.",
)
@_rounds(5)
@click.option("--only", multiple=True, metavar="SCRIPT", help="Of tests/planted (may be repeated).")
@click.option("--public", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="FOLDER",
              help="Try public scripts, too: clones of pytorch/examples, karpathy/nanoGPT and others.")  # fmt: skip
def checkup(steps, rounds, only, public):
    """Whether the check-up names a planted fault first, and what following its advice is worth."""
    from instructor.bench import checkup

    checkup.run(steps, rounds, only, public)


@bench.command(epilog="Example: course bench gpu --minutes 10")
@click.option(
    "--minutes", type=click.FloatRange(1), help="Stop after that; the next call continues."
)
@click.option("--only", multiple=True, metavar="STEP", help="tests, UNIT, UNIT/PART, ncf, linear, grouping, copies, "
              "race, grading or checkup; may be given several times.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Forget the steps that are kept.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="At smoke size, on a pretended CUDA device: build/results-gpu-dry.md.",
)
def gpu(minutes, only, fresh, dry_run):
    """Benchmark the course on a GPU, in steps with time limits, into docs/results-gpu.md."""
    from instructor.bench import gpu

    gpu.run(dry_run, minutes, only, fresh)
