"""Make a new exercise: two small files and three cells, for an author to change.

They work as they are: the new exercise doubles a tensor. It builds, and all its tests pass, except
that the lint asks for every TODO to be worked off.
"""

import keyword
import re
from collections.abc import Collection, Iterator
from itertools import count
from pathlib import Path

from course.errors import CourseError
from course.notebook.cells import HIDDEN, script_cells
from course.notebook.registry import find_parts, load_unit, package_of, solutions_folder
from course.system.files import write_text
from course.system.folders import ROOT

MINUTES = 10  # of the new exercise, until somebody says how long it takes
TAKEN = ("check", "course", "device", "shared", "UNIT")  # mean something else in every notebook
# "Exercise 3 ·" in the title of a task, in the text of a master
_NUMBERED_TITLE = re.compile(r"^(# #{2,3} Exercise )\d+[a-z]? ·", re.M)
_MINUTES_IN_ALL = re.compile(r"(?<= core · )\d+(?= in all)", re.M)
_REFERENCES = re.compile(r"#+ References")  # the heading of what a part may end with
_IMPORT = re.compile(r"^from course\.checks\.\w+\.(\w+) import", re.M)
CELLS = '''# %% [markdown]
# ### Exercise 0 · TODO: what the learner writes
#
# TODO: write in a sentence what to write and why. Doubles a tensor.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** {minutes} · **Lines** 1
#
# **Must** return a new tensor of the shape of `x`. TODO: what is asked.
#
# **Source** TODO: paper and section, or address.
#
# <details><summary>Hint 1</summary>
#
# TODO: a question that leads on?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# TODO: nearly the answer.
#
# </details>

# %% solution="{name}"
def {name}(x):
    """TODO: say what it returns, with shape and dtype."""
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION


# %% test="{name}-visible" points=1
check.{name}({name})

# %% test="{name}-hidden" points=1
### BEGIN HIDDEN TESTS
check.{name}({name}, seed={seed})
### END HIDDEN TESTS
'''
PROBE = '''"""Probe of exercise {name}."""

import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise()
def {name}(answer: Answer, device: torch.device, seed: int) -> Facts:
    """TODO: what the exercise is about, in a few words."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(3 + seed % 5, 2, generator=rng).to(device)
    yield "keeps the shape", answer(x).shape
    yield "TODO: what is right, in the learner's words", answer(x)
'''
ANSWERS = '''"""Known mistakes of exercise {name}, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {{
    "unchanged": (
        "TODO: what is wrong, and what to try. This returns its input: double it.",
        ("2 * x", "x.clone()"),
    ),
    "squared": (
        "TODO: what is wrong, and what to try. This squares: multiply by 2.",
        ("2 * x", "x * x"),
    ),
    "plus_two": (
        "TODO: what is wrong, and what to try. This adds 2: multiply by it.",
        ("2 * x", "2 + x"),
    ),
}}


@alternative
def added(x):
    return x + x


@alternative
def scaled_in_place(x):
    return x.clone().mul_(2)
'''


def new_exercise(place: str, name: str, after: str | None = None) -> Iterator[str]:
    """Make exercise `name` in the unit or part `place`; a line on each file that was written.

    Args:
        after: exercise of that part behind which it goes (default: the end of the part; of a unit,
            its last part).

    Raises: CourseError for a name that is taken or no identifier, and an unknown place; nothing is
    written then.
    """
    unit, part = find_parts(place)[-1]
    _check_name(unit, name)
    package = ROOT / "course" / "checks" / package_of(unit)
    probe = package / f"{name}.py"
    answers = solutions_folder() / unit / "answers" / f"{name}.py"
    for path in (probe, answers):
        if path.exists():
            raise CourseError(f"{path} is there already; take another name, or remove it first.")
    master = solutions_folder() / unit / f"{part}.py"
    cells = CELLS.format(name=name, minutes=MINUTES, seed=_seed(name))
    text = _inserted(master, cells, after)
    files = (
        (probe, PROBE.format(name=name), "new"),
        (package / "__init__.py", _package_with(package, unit, name), "imports it"),
        (answers, ANSWERS.format(name=name), "new"),
        (master, text, "three cells more, and the text of the task"),
    )
    for path, content, what in files:
        write_text(path, content)
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        yield f"{shown}: {what}"


def package_text(unit: str, names: Collection[str]) -> str:
    """The text of course/checks/<unit>/__init__.py, which imports the exercises `names`."""
    package = f"course.checks.{package_of(unit)}"
    imports = [f"from {package}.{name} import {name}" for name in sorted(names, key=str.lower)]
    lines = [
        f'"""Probes of unit {unit}, one module per exercise."""',
        "",
        f'UNIT = "{unit}"  # above the imports: `@exercise` reads it',
        "",
        *imports,
        "",
        "__all__ = [",
        *(f'    "{name}",' for name in sorted(names)),
        "]",
        "",
    ]
    return "\n".join(lines)


def _package_with(package: Path, unit: str, name: str) -> str:
    """The text of the `__init__.py` of a package of probes with one exercise more."""
    path = package / "__init__.py"
    names = _IMPORT.findall(path.read_text(encoding="utf-8")) if path.exists() else []
    return package_text(unit, [*names, name])


def _check_name(unit, name):
    is_identifier = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    if not is_identifier or name.startswith("_"):
        raise CourseError(
            f"{name!r} cannot name a function; use letters, digits and _, as in clipped_norm."
        )
    if name in {exercise.name for exercise in load_unit(unit).exercises}:
        raise CourseError(f"{unit} has an exercise {name!r} already; take another name.")
    if name in TAKEN:
        raise CourseError(f"{name!r} means something else in every notebook; take another name.")


def _inserted(master: Path, cells: str, after: str | None) -> str:
    """The text of `master` with `cells` in it.

    Its exercises are numbered from 1 again, and its minutes are summed up.
    """
    text = master.read_text(encoding="utf-8").rstrip("\n") + "\n"
    lines = text.split("\n")
    line = _line_after(text, after)
    if line is None:
        raise CourseError(
            f"{master.parent.name}/{master.stem} asks no exercise {after!r}; name one that it asks."
        )
    above = "\n".join(lines[: line - 1]).rstrip("\n")
    below = "\n".join(lines[line - 1 :])
    text = f"{above}\n\n{cells}"
    if below:
        text += f"\n{below}"
    numbers = count(1)
    text = _NUMBERED_TITLE.sub(lambda title: f"{title[1]}{next(numbers)} ·", text)
    return _MINUTES_IN_ALL.sub(lambda stated: str(int(stated[0]) + MINUTES), text, count=1)


def _line_after(text: str, after: str | None) -> int | None:
    """The line, from 1, in front of which new cells go; None if there is no exercise `after`."""
    cells = script_cells(text)
    end = text.count("\n") + 1
    if after is None:
        last = cells[-1]
        return last.line if _REFERENCES.match(last.source) else end
    for number, cell in enumerate(cells):
        if cell.marks.get("test") == after + HIDDEN:
            return cells[number + 1].line if number + 1 < len(cells) else end
    return None


def _seed(name):
    """A seed of three digits for the hidden test of exercise `name`."""
    return 100 + sum(map(ord, name)) % 900
