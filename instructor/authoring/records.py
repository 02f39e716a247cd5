"""Write what a machine measured: a part, step or benchmark -> *recorded/<machine>.json*.

One file per machine: its claims and measured values per part (`course build --execute`), the steps
of `course bench gpu`, the tables of `course bench ... --record`. The notebooks of a class read them
(course/learner/recorded.py), and documents.py makes docs/claims.md, docs/results.md and
docs/results-gpu.md of them. Standard library only, so that a GPU server without Jupyter can write.
"""

import ast
import datetime
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.learner.claims import MARK, NOT_MEASURED
from course.learner.recorded import FOLDER
from course.notebook.cells import Cell, read_cells
from course.notebook.registry import all_parts, solutions_folder
from course.system.files import write_text

CLAIM_FACTS = ("sentence", "held", "value", "estimate", "low", "high", "null", "otherwise")
LETTERS_MIN = 8  # that a text with holes needs to count as a sentence of a master

Record = dict[str, Any]  # a file of recorded/: machine, details, is_gpu, parts, steps, benchmarks


@dataclass(frozen=True)
class Machine:
    """A machine that has a record."""

    name: str  # short, as learners see it, e.g. "H200"
    details: str  # processor or GPU, threads, versions
    is_gpu: bool

    @property
    def file_name(self) -> str:
        """The name of its file: of a GPU its whole name, else the short one."""
        text = self.details.partition(",")[0] if self.is_gpu else self.name
        return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") + ".json"


def this_machine() -> Machine:
    """The Machine that this process runs on."""
    from course.device import device, machine, machine_name

    return Machine(machine_name(), machine(), device().type == "cuda")


def today() -> str:
    """The date as in "2026-11-27"."""
    return datetime.date.today().isoformat()


# ---- files


