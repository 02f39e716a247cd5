"""Write the answers that a release gives: what is not asked, and extras that the core uses.

`course.solved` hands them to later cells (course/learner/given.py reads them). asked.py decides
which exercises are asked. An extra exercise that the core uses is given even if it is asked, so
that the core works without it.
"""

import ast
import re
from collections.abc import Iterable

from course.learner.carry import definitions
from course.notebook.cells import read_cells
from course.notebook.outline import outline
from course.notebook.registry import load_part, unit_of
from course.notebook.solutions import exercise_parts, solution_source
from instructor.authoring.masters import SOLUTION_MARKERS

Choice = dict[str, dict[str, frozenset[str]]]  # {unit: {part: names that are asked}}
Key = tuple[str, str]  # unit and exercise
_CHECKS_IMPORT = re.compile(r"^from course\.checks import (\w+)(?: as (\w+))?$", re.M)
# check.NAME that is not called: course.solved takes it
_TAKEN = re.compile(r"\b(\w+)\.(\w+)\b(?!\()")


def given_scripts(choice: Choice) -> dict[str, bytes]:
    """{name in a release: bytes} of the scripts by which `course.solved` gives answers.

    That is what released parts give, and what they use of parts, also of other units, that are not
    released.
    """
    asked = _asked(choice)
    learners_own = asked - lent_extras(choice)
    used = set()
    for unit, of_unit in choice.items():
        for part in of_unit:
            used |= _used(unit, part)
    given = _with_needs(used, stop=learners_own)
    names_of_part = {}
    for unit, name in sorted(given):
        names_of_part.setdefault((unit, exercise_parts(unit)[name].stem), []).append(name)
    scripts = {}
    for (unit, part), names in sorted(names_of_part.items()):
        asked_ones = [name for name in names if (unit, name) in asked]
        text = _script(unit, part, names, asked_ones)
        scripts[f"course/given/{unit}/{part}.py"] = text.encode()
    return scripts


def lent_extras(choice: Choice) -> set[Key]:
    """The extra exercises that a class is asked and that the core needs."""
    extra = set()
    core = set()
    taken = set()
    for unit, of_unit in choice.items():
        for part, names in of_unit.items():
            taken |= _taken(unit, part, only_core=True)
            for exercise in load_part(unit, part).exercises:
                if exercise.name in names:
                    (core if exercise.core else extra).add((unit, exercise.name))
    return _with_needs(taken, stop=core) & extra


def _asked(choice):
    """All keys that a class is asked."""
    keys = set()
    for unit, of_unit in choice.items():
        for names in of_unit.values():
            keys |= _keys(unit, names)
    return keys


def _keys(unit, names):
    return {(unit, name) for name in names}


def _with_needs(keys: Iterable[Key], stop: set[Key]) -> set[Key]:
    """`keys`, and what their reference answers need, as far as one gets without those in `stop`."""
    reached = set()
    waiting = [*keys]
    while waiting:
        unit, name = waiting.pop()
        if (unit, name) not in reached | stop:
            reached.add((unit, name))
            waiting += _keys(unit, _needs(unit, name))
    return reached


def _used(unit, part):
    """The keys of all that a part asks or takes through course.solved."""
    names = [exercise.name for exercise in load_part(unit, part).exercises]
    return _keys(unit, names) | _taken(unit, part)


def _taken(unit, part, only_core=False):
    """The keys of all that a part, or only its core, takes through course.solved."""
    sections = outline(read_cells(load_part(unit, part).path))
    packages = {}  # what the notebook calls a unit's checks -> that unit
    for section in sections:
        for name, alias in _CHECKS_IMPORT.findall(section.code):
            packages[alias or name] = unit_of(name)
    keys = set()
    for section in sections:
        if only_core and section.says_extra:
            continue
        for alias, name in _TAKEN.findall(section.code):
            of = packages.get(alias)
            if of and name in exercise_parts(of):
                keys.add((of, name))
    return keys


def _needs(unit, name):
    """Names of other exercises of the unit that the reference answer to `name` uses."""
    needed = set()
    for node in ast.walk(ast.parse(solution_source(unit, name))):
        if isinstance(node, ast.Name) and node.id in exercise_parts(unit):
            needed.add(node.id)
    return sorted(needed - {name})


def _script(unit, part, names, asked):
    """The definitions of a master by which the answers `names` work.

    Other answers are the learner's.
    """
    needs = {}
    for name in sorted(names):
        needs[name] = []
        for other in _needs(unit, name):
            if other in asked or other not in names:
                needs[name].append(other)
    lines = [
        f'"""Given answers of {unit}/{part}; course/learner/given.py hands them on."""',
        f"NEEDS = {needs!r}",
        f"ASKED = {asked!r}",
    ]
    sources = []
    for cell in read_cells(load_part(unit, part).path):
        is_other_answer = cell.role == "answer" and cell.exercise not in names
        if cell.kind == "code" and "test" not in cell.marks and not is_other_answer:
            sources.append(SOLUTION_MARKERS.sub("", cell.source + "\n"))
    return "\n\n".join([*lines, *definitions(sorted(names), sources, {}), ""])
