"""`course checkup SCRIPT ...`: run a training as it is, and report."""

import os
import sys
from pathlib import Path

import click

PASSED_ON = {"allow_interspersed_args": False}


@click.command(
    context_settings=PASSED_ON, short_help="Look where your own training loses time.",
    epilog="Example: course checkup --steps 100 train.py --lr 0.1",
)  # fmt: skip
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
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module's name, as for python -m.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def checkup(
    steps, minutes, only_watch, with_compile, html, json_file, fail_if, is_module, script, arguments
):
    """Run SCRIPT for some steps, unchanged, and say where its time goes and what would help.

    Everything after SCRIPT is for the script. It trains as always, writes what it always writes,
    and is ended after the steps; its exit code stays if it ends earlier.
    """
    from course.checkup import report as reports
    from course.checkup import script as scripts
    from course.checkup.watch import Watch
    from course.errors import CourseError

    code, path, spec = scripts.find(script, is_module)
    if fail_if:
        # refuses what it cannot read
        reports.fails({"phases": {}, "evaluation": {"share": 0}, "advice": []}, fail_if)
    with scripts.as_main(path, spec, list(arguments)) as module:
        with Watch(steps, minutes) as watch:
            ending = scripts.run(code, module)
        if not watch.steps:
            sentence = scripts.why_no_step(watch, ending, os.path.basename(path))
            if not ending.code:
                raise CourseError(sentence)
            print(f"error: {sentence}", file=sys.stderr)
            sys.exit(ending.code)
        tries = not (only_watch or ending.code)
        report = reports.make(watch, os.path.basename(path), ending.how, tries, with_compile)
    _show(report, html, json_file)
    failed = fail_if and reports.fails(report.data, fail_if)
    if failed:
        print(f"fails: {fail_if}", file=sys.stderr)
    sys.exit(ending.code or int(bool(failed)))


def _show(report, html, json_file):
    """Print the report and write its files; of several ranks the first alone."""
    from course.checkup.html import page

    if os.environ.get("RANK", "0") != "0":
        return
    print("\n" + report.text(coloured=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    if json_file:
        json_file.write_text(report.json(), encoding="utf-8")
    if html:
        html.write_text(page(report), encoding="utf-8")
