"""What named machines measured: recorded/<machine>.json -> the line after a claim.

Each file holds a machine's short name and, per part, the claims that its run of the part made.
`course build --execute` and `course bench gpu` write these files (instructor/authoring/records.py);
a class's folder has a copy of them, and a notebook elsewhere has none. flip_map.py reads them, too.
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

from course.system.folders import ROOT

FOLDER = ROOT / "recorded"


@dataclass(frozen=True)
class RecordedClaim:
    """What a machine found about a claim."""

    machine: str  # its short name
    held: bool | None
    value: str  # short: the estimate alone, or the count


def elsewhere(sentence: str, here: str) -> list[RecordedClaim]:
    """What machines other than `here`, a short name, found about the claim `sentence`."""
    found = _by_sentence(FOLDER).get(sentence, [])
    return [claim for claim in found if claim.machine != here]


def sentence_of(others: list[RecordedClaim], held: bool | None) -> str:
    """The sentence "Recorded: ..." of what `others` found; "" if there is nothing.

    A machine whose verdict is another than `held` says so.
    """
    texts = []
    for claim in others:
        if not claim.value and claim.held == held:
            continue  # a count without a number, the same there
        text = f"{claim.machine} {claim.value}".rstrip()
        if claim.held is False and held is not False:
            text += " (does not hold there)"
        elif claim.held is True and held is False:
            text += " (holds there)"
        texts.append(text)
    return f"Recorded: {'; '.join(texts)}." if texts else ""


def step_lines(step: str) -> str:
    """What GPUs measured in a step of `course bench gpu`, a line each; "" if none did."""
    lines = []
    for path in sorted(FOLDER.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        for what, value in record["steps"].get(step, {}).get("rows", []):
            lines.append(f"{record['machine']}, {what}: {value}")
    return "\n".join(lines)


@functools.cache
def _by_sentence(folder: Path) -> dict[str, list[RecordedClaim]]:
    """{sentence of a claim: what each machine found}, the machines in the order of their names."""
    found: dict[str, list[RecordedClaim]] = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        for part in record["parts"].values():
            for facts in part["claims"]:
                claim = RecordedClaim(record["machine"], facts["held"], _short(facts))
                found.setdefault(facts["sentence"], []).append(claim)
    return found


def _short(facts):
    estimate = facts.get("estimate")
    if estimate is None:
        return facts["value"]
    return f"{estimate:#.3g}".rstrip(".")  # "1.00", not "1"
