"""`course checkup SCRIPT ...`: run a training as it is, and report."""

import os
import sys
from pathlib import Path

import click

PASSED_ON = {"allow_interspersed_args": False}  # options after SCRIPT are the script's


def _compare(
    context: click.Context, parameter: click.Parameter, files: tuple[Path, Path] | None
) -> None:
    """Print the comparison of two reports and end."""
    if files:
        from course.checkup.compare import compare_files

        click.echo(str(compare_files(*files)))
        context.exit()


@click.command(
    context_settings=PASSED_ON,
    short_help="Look where your own training loses time.",
    epilog="Example: course checkup --steps 100 train.py --lr 0.1",
)
@click.option(
    "--steps",
    type=click.IntRange(4),
    default=60,
    show_default=True,
    help="Watch at least so many steps.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0.01),
    default=3.0,
    show_default=True,
    help="Watch no longer; trials of the step and of loaders may take as long again each.",
)
@click.option("--only-watch", is_flag=True, help="Try nothing after it.")
@click.option(
    "--compile", "with_compile", is_flag=True, help="Try torch.compile, too, which takes a minute."
)
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report with figures, too.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all numbers, too.",
)
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write ten steps for Perfetto, too.",
)
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="BEFORE AFTER",
    is_eager=True,
    expose_value=False,
    callback=_compare,
    help="Run nothing: compare two files of --json.",
)
@click.option(
    "--fail-if", metavar="CONDITION", help='Exit with code 1 if it holds, such as "data > 20%".'
)
@click.option(
    "--plan",
    "cluster",
    metavar="CLUSTER",
    help="Say how it would run on other devices, such as 8xH100@450GB/s, or on those of a TOML "
    "file: see docs/checkup.md.",
)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module's name, as for python -m.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def checkup(
    steps: int,
    minutes: float,
    only_watch: bool,
    with_compile: bool,
    html_file: Path | None,
    json_file: Path | None,
    trace_file: Path | None,
    fail_if: str | None,
    cluster: str | None,
    is_module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT for some steps, unchanged, and say where its time goes and what would help.

    Everything after SCRIPT is for the script. It trains as always, writes what it always writes,
    and is ended after the steps; its exit code stays if it ends earlier. For several ranks:
    torchrun --nproc-per-node 2 -m course.checkup SCRIPT.
    """
    from course.checkup import cluster as clusters
    from course.checkup import condition
    from course.checkup import script as scripts
    from course.checkup.session import Session

    found = scripts.find(script, is_module)
    session = Session(
        name=os.path.basename(found.path),
        tries=not only_watch,
        with_compile=with_compile,
        html_file=html_file,
        json_file=json_file,
        trace_file=trace_file,
        fail_if=fail_if,
        failure=condition.parse(fail_if) if fail_if else None,
        cluster=clusters.parse(cluster) if cluster else None,
    )
    with scripts.as_main(found, arguments) as module:
        sys.exit(session.run(found.code, module, steps, minutes))
