"""List every claim of the executed notebooks, and where it held, in docs/claims.md.

`course.claim` leaves its facts in the metadata of an output. A claim that failed where the notebook
was executed needs an `otherwise` that explains it.  `course bench gpu` writes the claims made on a
GPU into ON_GPU; the table then has a column for them.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from course.learner.claims import MARK, Claim
from course.notebook.cells import read_cells
from course.notebook.registry import all_parts, solutions_folder
from course.system.files import write_text
from course.system.folders import ROOT

TABLE = ROOT / "docs" / "claims.md"
ON_GPU = ROOT / "docs" / "claims-gpu.json"
HELD = {True: "yes", False: "**no**", None: "undecided"}
HEADING = """\
# Claims

Every sentence that a notebook tests by a measurement, and whether it held on the machines \
below; search for **no** to
find those that failed. A claim may fail on your machine, too: its cell then names the likely \
cause. Do not edit this
page: `course build --execute` writes it from the outputs of the notebooks in `solutions/`.
"""
COLUMNS = ("unit", "part", "claim", "machine", "scale", "held", "value")


@dataclass(frozen=True)
class FoundClaim:
    """A claim in an executed notebook."""

    unit: str
    part: str
    claim: Claim


class Key(NamedTuple):
    """Which claim: the same on all machines."""

    unit: str
    part: str
    sentence: str
    number: int  # how many of that sentence came before it in the part


def found_claims(path: Path, unit: str, part: str) -> Iterator[FoundClaim]:
    """The claims of the executed notebook at `path`, in order."""
    for cell in read_cells(path):
        for output in cell.outputs:
            facts = output.get("metadata", {}).get(MARK)
            if facts:
                yield FoundClaim(unit, part, Claim(**facts))


def all_claims() -> list[FoundClaim]:
    """The claims of all executed notebooks, in the order of the course."""
    claims = []
    for unit, part in all_parts():
        path = solutions_folder() / unit / f"{part}.ipynb"
        if path.exists():
            claims += found_claims(path, unit, part)
    return claims


def gpu_claims(path: Path) -> list[FoundClaim]:
    """The claims that parts have made on a GPU; none without the file `path`.

    `course bench gpu` writes that file.
    """
    claims = []
    places = json.loads(path.read_text()) if path.exists() else {}
    for place, found in places.items():
        unit, part = place.split("/")
        claims += [FoundClaim(unit, part, Claim(**facts)) for facts in found]
    return claims


def claims_text(claims: list[FoundClaim], on_gpu: Sequence[FoundClaim] = ()) -> str:
    """The text of docs/claims.md; if there are claims `on_gpu`, its table has a column for them.

    A claim made twice in a part meets that of the same number on the GPU. One made on a GPU only
    has a row of its own behind the others of its part.
    """
    machines = _machines(claims)
    lines = [HEADING]
    for number, machine in enumerate(machines, 1):
        lines.append(f"Machine {number}: {_cell(machine)}.\n")
    for machine in _machines(on_gpu):
        lines.append(f"GPU: {_cell(machine)}, at gpu scale.\n")
    columns = [*COLUMNS, "GPU"] if on_gpu else [*COLUMNS]
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    here = _numbered(claims)
    on_gpu = _numbered(on_gpu)
    keys = [*here, *(key for key in on_gpu if key not in here)]
    for key in sorted(keys, key=lambda key: key[:2]):  # stable: in the order of the part
        cells = [key.unit, key.part, key.sentence, *_measured(here.get(key), machines)]
        if on_gpu:
            cells.append(" ".join(_result(on_gpu.get(key))).strip())
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join([*lines, ""])


def _machines(claims):
    return sorted({found.claim.machine for found in claims})


def _numbered(claims: Sequence[FoundClaim]) -> dict[Key, FoundClaim]:
    numbered = {}
    before = Counter()
    for found in claims:
        place = found.unit, found.part, found.claim.sentence
        numbered[Key(*place, before[place])] = found
        before[place] += 1
    return numbered


def _measured(found, machines):
    """[number of the machine, scale, whether it held, the value], empty where nobody tried."""
    if found is None:
        return [""] * 4
    number = machines.index(found.claim.machine) + 1
    return [str(number), found.claim.scale, *_result(found)]


def _result(found):
    """[whether it held, the value behind it], empty where nobody tried."""
    return [HELD[found.claim.held], found.claim.value] if found else ["", ""]


def write_claims() -> str:
    """Write docs/claims.md; return a line on what is in it."""
    claims = all_claims()
    on_gpu = gpu_claims(ON_GPU)
    write_text(TABLE, claims_text(claims, on_gpu))
    said = f"{TABLE.relative_to(ROOT)}: {len(claims)} claims, {_held(claims)} held"
    return f"{said}; {len(on_gpu)} on a GPU, {_held(on_gpu)} held" if on_gpu else said


def _held(claims):
    return sum(found.claim.held is True for found in claims)


def _cell(text):
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(write_claims())
