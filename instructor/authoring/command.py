"""The commands of authors: course build, course new exercise."""

from collections.abc import Iterable

import click

# Each command imports what it needs when it runs: jupytext, nbgrader and torch take seconds,
# `--help` should not.


@click.command()
@click.argument("parts", nargs=-1, metavar="[UNIT[/PART]]...")
@click.option(
    "--execute",
    is_flag=True,
    help="Also run the solved notebooks and keep their outputs (minutes).",
)
def build(parts: tuple[str, ...], execute: bool) -> None:
    """Build notebooks from the masters in solutions/, and pages of docs/ from recorded/.

    Every unit is built unless units or parts are named. A learner's notebook that has edits is kept
    as it is. With --execute, what the parts measured goes into the record of this machine.

    \b
    Examples:
      course build
      course build 04
      course build --execute fast_loading/2
    """
    from instructor.authoring.build import build as build_part
    from instructor.authoring.build import remove_gone, write_contents
    from instructor.authoring.documents import write_documents
    from instructor.authoring.execute import execute as execute_parts
    from instructor.authoring.lint import lint_unit
    from instructor.authoring.masters import refuse
    from instructor.authoring.records import record_executed

    wanted = selected(parts)
    for unit, names in wanted.items():
        refuse(unit, lint_unit(unit))
        for part in names:
            click.echo(build_part(unit, part)[1])
        for name in remove_gone(unit):
            click.echo(f"{name}: removed, its part is gone")
    write_contents()
    if execute:
        for unit, names in wanted.items():
            measured = execute_parts(
                unit, names, progress=lambda text: click.echo(f"{text}\r", nl=False)
            )
            for line in record_executed(unit, measured):
                click.echo(line)
    click.echo(write_documents())


@click.group()
def new() -> None:
    """Start something new, as in course new exercise 04/1 clipped_norm."""


@new.command()
@click.argument("place", metavar="UNIT[/PART]")
@click.argument("name")
@click.option(
    "--after",
    metavar="EXERCISE",
    help="Put it behind this exercise (default: at the end of the part).",
)
def exercise(place: str, name: str, after: str | None) -> None:
    """Make the files and cells of exercise NAME, which work as they are.

    The probe, the known mistakes and the cells in the master double a tensor; make yours of them
    and work off every TODO. CONTRIBUTING.md goes through the steps.

    \b
    Examples:
      course new exercise 03/2 clipped_norm
      course new exercise large_batch/2 clipped_norm --after scaled_lr
    """
    from instructor.authoring.new import new_exercise

    for line in new_exercise(place, name, after):
        click.echo(line)
    click.echo(f"Now work off the TODOs: course build {place} lists them.")
    click.echo(f"Then test it: .venv/bin/python -m pytest -k {name}")


def selected(asked: Iterable[str]) -> dict[str, list[str]]:
    """{unit: parts} of what was named on the command line, or of everything."""
    from course.notebook.registry import all_parts, find_parts

    found = []
    for name in asked:
        found += find_parts(name)
    parts_of_unit = {}
    for unit, part in sorted(set(found or all_parts())):
        parts_of_unit.setdefault(unit, []).append(part)
    return parts_of_unit
