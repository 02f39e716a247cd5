"""Solve the exercises that a class is not asked: they are given code in its notebooks.

Their task text stays, with a line that says so; their grade cells are gone. A free text that is not
asked is only its question.  asked.py decides which exercises are asked. An extra exercise that the
core uses is given for `course.solved` even if it is asked, so that the core goes on without it.
"""

import ast
import re
from collections.abc import Collection

from nbformat import NotebookNode

from course.learner.carry import definitions
from course.notebook.registry import load_part, read_cells, units
from course.notebook.solutions import exercise_parts
from instructor.authoring.prose import EXTRA

Choice = dict[str, dict[str, frozenset[str]]]
GIVEN = "> **Given here.** You are not asked to solve this exercise: the code below it is one right answer."
GIVEN_TEXT = "> **Not asked here.** Think about it, or discuss it; nothing is handed in."
MARKERS = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[^\n]*\n", re.M)
CHECKS_IMPORT = re.compile(r"^from course\.checks import (\w+)(?: as (\w+))?$", re.M)
# check.NAME that is not called: course.solved takes it
TAKEN = re.compile(r"\b(\w+)\.(\w+)\b(?!\()")
HINTS = re.compile(r"\n*<details>.*?</details>", re.S)
HEADING = re.compile(r"^## (.*?)\s*$", re.M)


def give(nb: NotebookNode, asked: Collection[str]) -> NotebookNode:
    """`nb`, a source notebook, in which what is not in `asked` is solved."""
    cells = []
    for cell in nb.cells:
        marks = cell.metadata.get("nbgrader", {})
        name = marks.get("grade_id", "")
        exercise = name.removesuffix("-visible").removesuffix("-hidden")
        if not (marks.get("grade") or marks.get("solution")) or exercise in asked:
            cells.append(cell)
        elif marks.get("grade"):  # a test, or a free text
            if marks.get("solution"):
                _say(cells, GIVEN_TEXT)
        else:
            _say(cells, GIVEN)
            cell.source = MARKERS.sub("", cell.source + "\n").rstrip("\n")
            cell.metadata.nbgrader = marks | {"solution": False, "locked": True}
            cell.metadata.course = {"given": name}
            cells.append(cell)
    nb.cells = cells
    return nb


def _say(cells, line):
    """Put `line` below the heading of the text that `cells` end with, which needs no hints any
    more.
    """
    if cells and cells[-1].cell_type == "markdown":
        start, mark, task = HINTS.sub("", cells[-1].source).rpartition("\n### ")
        heading, _, text = task.partition("\n")
        cells[-1].source = f"{start}{mark}{heading}\n\n{line}\n{text}"


def given_scripts(choice: Choice) -> dict[str, bytes]:
    """{name in a release: bytes}: code by which `course.solved` hands on what a class is not asked,
    or may skip.

    That is what released parts give, and what they use of parts, also of other units, that are not
    released.
    """
    lent = lent_extras(choice)
    asked = {
        (unit, name)
        for unit, of_unit in choice.items()
        for names in of_unit.values()
        for name in names
    }
    given, wanted = set(), [key for unit, part in _pairs(choice) for key in _used(unit, part)]
    while wanted:
        unit, name = wanted.pop()
        if (unit, name) not in (asked - lent) | given:
            given.add((unit, name))
            wanted += [(unit, needed) for needed in _needs(unit, name)]
    names_of_part = {}
    for unit, name in sorted(given):
        names_of_part.setdefault((unit, exercise_parts(unit)[name].stem), []).append(name)
    asked_ones = {
        key: [name for name in names if (key[0], name) in asked]
        for key, names in names_of_part.items()
    }
    return {
        f"course/given/{unit}/{part}.py": _script(
            unit, part, names, asked_ones[unit, part]
        ).encode()
        for (unit, part), names in sorted(names_of_part.items())
    }


def lent_extras(choice: Choice) -> set[tuple[str, str]]:
    """(unit, name) of the extra exercises that a class is asked and that the core needs."""
    exercises = [(e, choice[u][p]) for u, p in _pairs(choice) for e in load_part(u, p).exercises]
    asked = {(e.unit, e.name): e.core for e, names in exercises if e.name in names}
    core = {key for key, is_core in asked.items() if is_core}
    needed, wanted = (
        set(),
        [key for unit, part in _pairs(choice) for key in _taken(unit, part, only_core=True)],
    )
    while wanted:
        unit, name = wanted.pop()
        if (unit, name) not in needed | core:
            needed.add((unit, name))
            wanted += [(unit, other) for other in _needs(unit, name)]
    return needed & asked.keys()


def _pairs(choice):
    return [(unit, part) for unit, of_unit in choice.items() for part in of_unit]


def _used(unit, part):
    """(unit, exercise) of all that a part asks or takes through course.solved."""
    return _taken(unit, part) | {
        (unit, exercise.name) for exercise in load_part(unit, part).exercises
    }


def _taken(unit, part, only_core=False):
    """(unit, exercise) of all that a part, or only its core, takes through course.solved."""
    cells, code, is_extra = read_cells(load_part(unit, part).path), "", False
    for cell in cells:
        if cell.kind == "markdown":
            for heading in HEADING.findall(cell.source):
                is_extra = heading.endswith(EXTRA)
        elif not (only_core and is_extra):
            code += f"{cell.source}\n"
    known = {name[3:]: name for name in units()}
    checks = {
        alias or name: known[name]
        for cell in cells
        for name, alias in CHECKS_IMPORT.findall(cell.source)
        if name in known
    }
    names = {(checks[alias], name) for alias, name in TAKEN.findall(code) if alias in checks}
    return {(unit, name) for unit, name in names if name in exercise_parts(unit)}


def _needs(unit, name):
    """Names of other exercises of the unit that the reference answer to `name` uses."""
    source = next(
        c.source for c in read_cells(exercise_parts(unit)[name]) if c.marks.get("solution") == name
    )
    used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    return sorted(used & exercise_parts(unit).keys() - {name})


def _script(unit, part, names, asked):
    """The definitions of a master by which the answers `names` work; other answers are the
    learner's.
    """
    needs = {
        name: [n for n in _needs(unit, name) if n in asked or n not in names]
        for name in sorted(names)
    }
    lines = [
        f'"""Given answers of {unit}/{part}; course/learner/given.py hands them on."""',
        f"NEEDS = {needs!r}",
        f"ASKED = {asked!r}",
    ]
    cells = [
        MARKERS.sub("", cell.source + "\n")
        for cell in read_cells(load_part(unit, part).path)
        if cell.kind == "code"
        and "test" not in cell.marks
        and cell.marks.get("solution") in (None, *names)
    ]
    return "\n\n".join([*lines, *definitions(sorted(names), cells, {}), ""])
