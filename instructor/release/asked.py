"""Which exercises a class is asked: from --ask, --unit and --part, or from a release.

A choice is {unit: {part: names}}: the parts that are released, and which exercises and free texts
are asked in each. The other exercises are given solved (given.py) and do not count. A release
records its choice in asked.json.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from course.errors import CourseError
from course.notebook.cells import read_cells
from course.notebook.registry import (
    PartName,
    all_parts,
    find_parts,
    load_part,
    near,
    package_of,
)
from instructor.release.given import Choice

FILE = "asked.json"  # in a release

Kinds = dict[str, str]  # {name: "core", "extra" or "text"} of what a part can ask


def resolve(ask: str = "all", only: Iterable[str] = ()) -> Choice:
    """The choice that somebody typed.

    Args:
        ask: "all", "core", or names of exercises and free texts with commas between them, e.g.
            "gather,Loader". A name that several units have is said with its unit:
            "fast_loading/gather".
        only: units and parts to release, e.g. "04" or "04/2" (default: all; with names, the units
            that have them).

    Raises: CourseError with the near misses for a name that is unknown, and for one that is not
    clear.
    """
    released = _released(only)
    if ask in ("all", "core"):
        asked = {}
        for place, kinds in released.items():
            asked[place] = set(kinds) if ask == "all" else _core(kinds)
    else:
        asked = _named(ask, released, with_all_units=bool(only))
    if not any(asked.values()):
        places = ", ".join(f"{unit}/{part}" for unit, part in released)
        raise CourseError(f"--ask {ask} leaves no exercise to ask in {places}.")
    choice = {}
    for place in sorted(asked):
        choice.setdefault(place.unit, {})[place.part] = frozenset(asked[place])
    return choice


def to_json(choice: Choice) -> bytes:
    """The content of a release's asked.json."""
    plain = {}
    for unit, of_unit in choice.items():
        plain[unit] = {part: sorted(names) for part, names in of_unit.items()}
    return (json.dumps({"asked": plain}, indent=1) + "\n").encode()


def of_release(folder: Path) -> Choice:
    """The choice that the class release in `folder` was made with.

    Raises: CourseError if it is not a release, or one of other units, parts or exercises than there
    are now.
    """
    file = Path(folder) / FILE
    choice = {}
    try:
        listed = json.loads(file.read_text(encoding="utf-8"))["asked"]
        for unit, of_unit in listed.items():
            choice[unit] = {part: frozenset(names) for part, names in of_unit.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise CourseError(
            f"looked for {file}, found none that can be read; name the folder of a class release."
        ) from None
    known = _kinds_of(all_parts())
    for unit, of_unit in choice.items():
        for part, names in of_unit.items():
            _refuse_what_is_gone(file, PartName(unit, part), names, known)
    return choice


def _refuse_what_is_gone(file, place, names, known):
    what = f"{place.unit}/{place.part}"
    gone = names - known.get(place, {}).keys()
    if gone:
        what = f"{', '.join(sorted(gone))} in {what}"
    if gone or place not in known:
        raise CourseError(
            f"{file} asks {what}, which this version of the course does not have; "
            "make a new release."
        )


def _released(only: Iterable[str]) -> dict[PartName, Kinds]:
    """The parts that somebody named (default: all), in order, with what each can ask."""
    places = []
    for name in only:
        places += find_parts(name)
    return _kinds_of(sorted(set(places or all_parts())))


def _kinds_of(places: Iterable[PartName]) -> dict[PartName, Kinds]:
    return {place: _kinds(place) for place in places}


def _kinds(place: PartName) -> Kinds:
    """{name: "core", "extra" or "text"} of what a part can ask."""
    part = load_part(*place)
    kinds = {}
    for exercise in part.exercises:
        kinds[exercise.name] = "core" if exercise.core else "extra"
    for cell in read_cells(part.path):
        if "answer" in cell.marks:
            kinds[cell.marks["answer"]] = "text"
    return kinds


def _core(kinds):
    return {name for name, kind in kinds.items() if kind == "core"}


def _named(ask: str, released: dict[PartName, Kinds], with_all_units: bool):
    """{part: names} of the names that somebody typed, with or without the units that have none."""
    found = [_find(typed.strip(), released) for typed in ask.split(",") if typed.strip()]
    units = {place.unit for place, _ in found}
    asked = {}
    for place in released:
        if with_all_units or place.unit in units:
            asked[place] = set()
    for place, name in found:
        asked[place].add(name)
    return asked


def _find(typed: str, released: dict[PartName, Kinds]) -> tuple[PartName, str]:
    """The part and the name that somebody typed, perhaps with its unit."""
    of_unit, _, name = typed.rpartition("/")
    unit = find_parts(of_unit)[0].unit if of_unit else None
    known = ["core", "all"]
    matching = []
    for place, kinds in released.items():
        if unit in (None, place.unit):
            known += kinds
            if name in kinds:
                matching.append(place)
    if not matching:
        raise CourseError(f"no exercise is called {typed!r}; {near(name, known)}")
    if len(matching) > 1:
        places = " or ".join(f"{package_of(place.unit)}/{name}" for place in matching)
        raise CourseError(f"{len(matching)} units have an exercise {name!r}; say {places}.")
    return matching[0], name
