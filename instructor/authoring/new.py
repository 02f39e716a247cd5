"""Make a new exercise: two small files and three cells that work as they are, for an author to
change.

The new exercise doubles a tensor. It builds, and all its tests pass, except that the lint asks for
every TODO to be worked off.
"""

import keyword
import re
from collections.abc import Iterator
from pathlib import Path

from course.errors import CourseError
from course.notebook.registry import find_parts, load_unit, solutions_folder
from course.system.files import write_text
from course.system.folders import ROOT

MINUTES = 10  # of the new exercise, until somebody says how long it takes
REFERENCES = re.compile(r"^# %% \[markdown\]\n# #+ References", re.M)  # what a part may end with
EXERCISE_LINE = re.compile(r"^(# #{2,3} Exercise )\d+[a-z]? ·", re.M)
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
    "unchanged": ("TODO: what is wrong, and what to try. This returns its input: double it.", ("2 * x", "x.clone()")),
    "squared": ("TODO: what is wrong, and what to try. This squares: multiply by 2.", ("2 * x", "x * x")),
    "plus_two": ("TODO: what is wrong, and what to try. This adds 2: multiply by it.", ("2 * x", "2 + x")),
}}


@alternative
def added(x):
    return x + x


@alternative
def scaled_in_place(x):
    return x.clone().mul_(2)
'''


def new_exercise(place: str, name: str, after: str | None = None) -> Iterator[str]:
    """Make exercise `name` in the unit or part `place`; yields a line on each file that was
    written.

    Args:
        after: exercise of that part behind which it goes (default: the end of the part; of a unit,
            its last part).

    Raises: CourseError for a name that is taken or no identifier, and an unknown place; nothing is
    written then.
    """
    unit, part = find_parts(place)[-1]
    _check_name(unit, name)
    probe = ROOT / "course" / "checks" / unit[3:] / f"{name}.py"
    answers = solutions_folder() / unit / "answers" / f"{name}.py"
    for path in (probe, answers):
        if path.exists():
            raise CourseError(f"{path} is there already; take another name, or remove it first.")
    master = solutions_folder() / unit / f"{part}.py"
    cells = CELLS.format(name=name, minutes=MINUTES, seed=_seed(name))
    text = _inserted(master, cells, after)
    for path, content in (
        (probe, PROBE.format(name=name)),
        (answers, ANSWERS.format(name=name)),
        (master, text),
    ):
        write_text(path, content)
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        yield f"{shown}: {'three cells more, and the text of the task' if path == master else 'new'}"


def _check_name(unit, name):
    if (
        not name.isidentifier()
        or keyword.iskeyword(name)
        or name.startswith("_")
        or not name.isascii()
    ):
        raise CourseError(
            f"{name!r} cannot name a function; use letters, digits and _, as in clipped_norm."
        )
    if name in {exercise.name for exercise in load_unit(unit).exercises}:
        raise CourseError(f"{unit} has an exercise {name!r} already; take another name.")
    if name in ("check", "course", "device", "shared", "UNIT"):
        raise CourseError(f"{name!r} means something else in every notebook; take another name.")


def _inserted(master: Path, cells: str, after: str | None) -> str:
    """The text of `master` with `cells` in it, its exercises numbered again and its minutes summed
    up.
    """
    text = master.read_text(encoding="utf-8").rstrip("\n") + "\n"
    if after is None:
        references = [match.start() for match in REFERENCES.finditer(text)]
        last = (
            references[-1]
            if references and "\n# %%" not in text[references[-1] + 1 :]
            else len(text)
        )
    else:
        hidden = re.search(rf'^# %%.* test="{re.escape(after)}-hidden".*$', text, re.M)
        if not hidden:
            raise CourseError(
                f"{master.parent.name}/{master.stem} asks no exercise {after!r}; name one that it asks."
            )
        end = text.find("\n# %%", hidden.end())
        last = len(text) if end < 0 else end + 1
    head, tail = text[:last].rstrip("\n") + "\n\n", text[last:]
    text = f"{head}{cells}\n{tail}" if tail else head + cells
    numbers = iter(range(1, 1 + len(EXERCISE_LINE.findall(text))))
    text = EXERCISE_LINE.sub(lambda match: f"{match[1]}{next(numbers)} ·", text)
    in_all = re.compile(r"(?<= core · )\d+(?= in all$)", re.M)
    return in_all.sub(lambda match: str(int(match[0]) + MINUTES), text, count=1)


def _seed(name):
    """A seed of three digits for the hidden test of exercise `name`."""
    return 100 + sum(map(ord, name)) % 900
