"""Solve the exercises that a class is not asked: they are given code in its notebooks.

Their task text stays, with a line that says so; their grade cells are gone.  A free text that is not asked is only
its question.  asked.py decides which exercises are asked.
"""

import ast
import re
from collections.abc import Collection

from nbformat import NotebookNode

from course.checks.expected import exercise_parts
from course.learner.carry import definitions
from course.publish.asked import Choice
from course.units import load_part, read_cells, units

GIVEN = "> **Given here.** You are not asked to solve this exercise: the code below it is one right answer."
GIVEN_TEXT = "> **Not asked here.** Think about it, or discuss it; nothing is handed in."
MARKERS = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[^\n]*\n", re.M)
CHECKS_IMPORT = re.compile(r"^from course\.checks import (\w+)(?: as (\w+))?$", re.M)
SOLVED = re.compile(r"\bcourse\.solved\((\w+)\.(\w+)\)")
HINTS = re.compile(r"\n*<details>.*?</details>", re.S)


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
    """Put `line` below the heading of the text that `cells` end with, which needs no hints any more."""
    if cells and cells[-1].cell_type == "markdown":
        start, mark, task = HINTS.sub("", cells[-1].source).rpartition("\n### ")
        heading, _, text = task.partition("\n")
        cells[-1].source = f"{start}{mark}{heading}\n\n{line}\n{text}"


def given_scripts(choice: Choice) -> dict[str, bytes]:
    """{name in a release: bytes}: code by which `course.solved` hands on what a class is not asked.

    That is what released parts give, and what they use of parts, also of other units, that are not released.
    """
    given = sorted(_given_names(choice).items())
    return {f"course/given/{unit}/{part}.py": _script(unit, part, names).encode() for (unit, part), names in given}


def _given_names(choice):
    """{(unit, part): names of exercises that are given} of all that released parts need."""
    asked = {(unit, name) for unit, of_unit in choice.items() for names in of_unit.values() for name in names}
    given = set()
    wanted = [key for unit, of_unit in choice.items() for part in of_unit for key in _used(unit, part)]
    while wanted:
        unit, name = wanted.pop()
        if (unit, name) not in asked | given:
            given.add((unit, name))
            wanted += [(unit, needed) for needed in _needs(unit, name)]
    names_of_part = {}
    for unit, name in given:
        names_of_part.setdefault((unit, exercise_parts(unit)[name].stem), set()).add(name)
    return names_of_part


def _used(unit, part):
    """(unit, exercise) of all that a part asks or takes through course.solved."""
    part_facts = load_part(unit, part)
    code = "\n".join(cell.source for cell in read_cells(part_facts.path) if cell.kind == "code")
    known = {name[3:]: name for name in units()}
    checks = {alias or name: known[name] for name, alias in CHECKS_IMPORT.findall(code) if name in known}
    used = {(checks[alias], name) for alias, name in SOLVED.findall(code) if alias in checks}
    return used | {(unit, exercise.name) for exercise in part_facts.exercises}


def _needs(unit, name):
    """Names of other exercises of the unit that the reference answer to `name` uses."""
    source = next(c.source for c in read_cells(exercise_parts(unit)[name]) if c.marks.get("solution") == name)
    used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    return sorted(used & exercise_parts(unit).keys() - {name})


def _script(unit, part, names):
    """The definitions of a master by which the answers `names` work; other answers are the learner's."""
    needs = {name: [n for n in _needs(unit, name) if n not in names] for name in sorted(names)}
    lines = [f'"""Given answers of {unit}/{part}; course/checks/given.py hands them on."""', f"NEEDS = {needs!r}"]
    cells = [
        MARKERS.sub("", cell.source + "\n")
        for cell in read_cells(load_part(unit, part).path)
        if cell.kind == "code" and "test" not in cell.marks and cell.marks.get("solution") in (None, *names)
    ]
    return "\n\n".join([*lines, *definitions(sorted(names), cells, {}), ""])
