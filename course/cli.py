"""The command `course`: each verb belongs to a package, which is imported when its verb is called.

So `course --help` answers quickly: it loads neither torch nor nbgrader. Other packages add verbs
through the entry points of the group `course.verbs`: each names a table like ELSEWHERE. The
instructor's package does; a class has none.
"""

import contextlib
import importlib
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import click

from course.errors import CourseError
from course.learner import copies
from course.notebook.registry import near
from course.system.folders import ROOT, data_folder

DATA = ("movielens", "lfw", "fashion", "regression")  # data_scripts/<name>.py
MOVIELENS = ("ml-100k", "ml-1m")  # what `course data --download` gets by default

# verb -> (module, the command in it, what `course --help` says)
ELSEWHERE = {
    "checkup": (
        "course.checkup.command",
        "checkup",
        "Look where your own training loses time, and what would help.",
    ),
    "loader-report": (
        "course.commands.loader_report",
        "loader_report",
        "Say how random and how fast the batches of your own loader are.",
    ),
}
# what packages add that are not installed
more_points: list[importlib.metadata.EntryPoint] = []
# verbs of instructor/verbs.py
INSTRUCTORS = "bench book build demo grade guide new release slides".split()
SETTINGS = dict(help_option_names=["-h", "--help"], max_content_width=100)


