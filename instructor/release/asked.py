"""Which exercises a class is asked, from --ask, --unit and --part, for release.py and `course
grade`.

A choice is {unit: {part: names}}: the parts that are released, and which exercises and free texts
are asked in each. The other exercises are given solved (given.py) and do not count. A release
records its choice in asked.json.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from course.errors import CourseError
from course.notebook.registry import find_parts, load_part, near, parts, read_cells, units
from instructor.authoring.given import Choice

FILE = "asked.json"  # in a release


def resolve(ask: str = "all", only: Iterable[str] = ()) -> Choice:
    """The choice that somebody typed.

    Args:
        ask: "all", "core", or names of exercises and free texts with commas between them, e.g.
            "gather,Loader". A name
            that several units have is said with its unit: "fast_loading/gather".
        only: units and parts to release, e.g. "04" or "04/2" (default: all; with names, the units
            that have them).

    Raises: CourseError with the near misses for a name that is unknown, and for one that is not
    clear.
    """
    pairs = [pair for name in only for pair in find_parts(name)] or [
        (u, p) for u in units() for p in parts(u)
    ]
    names = {pair: _names(*pair) for pair in sorted(set(pairs))}
    if ask == "all":
        asked = {pair: set(kinds) for pair, kinds in names.items()}
    elif ask == "core":
        asked = {
            pair: {name for name, kind in kinds.items() if kind == "core"}
            for pair, kinds in names.items()
        }
    else:
        places = [_find(name.strip(), names) for name in ask.split(",") if name.strip()]
        asked = {pair: {name for place, name in places if place == pair} for pair in names}
        if not only:
            asked = {
                pair: chosen
                for pair, chosen in asked.items()
                if pair[0] in {place[0] for place, _ in places}
            }
    if not any(asked.values()):
        raise CourseError(
            f"--ask {ask} leaves no exercise to ask in {', '.join(f'{u}/{p}' for u, p in names)}."
        )
    return {
        u: {p: frozenset(asked[v, p]) for v, p in asked if v == u}
        for u in sorted({u for u, _ in asked})
    }


def to_json(choice: Choice) -> bytes:
    """The content of a release's asked.json."""
    plain = {
        unit: {part: sorted(names) for part, names in of_unit.items()}
        for unit, of_unit in choice.items()
    }
    return (json.dumps({"asked": plain}, indent=1) + "\n").encode()


def of_release(folder: Path) -> Choice:
    """The choice that the class release in `folder` was made with.

    Raises: CourseError if it is no release, or one of other units, parts or exercises than there
    are now.
    """
    file = Path(folder) / FILE
    try:
        listed = json.loads(file.read_text(encoding="utf-8"))["asked"]
        choice = {
            u: {p: frozenset(names) for p, names in of_unit.items()}
            for u, of_unit in listed.items()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise CourseError(
            f"looked for {file}, found none that can be read; name the folder of a class release."
        ) from None
    known = {(unit, part): _names(unit, part) for unit in units() for part in parts(unit)}
    for unit, of_unit in choice.items():
        for part, names in of_unit.items():
            gone = names - known.get((unit, part), {}).keys()
            if gone or (unit, part) not in known:
                what = f"{', '.join(sorted(gone))} in {unit}/{part}" if gone else f"{unit}/{part}"
                raise CourseError(
                    f"{file} asks {what}, which this version of the course does not have; make a new release."
                )
    return choice


def _names(unit, part):
    """{name: "core", "extra" or "text"} of what a part can ask."""
    loaded = load_part(unit, part)
    texts = [cell.marks["answer"] for cell in read_cells(loaded.path) if "answer" in cell.marks]
    return {e.name: "core" if e.core else "extra" for e in loaded.exercises} | dict.fromkeys(
        texts, "text"
    )


def _find(asked, names):
    """((unit, part), name) of one name that was typed."""
    of_unit, _, name = asked.rpartition("/")
    wanted = {unit for unit, _ in find_parts(of_unit)} if of_unit else {unit for unit, _ in names}
    matching = [pair for pair in names if pair[0] in wanted and name in names[pair]]
    if not matching:
        known = [other for pair, kinds in names.items() if pair[0] in wanted for other in kinds]
        raise CourseError(f"no exercise is called {asked!r}; {near(name, [*known, 'core', 'all'])}")
    if len(matching) > 1:
        places = " or ".join(f"{unit[3:]}/{name}" for unit, _ in matching)
        raise CourseError(f"{len(matching)} units have an exercise {name!r}; say {places}.")
    return matching[0], name
