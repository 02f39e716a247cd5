"""Notebooks in a learner's folder: written, renewed, brought from an older folder.

No edit and no result is lost.
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
    texts = []
    for cell in nb["cells"]:
        source = "".join(cell["source"])
        texts.append(f"{cell['metadata'].get('tags')} {source}")
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def is_edited(path: Path) -> bool:
    """True if the notebook at `path` holds anything that the build did not write.

    That are other sources, outputs and pictures.
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
        if done == "kept":
            done = "kept (it has your edits or results; rename it to get the new version)"
        yield f"{new}: {done}"


def bring(old: Path, root: Path, data: Path) -> Iterator[str]:
    """Bring what a learner has in the course's folder `old` to `root`; a line about each thing.

    A notebook that was worked in takes the place of ours if the course has not changed it, else it
    lies next to ours, as "… (old).ipynb". What is in `old`/data goes to the folder `data`, as links
    where the disk allows it: they take no room. What is there already stays, unless it is a
    notebook in which nobody has worked; `old` stays as it is.

    Raises: CourseError if there are no notebooks in `old`, or it is `root`.
    """
    theirs = _notebooks_in(old / "notebooks")
    if not theirs or old.resolve() == root.resolve():
        raise CourseError(
            f"looked for the notebooks of an older version in {old}, found none; name its folder."
        )
    for path in theirs:
        if not is_edited(path):
            continue
        new = _place_for(path, root / "notebooks" / path.relative_to(old / "notebooks"))
        done = write_notebook(new, path.read_text(encoding="utf-8"))
        said = "kept, it was there" if done == "kept" else "yours"
        yield f"{new.relative_to(root)}: {said}"
    count = _bring_data(old / "data", data)
    yield f"{data}: {counted(count, 'file')} of data and answers"


def _notebooks_in(folder):
    paths = sorted(folder.rglob("*.ipynb"))
    return [path for path in paths if ".ipynb_checkpoints" not in path.parts]


def _place_for(path, ours):
    """Where the notebook at `path` goes: to `ours`, or next to it if that is another notebook."""
    if not ours.exists():
        return ours
    if not is_edited(ours) and _built_from(ours) == _built_from(path):
        return ours
    if ours.read_text(encoding="utf-8") == path.read_text(encoding="utf-8"):
        return ours
    return ours.with_stem(f"{ours.stem} (old)")


def _bring_data(old, data):
    """Link or copy the files of the folder `old` that `data` lacks; return how many."""
    count = 0
    for path in old.rglob("*"):
        new = data / path.relative_to(old)
        if path.is_file() and not new.exists():
            new.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, new)
            except OSError:  # another disk
                shutil.copy2(path, new)
            count += 1
    return count


def _built_from(path):
    """The digest of what the course wrote to the notebook at `path`, None if it did not."""
    with contextlib.suppress(Exception):
        return json.loads(path.read_text(encoding="utf-8"))["metadata"]["course"]["sources"]
    return None