class Verbs(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all verbs."""
        return [*self.commands, *elsewhere()]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a verb, imported now; None if there is no such verb."""
        known = elsewhere()
        if name in self.commands or name not in known:
            return self.commands.get(name)
        module, attribute, _ = known[name]
        return getattr(importlib.import_module(module), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """(verb, its command, the other arguments), as click wants it.

        Raises: CourseError if there is no such verb.
        """
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            if name in INSTRUCTORS:
                raise CourseError(_for_instructors(f"course {name}"))
            choices = near(name, self.list_commands(ctx))
            raise CourseError(f"no command is called {name!r}; {choices}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs, without importing them."""
        rows = [(name, command.get_short_help_str(70)) for name, command in self.commands.items()]
        rows += [(name, sentence) for name, (_, _, sentence) in elsewhere().items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def elsewhere() -> dict[str, tuple[str, str, str]]:
    """{verb: (module, command, sentence)} of this package, and of others that add verbs."""
    verbs = dict(ELSEWHERE)
    for point in _entry_points("course.verbs"):
        with contextlib.suppress(ModuleNotFoundError):  # installed for another folder
            verbs |= point.load()
    return verbs


def _entry_points(group: str) -> list[importlib.metadata.EntryPoint]:
    """What packages, installed or not, add to this one."""
    added = [point for point in more_points if point.group == group]
    return [*importlib.metadata.entry_points(group=group), *added]


def _class_progress():
    """The function of the instructor's package that reads a class's folder.

    Raises: CourseError where it is missing.
    """
    for point in _entry_points("course.class_progress"):
        with contextlib.suppress(ModuleNotFoundError):
            return point.load()
    raise CourseError(_for_instructors("course progress --class"))


def _for_instructors(command):
    return (
        f"{command} is an instructor's command, "
        "and the package scaling-pytorch-course-instructor is not installed here; "
        "clone the course's repository and run `make install` in it."
    )


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line `argv` and exit.

    Whatever cannot be done is one sentence on stderr and an exit code other than 0.
    """
    try:
        sys.exit(verbs.main(argv, prog_name="course", standalone_mode=False))
    except CourseError as error:
        sys.exit(f"error: {error}")
    except click.ClickException as error:
        print(f"error: {_sentence(error)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        print("\nstopped", file=sys.stderr)
        sys.exit(130)


def _sentence(error):
    """What click complains about, and where to read on, in one line."""
    text = " ".join(error.format_message().split())
    if not text.endswith((".", "?")):
        text += "."
    context = getattr(error, "ctx", None)
    return f"{text} See {context.command_path} --help." if context else text


def _example(text):
    return {"epilog": f"Example: {text}"}


HELP = (
    "The workshop on scaling PyTorch training: open, check, and, for instructors, "
    "grade and build it."
)


@click.group(
    cls=Verbs,
    help=HELP,
    context_settings=SETTINGS,
    **_example("course lab    (course VERB --help shows more)"),
)
def verbs() -> None:
    """Run a verb of `course`."""


FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
PORT = "This port and no other (default: 8888 or the next free)."


@verbs.command(**_example("course lab --port 8899"))
@click.argument("folder", type=FOLDER, default=ROOT / "notebooks")
@click.option("--port", type=click.IntRange(1, 65535), help=PORT)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def lab(folder: Path, port: int | None, no_browser: bool) -> None:
    """Open JupyterLab on the notebooks, or on those in FOLDER."""
    from course.commands.lab import open_lab

    open_lab(port, browser=not no_browser, folder=os.path.abspath(folder))


@verbs.command(
    short_help="Say whether this machine is ready for the course.", **_example("course doctor")
)
def doctor() -> None:
    """Say whether this machine is ready for the course, and what to do if it is not.

    Fix every line that starts with NO; the exit code is then 1. A line that starts with -- only
    limits the course.
    """
    from course.commands.doctor import doctor as look_at_everything

    sys.exit(look_at_everything(click.echo))


FROM = "A folder or an archive that you have."
DOWNLOAD = "Get it from the network; an interrupted download resumes."
VARIANTS = "ml-100k, ml-1m, ml-20m (repeat for more)."


@verbs.command(
    short_help="Get the real data: download it, or take archives that you have.",
    **_example("course data lfw --from Downloads/lfw.tgz"),
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--from", "path", type=click.Path(exists=True), help=FROM)
@click.option("--download", is_flag=True, help=DOWNLOAD)
@click.option("--movielens", "variants", multiple=True, metavar="SET", help=VARIANTS)
@click.option("--rows", type=click.IntRange(1), help="Rows of the data that `regression` draws.")
@click.option("--columns", type=click.IntRange(1), help="Columns of it.")
def data(
    names: tuple[str, ...],
    path: str | None,
    download: bool,
    variants: tuple[str, ...],
    rows: int | None,
    columns: int | None,
) -> None:
    """Get the real data: NAME is lfw, movielens, fashion (all three by default) or regression.

    Data for `regression` are synthetic. The course works without any of them: it draws synthetic
    data.
    """
    for name in names:
        if name not in DATA:
            raise CourseError(f"no data set is called {name!r}; {near(name, list(DATA))}")
    if bool(path) == download and names != ("regression",):
        raise CourseError("say either --download or --from FOLDER.")
    source = ["--from", path] if path else ["--download"]
    for name in names or ("movielens", "lfw", "fashion"):
        if name == "regression":
            arguments = _size(rows, columns)
        elif name == "movielens":
            by_default = () if path else MOVIELENS
            arguments = [*(variants or by_default), *source]
        else:
            arguments = source
        _run_script(ROOT / "data_scripts" / f"{name}.py", arguments)


def _size(rows, columns):
    """The arguments of data_scripts/regression.py."""
    arguments = []
    if rows:
        arguments.append(f"--rows={rows}")
    if columns:
        arguments.append(f"--columns={columns}")
    return arguments


def _run_script(script, arguments):
    """Run a data script, which prints its own errors; if it fails, exit with its code."""
    done = subprocess.run([sys.executable, str(script), *arguments])
    if done.returncode:
        sys.exit(done.returncode)


@verbs.command(
    short_help="Check the answers in a notebook.",
    **_example("course check notebooks/04_fast_loading/1_a_file_and_a_fast_batch.ipynb gather"),
)
@click.argument("notebook", type=click.Path(path_type=Path))
@click.argument("exercises", nargs=-1, metavar="[EXERCISE]...")
def check(notebook: Path, exercises: tuple[str, ...]) -> None:
    """Check the answers in NOTEBOOK, all of them or the EXERCISEs named, without opening it.

    The exit code is 1 if one of them is not solved.  Experiments are not run.
    """
    from course.learner.check_notebook import check_notebook

    sys.exit(check_notebook(notebook, exercises))


@verbs.command(
    short_help="Copy the notebooks to a folder.", **_example("course notebooks ~/workshop")
)
@click.argument("dest", type=click.Path(path_type=Path))
def notebooks(dest: Path) -> None:
    """Copy the notebooks to the folder DEST; those that you worked in stay as they are."""
    for line in copies.copy_notebooks(ROOT, dest):
        click.echo(line)


@verbs.command(
    short_help="Bring your work from an older version's folder.",
    **_example("course update ../old-course"),
)
@click.argument("old", type=FOLDER)
def update(old: Path) -> None:
    """Bring your notebooks, answers and data from OLD, an older version's folder, to this one.

    OLD stays as it is. A notebook that has changed between the versions is put next to the new one,
    as "… (old).ipynb".
    """
    for line in copies.bring(old, ROOT, data_folder()):
        click.echo(line)


INBOX = "A folder with one folder per learner: show how far each is, and where most are stuck."


@verbs.command(**_example("course progress 04_fast_loading"))
@click.argument("units", nargs=-1, metavar="[UNIT]...")
@click.option("--class", "inbox", type=click.Path(path_type=Path), metavar="INBOX", help=INBOX)
def progress(units: tuple[str, ...], inbox: Path | None) -> None:
    """Show what you have solved, per unit and part, and what comes next.

    With one UNIT, such as 04 or 04/2, your predictions in it are listed, the worst first.
    """
    if inbox:
        click.echo(_class_progress()(inbox))
        return
    from course.learner import calibration
    from course.learner.progress import progress as table

    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    click.echo(table(*units).text(coloured=coloured))
    if len(units) == 1:
        with contextlib.suppress(CourseError):  # of a damaged file; the table told it
            predictions = calibration.of_place(units[0])
            if predictions:
                click.echo("\n" + calibration.text(units[0], predictions))


if __name__ == "__main__":
    main()
