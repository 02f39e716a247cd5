"""Every claim of the executed notebooks, and where it held: outputs -> *claims* -> docs/claims.md.

`course.claim` leaves its facts in the metadata of an output.  A claim that does not hold where the notebook was
executed is no fault as long as the text around it says so: the text cell before or after it has a sentence with
EXPLAINS in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

from course.claims import MARK, Claim
from course.files import write_text
from course.publish.build import ROOT
from course.units import parts, solutions_folder, units

EXPLAINS = "where it does not hold"  # in any case, e.g. "Where it does not hold, the transform is too cheap."
TABLE = ROOT / "docs" / "claims.md"
HELD = {True: "yes", False: "**no**", None: "undecided"}
HEADING = """# Claims

What the texts say about measurements, and whether it held where the notebooks in `solutions/` were executed.
`course build --execute` writes this file from their outputs; do not edit it. On another machine a claim may fail:
run the part, it says so in place.
"""


@dataclass(frozen=True)
class FoundClaim:
    """A claim in an executed notebook."""

    unit: str
    part: str
    claim: Claim
    explained: bool  # the text before or after it says what if it does not hold


def found_claims(path: Path, unit: str, part: str) -> Iterator[FoundClaim]:
    """The claims of the executed notebook at `path`, in order."""
    cells = nbformat.read(path, as_version=4).cells
    for number, cell in enumerate(cells):
        for output in cell.get("outputs", []):
            facts = output.get("metadata", {}).get(MARK)
            if facts:
                yield FoundClaim(unit, part, Claim(**facts), EXPLAINS in _texts_around(cells, number).lower())


def all_claims() -> list[FoundClaim]:
    """The claims of all executed notebooks, in the order of the course."""
    places = [(unit, part, solutions_folder() / unit / f"{part}.ipynb") for unit in units() for part in parts(unit)]
    return [claim for unit, part, path in places if path.exists() for claim in found_claims(path, unit, part)]


def claims_text(claims: list[FoundClaim]) -> str:
    """The text of docs/claims.md."""
    lines = [HEADING]
    machines = sorted({claim.claim.machine for claim in claims})
    lines += [f"Machine {number}: {_cell(machine)}.\n" for number, machine in enumerate(machines, 1)]
    lines += ["| unit | part | claim | machine | scale | held | value |", "|---|---|---|---|---|---|---|"]
    for found in claims:
        claim = found.claim
        row = [found.unit, found.part, claim.sentence, str(machines.index(claim.machine) + 1), claim.scale]
        lines.append("| " + " | ".join(map(_cell, [*row, HELD[claim.held], claim.value])) + " |")
    return "\n".join([*lines, ""])


def write_claims() -> str:
    """Write docs/claims.md anew; returns a line on what is in it."""
    claims = all_claims()
    write_text(TABLE, claims_text(claims))
    held = sum(found.claim.held is True for found in claims)
    return f"{TABLE.relative_to(ROOT)}: {len(claims)} claims, {held} held"


def unexplained(claims: list[FoundClaim]) -> list[str]:
    """A sentence for each claim that does not hold and whose text does not say what then."""
    return [
        f'{found.unit}/{found.part}: "{found.claim.sentence}" does not hold ({found.claim.value}); '
        f'say in the text after it what then, in a sentence with "{EXPLAINS}"'
        for found in claims
        if found.claim.held is not True and not found.explained
    ]


def _texts_around(cells, number):
    """The text cell directly before cell `number`, and the first one after it."""
    before = cells[number - 1 : number]
    after = [cell for cell in cells[number + 1 :] if cell.cell_type == "markdown"][:1]
    return " ".join(" ".join(cell.source for cell in [*before, *after] if cell.cell_type == "markdown").split())


def _cell(text):
    return text.replace("|", "\\|")
