"""The command `course release`; class_folder.py does the work."""

from pathlib import Path

import click


@click.command()
@click.argument("dest", type=click.Path(path_type=Path))
@click.option(
    "--ask",
    default="all",
    show_default=True,
    metavar="core|NAME,...",
    help="Which exercises are asked.",
)
@click.option("--unit", "units", multiple=True, help="Release this unit only (may be repeated).")
@click.option(
    "--part",
    "parts",
    multiple=True,
    metavar="UNIT/PART",
    help="Release this part only (may be repeated).",
)
@click.option(
    "--install", "url", metavar="URL", help="The folder on the web where you will put the wheel."
)
def release(
    dest: Path, ask: str, units: tuple[str, ...], parts: tuple[str, ...], url: str | None
) -> None:
    """Make the folder DEST that a class gets: notebooks and package, no solutions.

    DEST is a new or empty folder, or an earlier release, in which nobody's work is overwritten.
    Exercises that are not asked are there solved, as given code; `course grade INBOX --release
    DEST` counts what was asked.

    \b
    Examples:
      course release ../class
      course release ../class --ask core
      course release ../class --ask Loader,fast_loading/gather --unit 04
      course release ../class --part 04/1 --part 04/2
      course release ../class --install https://example.org/class
    """
    from instructor.release.asked import resolve
    from instructor.release.class_folder import make_release

    make_release(dest, resolve(ask, [*units, *parts]), url)
