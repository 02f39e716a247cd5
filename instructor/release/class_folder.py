"""Make the folder of a class: notebooks, the `course` package with recorded facts, data scripts.

Nothing of solutions/ is in it. The facts of the reference answers and of the known mistakes on the
visible seed are recorded, so that checks and diagnosis work without them (course/engine/expected.py
reads them); on a machine with CUDA they are recorded there too. Exercises that are not asked are
solved in the notebooks, and in course/given/ for the cells that build on them; extra exercises that
the core uses are there, too. Two releases on one machine have the same bytes, but for the last
digits of what threads add up in any order (unit 02).
"""

import os
import shlex
import sys
from pathlib import Path

import torch
from nbformat import NotebookNode
from tqdm import tqdm

from course.checks import exercises
from course.engine.expected import facts_file, pack_facts
from course.errors import CourseError
from course.learner.copies import is_edited
from course.system.files import atomic_folder, atomic_write
from course.system.folders import ROOT
from instructor.authoring.build import write_release
from instructor.authoring.masters import release_notebook, source_notebook, text_of
from instructor.release.asked import FILE, Choice, to_json
from instructor.release.given import given_scripts, lent_extras
from instructor.release.wheel import wheel, wheel_name, with_install_cell

GIVEN = (  # patterns of what is copied
    "LICENSE",
    "Containerfile",
    ".dockerignore",
    "environment.yml",
    "nbgrader_config.py",
    "pyproject.toml",
    "requirements.txt",
    "course/**/*.py",
    "course/**/*.js",
    "course/**/*.json",
    "data_scripts/*.py",
    "docs/claims.md",
    "docs/flip-map.md",
    "docs/more-machines.md",
    "docs/results-gpu.md",
    "docs/results.md",
    "scripts/*.*",
    "recorded/*.json",
    "learners/*.md",
    "learners/Makefile",
    "learners/.github/workflows/*.yml",
)
# in a release: the names of its files, by which the next release knows them
LIST = ".class-release"
PROGRESS_BAR = "{percentage:3.0f} %|{bar:20}| {elapsed} {desc}"

Files = dict[str, bytes | NotebookNode]  # {name in the release: content}


def given_files() -> dict[str, bytes]:
    """{name in the release: bytes} of what is copied; the files of learners/ are at its top."""
    files = {}
    for pattern in GIVEN:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files[name.removeprefix("learners/")] = path.read_bytes()
    return files


def recorded_facts(unit: str) -> dict[str, bytes]:
    """{name in the release: bytes} of the facts of `unit`, a file per kind of device."""
    files = {}
    kinds = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    for device in map(torch.device, kinds):
        records = {}
        with tqdm(exercises(unit), file=sys.stdout, bar_format=PROGRESS_BAR) as bar:
            for exercise in bar:
                bar.set_description_str(f"{unit} on {device.type}: {exercise.name}")
                records[exercise.name] = exercise.at(device).record()
        name = facts_file(unit, device).relative_to(ROOT).as_posix()
        files[name] = pack_facts(records)
    return files


def release_files(choice: Choice) -> Files:
    """The files of a class that is asked `choice`, except for the recorded facts."""
    files = given_files() | given_scripts(choice) | {FILE: to_json(choice)}
    for unit, asked in choice.items():
        for part, names in asked.items():
            source = source_notebook(unit, part, names)
            files[f"notebooks/{unit}/{part}.ipynb"] = release_notebook(source)
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
    asked = 0
    for of_unit in choice.values():
        asked += sum(len(names) for names in of_unit.values())
    print(
        f"{dest}: {len(files)} files, {asked} exercises and questions asked, "
        "no solution of the core."
    )
    lent = lent_extras(choice)
    if lent:
        names = ", ".join(sorted(name for _, name in lent))
        print(f"Its core uses extra exercises, so course/given holds an answer to each: {names}.")
    print(f"Look at it: make -C {shlex.quote(str(dest))} lab")
    if url:
        wheels = ", ".join(map(str, dest.glob("*.whl")))
        print(f"Copy {wheels} to {url}: notebooks install it from there.")


def installable(files: Files, url: str) -> Files:
    """`files` of a release with the wheel, and in each notebook the cell that installs it.

    The wheel holds all the others; `url` is the address of the folder where it will be.
    """
    name_of_wheel = wheel_name(files)
    address = f"{url.rstrip('/')}/{name_of_wheel}"
    installing = {}
    content = {}
    for name, file in files.items():
        if name.endswith(".ipynb"):
            file = with_install_cell(file, address)
        installing[name] = file
        content[name] = file if isinstance(file, bytes) else text_of(file).encode()
    return installing | {name_of_wheel: wheel(content)}


def release(files: Files, dest: Path) -> list[str]:
    """Make `dest` the class's folder of `files`; return the names of what was kept.

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
    earlier = (dest / LIST).read_text(encoding="utf-8").splitlines()
    for name in set(earlier) - files.keys():
        path = dest / name
        if path.is_file() and path.resolve().is_relative_to(dest.resolve()):
            if path.suffix == ".ipynb" and is_edited(path):
                edited.append(name)
            else:
                path.unlink()
    return _put(files, dest) + sorted(edited)


def check_place(dest: Path) -> None:
    """Raise CourseError unless `dest` is free for a release.

    It may not be there, be empty, or hold an earlier release.
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
