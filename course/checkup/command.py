"""`course checkup SCRIPT ...`: run a training as it is, and report."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from course.checkup.report import Report

PASSED_ON = {"allow_interspersed_args": False}  # options after SCRIPT are the script's


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
    help="Watch no longer, and try no longer.",
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
    "--fail-if", metavar="CONDITION", help='Exit with code 1 if it holds, such as "data > 20%".'
)
@click.option(
    "--plan",
    "cluster",
    metavar="CLUSTER",
    help="Say how it would run on other devices, such as 8xH100@450GB/s or 8x24GB@10GB/s.",
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
    fail_if: str | None,
    cluster: str | None,
    is_module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT for some steps, unchanged, and say where its time goes and what would help.

    Everything after SCRIPT is for the script. It trains as always, writes what it always writes,
    and is ended after the steps; its exit code stays if it ends earlier.
    """
    from course.checkup import condition, plan, run
    from course.checkup import script as scripts
    from course.checkup.watch import Watch

    failure = condition.parse(fail_if) if fail_if else None
    devices = plan.parse(cluster) if cluster else None
    found = scripts.find(script, is_module)
    with scripts.as_main(found, arguments) as module:
        with Watch(steps, minutes) as watch:
            ending = scripts.run(found.code, module)
        name = os.path.basename(found.path)
        if not watch.steps:
            _end_without_steps(scripts.why_no_step(watch.seen, ending, name), ending.code)
        tries = not only_watch and not ending.code
        report = run.analyse(watch, name, ending.how, tries, with_compile)
    if os.environ.get("RANK", "0") == "0":  # of several ranks the first reports
        _show(report, html_file, json_file)
        if devices:
            print("\n" + plan.text(report.facts, devices))
    fails = failure is not None and failure.holds(report)
    if fails:
        print(f"fails: {fail_if}", file=sys.stderr)
    sys.exit(ending.code or int(fails))


def _end_without_steps(sentence: str, code: int) -> None:
    """Say why there is nothing to report.  Raises: CourseError, or SystemExit with the code."""
    from course.errors import CourseError

    if not code:
        raise CourseError(sentence)
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(code)


def _show(report: "Report", html_file: Path | None, json_file: Path | None) -> None:
    """Print the report and write its files."""
    from course.checkup.html import page

    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print("\n" + report.text(coloured))
    if json_file:
        json_file.write_text(report.json(), encoding="utf-8")
    if html_file:
        html_file.write_text(page(report), encoding="utf-8")
