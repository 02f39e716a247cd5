"""Write the notebooks of the masters: source and release of each part, and the list of all parts.

An edited learner's notebook is never overwritten. How a notebook is made of a master is in
masters.py, how it is run in execute.py.
"""

from pathlib import Path

from nbformat import NotebookNode

from course.learner.copies import is_edited, write_notebook
from course.notebook.cells import cells_of
from course.notebook.registry import all_units, parts, solutions_folder
from course.system.files import write_text
from course.system.folders import ROOT
from instructor.authoring.masters import release_notebook, source_notebook, text_of
from instructor.authoring.prose import measured

CONTENTS_HEAD = """\
<!-- Built from the masters by `course build`: edit those. -->

# All parts

A part is one notebook. A session of two hours leaves 95 minutes for the core of a unit; \
a unit with more has two
sessions. Extra exercises go further, and the core does not need them; a part with – for the core \
has only extra exercises.
The minutes include reading text and code, for somebody new to the topic. `solutions/` holds \
every part solved, with its
outputs.

| part | question | session | minutes, core | in all |
|---|---|---|---|---|"""


def write_release(path: Path, nb: NotebookNode) -> str:
    """Write the learner's notebook `nb` to `path`, unless the one that lies there was edited.

    Returns: what `write_notebook` does.
    """
    return write_notebook(path, text_of(nb))


def build(unit: str, part: str, root: Path = ROOT) -> tuple[NotebookNode, str]:
    """Write source and release of a part below `root`.

    Returns: the source notebook, and a line on what was done.
    """
    nb = source_notebook(unit, part)
    source = root / "build" / "source" / unit / f"{part}.ipynb"
    if not source.exists() or source.read_text(encoding="utf-8") != text_of(nb):
        write_text(source, text_of(nb))
    release = root / "notebooks" / unit / f"{part}.ipynb"
    done = write_release(release, release_notebook(nb))
    if done == "kept":
        done += " (it has your edits or results; rename it to get the new version)"
    length = measured(cells_of(nb), solutions_folder() / unit / f"{part}.ipynb")
    return nb, f"{release.relative_to(root)}: {done} ({length})"


def remove_gone(unit: str, root: Path = ROOT) -> list[str]:
    """Remove notebooks below `root` whose part is gone, as long as nobody has worked in them.

    nbgrader would take such a source notebook for a part of the assignment.

    Returns: the names of what was removed.
    """
    there = parts(unit)
    removed = []
    for folder in ("build/source", "notebooks"):
        for path in sorted((root / folder / unit).glob("[0-9]_*.ipynb")):
            is_ours = folder == "build/source" or not is_edited(path)
            if path.stem not in there and is_ours:
                path.unlink()
                removed.append(path.relative_to(root).as_posix())
    return removed


def contents() -> str:
    """notebooks/README.md: every part with its question and minutes."""
    lines = [CONTENTS_HEAD]
    for unit in all_units():
        minutes = f"**{unit.core_minutes}** | **{unit.all_minutes}**"
        lines.append(f"| **{unit.name[:2]} {unit.title}** | | | {minutes} |")
        for part in unit.parts:
            link = f"[{part.number} {part.title}]({unit.name}/{part.name}.ipynb)"
            minutes = f"{part.core_minutes or '–'} | {part.all_minutes}"
            session = part.session if part.core_minutes else "–"
            lines.append(f"| {link} | {part.question} | {session} | {minutes} |")
    return "\n".join([*lines, ""])


def write_contents(root: Path = ROOT) -> None:
    """Write the list of all parts below `root`."""
    write_text(root / "notebooks" / "README.md", contents())
