"""List every claim of the executed notebooks, and where it held, in docs/claims.md.

`course.claim` leaves its facts in the metadata of an output. A claim that failed where the notebook
was executed needs an `otherwise` that explains it.  `course bench gpu` writes the claims made on a
GPU into ON_GPU; the table then has a column for them.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

from course.learner.claims import MARK, Claim
from course.notebook.registry import parts, solutions_folder, units
from course.system.files import write_text
from course.system.folders import ROOT

TABLE, ON_GPU = ROOT / "docs" / "claims.md", ROOT / "docs" / "claims-gpu.json"
HELD = {True: "yes", False: "**no**", None: "undecided"}
HEADING = """# Claims

Every sentence that a notebook tests by a measurement, and whether it held on the machines below; search for **no** to
find those that failed. A claim may fail on your machine, too: its cell then names the likely cause. Do not edit this
page: `course build --execute` writes it from the outputs of the notebooks in `solutions/`.
"""


@dataclass(frozen=True)
class FoundClaim:
    """A claim in an executed notebook."""

    unit: str
    part: str
    claim: Claim


def found_claims(path: Path, unit: str, part: str) -> Iterator[FoundClaim]:
    """The claims of the executed notebook at `path`, in order."""
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            if facts := output.get("metadata", {}).get(MARK):
                yield FoundClaim(unit, part, Claim(**facts))


def all_claims() -> list[FoundClaim]:
    """The claims of all executed notebooks, in the order of the course."""
    places = [
        (unit, part, solutions_folder() / unit / f"{part}.ipynb")
        for unit in units()
        for part in parts(unit)
    ]
    return [
        claim
        for unit, part, path in places
        if path.exists()
        for claim in found_claims(path, unit, part)
    ]


def gpu_claims(path: Path) -> list[FoundClaim]:
    """The claims that parts have made on a GPU, from the file that `course bench gpu` writes; none
    without it.
    """
    if not path.exists():
        return []
    return [
        FoundClaim(*place.split("/"), Claim(**facts))
        for place, found in json.loads(path.read_text()).items()
        for facts in found
    ]


def claims_text(claims: list[FoundClaim], on_gpu: list[FoundClaim] = ()) -> str:
    """The text of docs/claims.md; where there are claims `on_gpu`, the table has a column of what
    they found.

    A claim made twice in a part meets that of the same number on the GPU. One made on a GPU only
    has a row of its own behind the others of its part.
    """
    machines = sorted({claim.claim.machine for claim in claims})
    lines = [
        HEADING,
        *(f"Machine {number}: {_cell(machine)}.\n" for number, machine in enumerate(machines, 1)),
    ]
    lines += [
        f"GPU: {_cell(machine)}, at gpu scale.\n"
        for machine in sorted({f.claim.machine for f in on_gpu})
    ]
    columns = [
        "unit",
        "part",
        "claim",
        "machine",
        "scale",
        "held",
        "value",
        *["GPU"] * bool(on_gpu),
    ]
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    there = _numbered(on_gpu)
    rows = [
        (
            claim.unit,
            claim.part,
            [str(machines.index(claim.claim.machine) + 1), claim.claim.scale, *_found(claim)],
            key,
        )
        for key, claim in _numbered(claims).items()
    ]
    rows += [(*key[:2], [""] * 4, key) for key in there if key not in {row[-1] for row in rows}]
    for unit, part, cells, key in sorted(
        rows, key=lambda row: row[:2]
    ):  # stable: in the order of the part
        cells = [
            unit,
            part,
            key[2],
            *cells,
            *[" ".join(_found(there.get(key))).strip()] * bool(on_gpu),
        ]
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join([*lines, ""])


def _numbered(claims):
    """{(unit, part, sentence, how many of that sentence came before it in the part):
    FoundClaim}.
    """
    numbered, before = {}, Counter()
    for found in claims:
        place = found.unit, found.part, found.claim.sentence
        numbered[*place, before[place]] = found
        before[place] += 1
    return numbered


def _found(found):
    """[whether it held, the value behind it], empty where nobody tried."""
    return [HELD[found.claim.held], found.claim.value] if found else ["", ""]


def write_claims() -> str:
    """Write docs/claims.md; return a line on what is in it."""
    claims, on_gpu = all_claims(), gpu_claims(ON_GPU)
    write_text(TABLE, claims_text(claims, on_gpu))
    held = sum(found.claim.held is True for found in claims)
    there = (
        f"; {len(on_gpu)} on a GPU, {sum(found.claim.held is True for found in on_gpu)} held"
        if on_gpu
        else ""
    )
    return f"{TABLE.relative_to(ROOT)}: {len(claims)} claims, {held} held{there}"


def _cell(text):
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(write_claims())
