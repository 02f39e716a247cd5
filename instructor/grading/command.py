"""`course grade INBOX` and `course demo`.  The command lines alone; batch.py does the work.

The process that runs learners' code starts before all slow imports, and imports while this one
does.
"""

import contextlib
import gc
from pathlib import Path

import click

from course.device import cores
from course.errors import CourseError, command
from course.system.folders import ROOT
from instructor.jail.zygote import Room, Zygote

EXAMPLE = """
\b
    course grade submitted
    course grade "my inbox" --unit 03_large_batch --workers 4 --feedback
    course grade submitted --release class          # count what that class release asks
"""


class Setting(click.ParamType):
    """partition=cpu -> ("partition", "cpu"); a whole number becomes one."""

    name = "NAME=VALUE"

    def convert(self, value, param, ctx):
        name, equals, text = (
            value.partition("=") if isinstance(value, str) else (value[0], "=", value[1])
        )
        if not (name and equals and text):
            self.fail(f"NAME=VALUE, as in partition=cpu, was expected; found {value}", param, ctx)
        return name, int(text) if isinstance(text, str) and text.isdecimal() else text


@click.command(epilog=f"Examples:\n{EXAMPLE}")
@click.argument("inbox", type=click.Path(path_type=Path))
@click.option("--unit", "units", multiple=True, help="Only this unit (may be repeated).")
@click.option(
    "--release", type=click.Path(path_type=Path), help="A class release: count only what it asks."
)
@click.option(
    "--ask",
    metavar="core|NAME,...",
    help="Count only these exercises, as `course release --ask` does.",
)
@click.option("--workers", type=click.IntRange(1), default=cores(), show_default="cores",
              help="Submissions graded at the same time.")  # fmt: skip
@click.option(
    "--cluster", type=click.Choice(["slurm", "local"]), help="Grade by tasks of a scheduler."
)
@click.option(
    "--jobs",
    "tasks",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Tasks on the cluster.",
)
@click.option(
    "--slurm", multiple=True, type=Setting(), help="For the scheduler: partition=cpu, time=60, ..."
)
@click.option("--course", default=ROOT, type=click.Path(path_type=Path), show_default="here",
              help="Where gradebook.db, autograded/ and feedback/ lie.")  # fmt: skip
@click.option(
    "--again", is_flag=True, help="Grade again what was graded before and has not changed."
)
@click.option("--feedback", is_flag=True, help="Also make the pages that learners get.")
@click.option(
    "--memory", type=float, default=4, show_default=True, help="GiB that one notebook may take."
)
@click.option("--cell-seconds", type=float, default=Room.cell_seconds, show_default=True,
              help="Seconds that a cell of the learner's may take.")  # fmt: skip
@click.option("--answer-seconds", type=float, default=Room.answer_seconds, show_default=True,
              help="Seconds that an answer may take, where its exercise does not allow less.")  # fmt: skip
@click.option("--patience", type=float, default=Room.patience, show_default=True,
              help="Seconds beyond either limit, on a busy machine.")  # fmt: skip
@click.option("--minutes", type=float, default=Room.submission_seconds / 60, show_default=True,
              help="Minutes that all code of a submission may take.")  # fmt: skip
@click.option("--cuda", is_flag=True, help="Check on the GPU, which submissions then see.")
@click.option("--unsafe", is_flag=True, help="Without bubblewrap: learners' code gets your rights.")
@command
def grade(inbox, release, ask, memory, cell_seconds, answer_seconds, patience, minutes, **options):
    """Grade a class: INBOX/<learner>/<unit>/<part>.ipynb to a gradebook, a table and an item
    analysis.

    INBOX holds one folder per learner, as nbgrader's submitted/; nothing is ever written there.
    """
    limits = dict(cell_seconds=cell_seconds, answer_seconds=answer_seconds, patience=patience)
    limits["submission_seconds"] = 60 * minutes
    room = Room(memory=int(memory * 2**30), **limits)
    with (
        contextlib.nullcontext()
        if options["cluster"]
        else Zygote(options["unsafe"], options["cuda"]) as zygote
    ):
        gc.disable()  # or Python looks through all that it imports, again and again
        # seconds, while the zygote imports what it needs
        from instructor.grading.batch import (
            Options,
            run,
        )

        gc.freeze()
        gc.enable()
        run(
            Options(
                inbox,
                asked=_asked(release, ask, options["units"]),
                room=room,
                **options | {"slurm": dict(options["slurm"])},
            ),
            zygote,
        )
    gc.freeze()  # or Python looks through everything once more at its end, for a second


def _asked(release, ask, units):
    """{unit: {part: names that count}} of a class release or of the option --ask; None for all
    there are.
    """
    if release and ask:
        raise CourseError("--release and --ask both say what counts; give one of them.")
    if not release and not ask:
        return None
    from instructor.release.asked import of_release, resolve

    return of_release(release) if release else resolve(ask, list(units))


@click.command()
def demo():
    """Build everything and grade a solved and an untouched submission of every unit.

    nbgrader itself grades one unit, course grade the others; it takes two minutes and fails unless
    the solved ones score all points and the untouched ones none. Everything lies in build/demo.

    \b
    Example:
      course demo
    """
    from instructor.grading.demo import demo as run

    run()
