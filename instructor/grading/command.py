"""`course grade INBOX` and `course demo`.  The command lines alone; batch.py does the work.

The process that runs learners' code starts before all slow imports, and imports while this one
does.
"""

import contextlib
import gc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from course.errors import CourseError, command
from course.system.folders import ROOT
from instructor.grading.limits import OPTIONS, CourseGrading, shown_value
from instructor.jail.zygote import Zygote

if TYPE_CHECKING:  # imports nbconvert, which would keep the zygote from starting
    from instructor.release.asked import Choice

EXAMPLE = """
\b
    course grade submitted
    course grade "my inbox" --unit 03_large_batch --workers 4 --feedback
    course grade submitted --release class          # count what that class release asks
    course grade submissions.zip                    # as Moodle, Canvas or Blackboard gives it
    course grade --export moodle                    # scores for the platform

These numbers and all others can also be set in nbgrader_config.py (docs/grading.md).
"""


class Setting(click.ParamType):
    """partition=cpu -> ("partition", "cpu"); a whole number becomes one."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str | int]:
        """Return the name and the value; fail if the text is not NAME=VALUE."""
        if not isinstance(value, str):  # converted already
            return value[0], value[1]
        name, equals, text = value.partition("=")
        if not (name and equals and text):
            self.fail(f"NAME=VALUE, as in partition=cpu, was expected; found {value}", param, ctx)
        return name, int(text) if text.isdecimal() else text


def number(name: str, kind: Any = float) -> Callable[[Any], Any]:
    """A click option that sets a number of limits.CourseGrading."""
    trait = CourseGrading.class_traits()[name]
    shown = shown_value(name)
    return click.option(
        OPTIONS[name], name, type=kind, default=None, show_default=shown, help=trait.help
    )


@click.command(epilog=f"Examples:\n{EXAMPLE}")
@click.argument("inbox", required=False, type=click.Path(path_type=Path))
@click.option("--unit", "units", multiple=True, help="Only this unit (may be repeated).")
@click.option(
    "--release", type=click.Path(path_type=Path), help="A class release: count only what it asks."
)
@click.option(
    "--ask",
    metavar="core|NAME,...",
    help="Count only these exercises, as `course release --ask` does.",
)
@number("workers", click.IntRange(1))
@click.option(
    "--cluster", type=click.Choice(["slurm", "local"]), help="Grade by tasks of a scheduler."
)
@number("cluster_tasks", click.IntRange(1))
@click.option(
    "--slurm", multiple=True, type=Setting(), help="For the scheduler: partition=cpu, time=60, ..."
)
@click.option(
    "--course",
    default=ROOT,
    type=click.Path(path_type=Path),
    show_default="here",
    help="Where gradebook.db, autograded/ and feedback/ lie.",
)
@click.option(
    "--again", is_flag=True, help="Grade again what was graded before and has not changed."
)
@click.option("--feedback", is_flag=True, help="Also make the pages that learners get.")
@click.option(
    "--export",
    "forms",
    multiple=True,
    type=click.Choice(["moodle", "canvas", "gradescope"]),
    help="Write the scores in this platform's form (may be repeated); needs no INBOX.",
)
@number("memory_gib")
@number("cell_seconds")
@number("answer_seconds")
@number("patience_seconds")
@number("submission_minutes")
@click.option("--cuda", is_flag=True, help="Check on the GPU, which submissions then see.")
@click.option("--unsafe", is_flag=True, help="Without bubblewrap: learners' code gets your rights.")
@command
def grade(
    inbox: Path | None,
    release: Path | None,
    ask: str | None,
    slurm: Sequence[Any],
    forms: Sequence[str],
    **options: Any,
) -> None:
    """Grade a class: INBOX/<learner>/<unit>/<part>.ipynb to a gradebook, a table and an item
    analysis.

    INBOX holds one folder per learner, as nbgrader's submitted/, or is the archive that a learning
    platform gives.
    """
    if inbox is None and not forms:
        raise CourseError("name an inbox: course grade INBOX (or --export FORM without one).")
    if inbox is not None:
        _grade(inbox, release, ask, slurm, options)
    if forms:
        _export(forms, options)


def _grade(
    inbox: Path,
    release: Path | None,
    ask: str | None,
    slurm: Sequence[Any],
    options: dict[str, Any],
) -> None:
    """Grade an inbox, by processes that start before all slow imports."""
    given = {name: options.pop(name) for name in OPTIONS}
    numbers = {name: value for name, value in given.items() if value is not None}
    with _zygote_unless_cluster(options) as zygote:
        gc.disable()  # or Python looks through all that it imports, again and again
        # seconds, while the zygote imports what it needs
        from instructor.grading import batch

        gc.freeze()
        gc.enable()
        asked = _asked(release, ask, options["units"])
        if release or ask:
            options["asked_by"] = f"--release {release}" if release else f"--ask {ask}"
        what = batch.Options(inbox, asked=asked, numbers=numbers, slurm=dict(slurm), **options)
        batch.run(what, zygote)
    gc.freeze()  # or Python looks through everything once more at its end, for a second


def _export(forms: Sequence[str], options: Mapping[str, Any]) -> None:
    """Write the scores of the course folder in these forms."""
    from course.notebook.registry import find_parts
    from instructor.grading.export import export

    only = {unit for name in options["units"] for unit, _ in find_parts(name)}
    for form in forms:
        print(export(form, options["course"], only))


def _zygote_unless_cluster(options: Mapping[str, Any]) -> Any:
    if options["cluster"]:
        return contextlib.nullcontext()
    return Zygote(options["unsafe"], options["cuda"])


def _asked(release: Path | None, ask: str | None, units: Sequence[str]) -> "Choice | None":
    """What counts, of a class release or of --ask; None for all there is."""
    if release and ask:
        raise CourseError("--release and --ask both say what counts; give one of them.")
    if not release and not ask:
        return None
    from instructor.release.asked import of_release, resolve

    if release:
        return of_release(release)
    return resolve(ask or "all", list(units))


@click.command()
def demo() -> None:
    """Build everything and grade a solved and an untouched submission of every unit.

    nbgrader itself grades one unit, course grade the others; it takes two minutes and fails unless
    the solved ones score all points and the untouched ones none. Everything lies in build/demo.

    \b
    Example:
      course demo
    """
    from instructor.grading.demo import demo as run

    run()