def read_records(folder: Path = FOLDER) -> list[Record]:
    """All records, those of GPUs last."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    return sorted(records, key=lambda record: (record["is_gpu"], record["machine"]))


def read_record(machine: Machine, folder: Path = FOLDER) -> Record:
    """The record of `machine`, an empty one if it has none."""
    path = folder / machine.file_name
    facts = {"machine": machine.name, "details": machine.details, "is_gpu": machine.is_gpu}
    if not path.exists():
        return facts | {"parts": {}, "steps": {}, "benchmarks": {}}
    return json.loads(path.read_text(encoding="utf-8")) | facts


def write_record(record: Record, folder: Path = FOLDER) -> Path:
    """Write `record` whole into its file and return that."""
    machine = Machine(record["machine"], record["details"], record["is_gpu"])
    in_order = dict(record)
    for kind in ("parts", "benchmarks"):  # steps stay in the order in which they ran
        in_order[kind] = dict(sorted(record[kind].items()))
    path = folder / machine.file_name
    write_text(path, json.dumps(in_order, indent=1, ensure_ascii=False) + "\n")
    return path


# ---- what a part measured


def claims_in(cells: Iterable[Cell]) -> list[Record]:
    """The fields of the claims in the outputs of an executed notebook, in order."""
    claims = []
    for cell in cells:
        for output in cell.outputs:
            facts = output.get("metadata", {}).get(MARK)
            if facts:
                claims.append(facts)
    return claims


def record_part(
    record: Record,
    place: str,
    claims: list[Record],
    predictions: Iterable[Record] = (),
    is_whole: bool = True,
) -> None:
    """Put what a run of the part `place`, "unit/part", has measured into `record`.

    Nothing changes if its claims were made at smoke scale.

    Args:
        claims: fields of course.learner.claims.Claim.
        predictions: {"what": ..., "measured": ...}.
        is_whole: whether the part ran to its end; else claims of an earlier run stay.
    """
    from course.device import scale

    of_scale = claims[0]["scale"] if claims else scale()
    if of_scale == "smoke" or not (claims or is_whole):
        return
    made = [_short(claim) for claim in claims if claim["value"] != NOT_MEASURED]
    sentences = {claim["sentence"] for claim in made}
    earlier = record["parts"].get(place, {})
    # a sentence is unique in the course: it may have moved from another part
    for part in record["parts"].values():
        part["claims"] = [claim for claim in part["claims"] if claim["sentence"] not in sentences]
    values = [{"what": each["what"], "measured": each["measured"]} for each in predictions]
    if not is_whole:
        made += earlier.get("claims", [])
        values = values or earlier.get("predictions", [])
    record["parts"][place] = {
        "scale": of_scale,
        "on": today(),
        "details": claims[0]["machine"] if claims else record["details"],
        "data": claims[-1].get("data", "") if claims else "",
        "claims": made,
        "predictions": values,
    }


def _short(claim):
    """The facts of `claim` that are recorded; a count has no interval."""
    kept = {name: claim.get(name) for name in CLAIM_FACTS}
    return {name: fact for name, fact in kept.items() if fact is not None or name == "held"}


def record_executed(
    unit: str, measured: Mapping[str, list[Record]], folder: Path = FOLDER
) -> list[str]:
    """Put what executed notebooks of `unit` hold into this machine's record.

    Claims that no master makes any more leave the records of all machines.

    Args:
        measured: {part: its predictions' measured values, see record_part}.

    Returns: lines on what was written and dropped.
    """
    record = read_record(this_machine(), folder)
    renewed = []
    for part, predictions in measured.items():
        claims = claims_in(read_cells(solutions_folder() / unit / f"{part}.ipynb"))
        place = f"{unit}/{part}"
        before = record["parts"].get(place)
        record_part(record, place, claims, predictions)
        if record["parts"].get(place) is not before:
            renewed.append(place)
    if not renewed:
        return ["recorded/ stays as it is: at smoke scale nothing is recorded."]
    path = write_record(record, folder)
    lines = [f"{folder.name}/{path.name}: {place} renewed" for place in renewed]
    made = set()
    for place in renewed:
        made |= {claim["sentence"] for claim in record["parts"][place]["claims"]}
    return lines + drop_gone(renewed, made, folder)


# ---- claims that nobody makes any more


def drop_gone(places: Iterable[str], made: set[str], folder: Path = FOLDER) -> list[str]:
    """Drop claims of `places`, and of parts that are gone, that no master makes any more.

    Args:
        made: sentences that were claimed just now, whatever the text of the masters says.

    Returns: a line for each that was dropped.
    """
    there = {f"{unit}/{part}" for unit, part in all_parts()}
    is_said = said_in_masters()
    lines = []
    for record in read_records(folder):
        dropped = [step for step in record["steps"] if "/" in step and step not in there]
        for step in dropped:
            del record["steps"][step]
        for place in list(record["parts"]):
            if place in places or place not in there:
                gone = _drop_claims(record, place, lambda text: text in made or is_said(text))
                dropped += [f"{place}: {sentence}" for sentence in gone]
            if place not in there and not record["parts"][place]["claims"]:
                del record["parts"][place]
        if dropped:
            write_record(record, folder)
            lines += [f"dropped from {record['machine']}: {what}" for what in dropped]
    return lines


def _drop_claims(record, place, is_made):
    """Drop the claims of a part whose sentences nobody makes; return those sentences."""
    part = record["parts"][place]
    gone = [claim for claim in part["claims"] if not is_made(claim["sentence"])]
    part["claims"] = [claim for claim in part["claims"] if claim not in gone]
    return [claim["sentence"] for claim in gone]


def said_in_masters() -> Callable[[str], bool]:
    """A function: whether a sentence is one of the texts in the masters' code.

    A text with holes, f"at size {n}, ...", is every sentence that it may give.
    """
    texts = set()
    patterns = []
    for unit, part in all_parts():
        for cell in read_cells(solutions_folder() / unit / f"{part}.py"):
            if cell.kind == "code":
                _add_texts(cell.source, texts, patterns)
    with_holes = [re.compile(pattern) for pattern in patterns]

    def is_said(sentence: str) -> bool:
        return sentence in texts or any(pattern.fullmatch(sentence) for pattern in with_holes)

    return is_said


def _add_texts(source, texts, patterns):
    """Add the strings in `source` to `texts`, and the f-strings to `patterns`."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a cell with a magic command
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(" ".join(node.value.split()))
        if isinstance(node, ast.JoinedStr):
            literal = [part.value for part in node.values if isinstance(part, ast.Constant)]
            if len("".join(literal)) >= LETTERS_MIN:
                patterns.append("".join(map(_pattern, node.values)))


def _pattern(part):
    return re.escape(part.value) if isinstance(part, ast.Constant) else ".*"
