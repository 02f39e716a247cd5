"""Make the folder of a class: notebooks, the `course` package with recorded facts, data scripts;
nothing of solutions/.

The facts of the reference answers and of the known mistakes on the visible seed are recorded, so
that checks and diagnosis work without them (course/engine/expected.py reads them); on a machine
with CUDA they are recorded there too. Exercises that are not asked are solved in the notebooks, and
in course/given/ for the cells that build on them; extra exercises that the core uses are there,
too. Two releases on one machine have the same bytes, but for the last digits of what threads add up
in any order (unit 02).
"""

import os
import shlex
import sys
from pathlib import Path

import torch
from tqdm import tqdm

from course.engine.expected import facts_file, pack_facts
from course.errors import CourseError
from course.system.files import atomic_folder, atomic_write
from course.system.folders import ROOT
from instructor.authoring.build import (
    is_edited,
    release_notebook,
    source_notebook,
    text_of,
    write_release,
)
from instructor.authoring.given import given_scripts, lent_extras
from instructor.authoring.lint import exercises
from instructor.release.asked import FILE, Choice, to_json
from instructor.release.wheel import wheel, wheel_name, with_install_cell

GIVEN = ("LICENSE", "Containerfile", ".dockerignore", "environment.yml", "nbgrader_config.py", "pyproject.toml",
         "requirements.txt", "course/**/*.py", "course/**/*.js", "data_scripts/*.py", "docs/more-machines.md", "docs/results.md",
         "scripts/*.*", "learners/*")  # fmt: skip
LIST = (
    ".class-release"  # in a release: the names of its files, by which the next release knows them
)


def given_files() -> dict[str, bytes]:
    """{name in the release: bytes} of what is copied; the files of learners/ are at its top."""
    names = [
        path.relative_to(ROOT).as_posix()
        for pattern in GIVEN
        for path in sorted(ROOT.glob(pattern))
    ]
    return {name.removeprefix("learners/"): (ROOT / name).read_bytes() for name in names}


def recorded_facts(unit: str) -> dict[str, bytes]:
    """{name in the release: bytes} of the facts of `unit`, one file for each kind of device there
    is.
    """
    files = {}
    for device in map(torch.device, ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]):
        records = {}
        with tqdm(
            exercises(unit),
            file=sys.stdout,
            bar_format="{percentage:3.0f} %|{bar:20}| {elapsed} {desc}",
        ) as bar:
            for exercise in bar:
                bar.set_description_str(f"{unit} on {device.type}: {exercise.name}")
                records[exercise.name] = exercise.at(device).record()
        files[facts_file(unit, device).relative_to(ROOT).as_posix()] = pack_facts(records)
    return files


def release_files(choice: Choice) -> dict:
    """{name in the release: bytes or notebook} of a class that is asked `choice`, except for the
    recorded facts.
    """
    files = given_files() | given_scripts(choice) | {FILE: to_json(choice)}
    for unit, asked in choice.items():
        for part, names in asked.items():
            files[f"notebooks/{unit}/{part}.ipynb"] = release_notebook(
                source_notebook(unit, part, names)
            )
    return files


def make_release(dest: Path, choice: Choice, url: str | None = None) -> None:
    """Make or renew the class's folder `dest`; prints what it does, which takes minutes.

    Args:
        url: address of a folder on the web; then a wheel is made, which notebooks install from
            there where they must.

    Raises: CourseError if `dest` holds anything but an earlier release, or cannot be written.
    """
    check_place(dest)  # before the minutes of work
    files = release_files(choice)
    print("recording what references and known mistakes give (minutes)")
    for unit in choice:
        files |= recorded_facts(unit)
    if url:
        files = installable(files, url)
    for name in release(files, dest):
        print(f"{name}: kept (it has edits or results; rename it to get the new version)")
    asked = sum(len(names) for of_unit in choice.values() for names in of_unit.values())
    print(
        f"{dest}: {len(files)} files, {asked} exercises and questions asked, no solution of the core."
    )
    if lent := sorted(name for _, name in lent_extras(choice)):
        print(
            f"Its core uses extra exercises, so course/given holds an answer to each: {', '.join(lent)}."
        )
    print(f"Look at it: make -C {shlex.quote(str(dest))} lab")
    if url:
        print(
            f"Copy {', '.join(map(str, dest.glob('*.whl')))} to {url}: notebooks install it from there."
        )


def installable(files: dict, url: str) -> dict:
    """`files` of a release, {name: bytes or notebook}, with the wheel, and in each notebook the
    cell that installs it.

    The wheel holds all the others; `url` is the address of the folder where it will be.
    """
    address = f"{url.rstrip('/')}/{wheel_name(files)}"
    files = {
        name: with_install_cell(c, address) if name.endswith(".ipynb") else c
        for name, c in files.items()
    }
    content = {
        name: c if isinstance(c, bytes) else text_of(c).encode() for name, c in files.items()
    }
    return files | {wheel_name(files): wheel(content)}


def release(files: dict, dest: Path) -> list[str]:
    """Make `dest` the class's folder of `files`, {name: bytes or notebook}; returns the names of
    what was kept.

    A new folder is written whole or not at all. In an earlier release every file of ours is
    replaced, or removed if there is none of that name any more; other files, and notebooks that
    somebody worked in, stay as they are.

    Raises: CourseError if `dest` holds anything but an earlier release, or cannot be written.
    """
    check_place(dest)
    files = files | {LIST: "\n".join([*sorted(files), ""]).encode()}
    if not (dest / LIST).exists():
        with atomic_folder(dest) as new:
            return _put(files, new)
    edited = []
    for name in set((dest / LIST).read_text(encoding="utf-8").splitlines()) - files.keys():
        path = dest / name
        if path.is_file() and path.resolve().is_relative_to(dest.resolve()):
            if path.suffix == ".ipynb" and is_edited(path):
                edited.append(name)
            else:
                path.unlink()
    return _put(files, dest) + sorted(edited)


def check_place(dest: Path) -> None:
    """Raise CourseError unless `dest` is free for a release: not there, empty, or an earlier
    release.
    """
    if dest.exists() and not dest.is_dir():
        raise CourseError(f"the class's folder was to be {dest}, which is a file; name a folder.")
    if dest.exists() and any(dest.iterdir()) and not (dest / LIST).is_file():
        raise CourseError(
            f"{dest} holds other files and no earlier release; name a new or an empty folder."
        )


def _put(files, folder):
    edited = []
    for name, content in files.items():
        path = folder / name
        if isinstance(content, bytes):
            with atomic_write(path) as out:
                out.write(content)
            if os.access(ROOT / name, os.X_OK):
                path.chmod(0o755)
        elif write_release(path, content) == "kept":
            edited.append(name)
    return edited
