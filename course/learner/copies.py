"""Notebooks in a learner's folder: written, renewed, brought from an older folder, and no edit or
result is lost.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from course.errors import CourseError
from course.system.files import write_text
from course.text import counted


def digest(nb: dict) -> str:
    """A string that changes when the source of any cell of the notebook `nb` does, or its tags."""
    text = "\0".join(
        f"{cell['metadata'].get('tags')} {''.join(cell['source'])}" for cell in nb["cells"]
    )
    return hashlib.sha256(text.encode()).hexdigest()


def is_edited(path: Path) -> bool:
    """True if the notebook at `path` holds anything that the build did not write: other sources,
    outputs, pictures.
    """
    try:
        nb = json.loads(path.read_text(encoding="utf-8"))
        results = any(cell.get("outputs") or cell.get("attachments") for cell in nb["cells"])
        return results or nb["metadata"]["course"]["sources"] != digest(nb)
    except Exception:  # whatever it is, the build did not write it
        return True


def write_notebook(path: Path, text: str) -> str:
    """Write `text` to the learner's notebook `path`, unless the one that lies there was edited.

    Returns: "unchanged", "written" or "kept" (it has edits or results; nothing was touched).
    """
    if path.exists():
        if path.read_bytes() == text.encode():
            return "unchanged"
        if is_edited(path):
            return "kept"
    write_text(path, text)
    return "written"


def copy_notebooks(root: Path, dest: Path) -> Iterator[str]:
    """Copy the notebooks of the course's folder `root` to `dest`; a line about each."""
    for path in sorted((root / "notebooks").glob("[0-9][0-9]_*/[0-9]_*.ipynb")):
        new = dest / path.relative_to(root / "notebooks")
        done = write_notebook(new, path.read_text(encoding="utf-8"))
        yield (
            f"{new}: {done}"
            + " (it has your edits or results; rename it to get the new version)" * (done == "kept")
        )


def bring(old: Path, root: Path, data: Path) -> Iterator[str]:
    """Bring what a learner has in the course's folder `old` to the one at `root`; a line about each
    thing.

    A notebook that was worked in takes the place of ours if the course has not changed it, else it
    lies beside ours, as "… (old).ipynb". What is in `old`/data goes to the folder `data`, as links
    where the disk allows it: they take no room. What is there already stays, unless it is a
    notebook in which nobody has worked; `old` stays as it is.

    Raises: CourseError if there are no notebooks in `old`, or it is `root`.
    """
    theirs = sorted(
        path
        for path in (old / "notebooks").rglob("*.ipynb")
        if ".ipynb_checkpoints" not in path.parts
    )
    if not theirs or old.resolve() == root.resolve():
        raise CourseError(
            f"looked for the notebooks of an older version in {old}, found none; name its folder."
        )
    for path in filter(is_edited, theirs):
        new, mine = (
            root / "notebooks" / path.relative_to(old / "notebooks"),
            path.read_text(encoding="utf-8"),
        )
        replaces = not new.exists() or not is_edited(new) and _built_from(new) == _built_from(path)
        if not replaces and new.read_text(encoding="utf-8") != mine:
            new = new.with_stem(f"{new.stem} (old)")
        done = write_notebook(new, mine)
        yield f"{new.relative_to(root)}: " + ("kept, it was there" if done == "kept" else "yours")
    count = 0
    for path in (old / "data").rglob("*"):
        new = data / path.relative_to(old / "data")
        if path.is_file() and not new.exists():
            new.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, new)
            except OSError:  # another disk
                shutil.copy2(path, new)
            count += 1
    yield f"{data}: {counted(count, 'file')} of data and answers"


def _built_from(path):
    """The digest of what the course wrote to the notebook at `path`; None if it did not write
    it.
    """
    with contextlib.suppress(Exception):
        return json.loads(path.read_text(encoding="utf-8"))["metadata"]["course"]["sources"]
