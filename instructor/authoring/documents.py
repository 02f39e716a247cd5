"""Make claims.md, flip-map.md, results.md and results-gpu.md of the records: *recorded/ -> docs/*.

Nobody copies a number into these pages. `course build` writes them again after each change of the
records (records.py), `course bench gpu` and `course bench ... --record` do too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.learner.advice import SEED, TODAY
from course.learner.flip_map import FlipMap, flip_map
from course.learner.recorded import FOLDER
from course.notebook.registry import all_parts
from course.system.files import write_text
from course.system.folders import ROOT
from instructor.authoring.gpu_steps import step_names
from instructor.authoring.records import Record, read_records
from instructor.authoring.remedies import REMEDIES, Remedy

DOCS = ROOT / "docs"
HELD = {True: "yes", False: "**no**", None: "not decided"}
FLIPS = "**flips**"
NOT_MEASURED = "not measured yet"
UNIT_OF_BENCHMARK = {  # the first word of a benchmark's key -> its unit
    "lfw": "01_parallel_loading",
    "data-parallel": "02_data_parallel",
    "ncf": "03_large_batch",
    "loading": "04_fast_loading",
    "grouping": "05_batch_grouping",
    "speedrun": "06_faster_training",
    "plans": "07_beyond_data_parallel",
}
CHECKUP, OTHERS = "Check-up", "Checks and grading"  # benchmarks that belong to no unit

CLAIMS_HEAD = """\
# Claims

Every sentence that a notebook tests by a measurement, and what each recorded machine found. A
sentence marked **flips** holds on one machine and fails on another; [results.md](results.md) begins
with those. A claim may fail on your machine, too: its cell then names the likely cause.

Do not edit this page: `course build` makes it from the files in `recorded/`, one per machine, which
`course build --execute` and `course bench gpu` write.
"""
MAP_HEAD = """\
# The flip map

What each piece of advice for faster training gained on each recorded machine: times as fast, points
of accuracy, or less loss, with the interval of 95 %. A gain *wins* or *loses* if its whole interval
does, and is *not decided* otherwise. Older records have no interval: their ratios win or lose from
a tenth on, and their differences in accuracy stay undecided, because they are means of a few seeds.
A name in **bold** wins on one machine and loses on another.

A new machine gets its column by one command. Without a GPU it is `course build --execute 06`, with
one it is `course bench gpu --only 06`. Both write `recorded/<machine>.json`, and this page and the
figure in part 1 of unit 06 are made from these files. The rows are in `course/learner/advice.py`.
"""
RESULTS_HEAD = """\
# Measured results

What flips between the recorded machines, where each remedy wins and loses, and the benchmarks.
[claims.md](claims.md) has every claim on every machine, [results-gpu.md](results-gpu.md) the steps
that ran on a GPU. Counts of messages and batches are the same everywhere; counts of page faults and
bytes from a disk depend on the allocator and the system. Times depend on your machine and on what
else runs there, so compare ratios.

Do not edit this page: `course build` makes it from the files in `recorded/`, one per machine.
"""
FLIPS_HEAD = """\
## What flips between machines

Each of these claims holds on one recorded machine and fails on another. Before you believe a
sentence about speed, ask on which machine it was measured.
"""
NO_FLIPS = "No claim does: none holds on one recorded machine and fails on another."
REMEDIES_HEAD = """\
## Where each remedy wins, and where it loses

The remedies of units 03 and 04. Each cell is a claim that a notebook's cell computes, and what each
recorded machine found; an empty cell says that no claim shows it yet.
"""
BENCHMARKS_HEAD = """\
## Benchmarks

Each table names its command; `--record` writes it here (`course bench --help`). The measurements of
a table were interleaved in one process or one run. Ratios are paired: an estimate with its 95 %
interval, or, in older tables, a median (lowest to highest).
"""
GPU_HEAD = f"""\
# Results on a GPU

Steps of `course bench gpu`, in the order of the course. What says "{NOT_MEASURED}" has not run on
that machine. All numbers of machines without a GPU are in [results.md](results.md) and in the
executed notebooks.

If you have a GPU, this command renews the page:

```sh
course bench gpu --minutes 10     # ten minutes; call it again to continue
course bench gpu --only ncf       # one step
course bench gpu --dry-run        # at smoke size on a simulated device: build/results-gpu-dry.md
```

It grades a submission of every unit with `--cuda`, runs the tests on CUDA, all parts at `smoke`
scale, then every part at `gpu` scale with its claims, an epoch of a 40 GB regression, the race of
unit 06, NCF throughput (fp32, TF32, AMP; batch 2^20), grouping at 8,192, copies during computation
and the check-up. Each step has a time limit. If a step fails or reaches its limit, the table lists
its results up to that point, and the next step starts. The full output of such a step is in
`gpu-bench-logs` of the data folder.

Before a part starts, its unit says how much disk, memory, GPU memory and time it needs. If your
machine has less, the unit uses smaller sizes and says which. Bytes are computed from the sizes
(`course/experiment_sizes/`); minutes are guesses until somebody measures them on a GPU. The outcome
of each claim appears in the machine's column of [claims.md](claims.md).

Do not edit this page: it is made from the files in `recorded/`.
"""
DRY = """\
A dry run: sizes are those of `smoke`, computed on the CPU. No number here is a result.
"""


@dataclass
class Row:
    """A claim, and what each machine found."""

    unit: str
    part: str
    sentence: str
    found: dict[str, dict[str, Any]] = field(default_factory=dict)  # {machine: recorded facts}

    @property
    def flips(self) -> bool:
        """Whether the claim holds on one machine and fails on another."""
        verdicts = {facts["held"] for facts in self.found.values()}
        return {True, False} <= verdicts


def write_documents(folder: Path = FOLDER, docs: Path = DOCS) -> str:
    """Write the four pages; return a line on what is in them."""
    texts = document_texts(folder)
    for name, text in texts.items():
        path = docs / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
    rows = claim_rows(read_records(folder))
    flips = sum(row.flips for row in rows)
    return f"docs/{', docs/'.join(texts)}: {len(rows)} claims, {flips} flip between machines"


def document_texts(folder: Path = FOLDER) -> dict[str, str]:
    """{file name: text} of the pages made from the records in `folder`."""
    records = read_records(folder)
    return {
        "claims.md": claims_text(records),
        "flip-map.md": map_text(flip_map(folder=folder)),
        "results.md": results_text(records),
        "results-gpu.md": gpu_text(records, step_names()),
    }


# ---- claims


def claim_rows(records: list[Record]) -> list[Row]:
    """The Rows of all claims, in the order of the course.

    A sentence stands where the first machine made it, in a part that still exists. One that was
    made only in parts that are gone is left out.
    """
    there = {f"{unit}/{part}" for unit, part in all_parts()}
    rows = {}
    for record in records:
        for place, part in record["parts"].items():
            unit, _, name = place.partition("/")
            for facts in part["claims"]:
                row = rows.setdefault(facts["sentence"], Row(unit, name, facts["sentence"]))
                row.found[record["machine"]] = facts
                if f"{row.unit}/{row.part}" not in there:
                    row.unit, row.part = unit, name
    made = [row for row in rows.values() if f"{row.unit}/{row.part}" in there]
    return sorted(made, key=lambda row: (row.unit, row.part))  # stable


def claims_text(records: list[Record]) -> str:
    """docs/claims.md: a row per claim, a column per machine."""
    with_claims = [record for record in records if record["parts"]]
    names = [record["machine"] for record in with_claims]
    lines = [CLAIMS_HEAD]
    for record in with_claims:
        details = {part["details"]: None for part in record["parts"].values()}
        data = {part["data"]: None for part in record["parts"].values() if part.get("data")}
        said = f" Data of the parts that name them: {'; '.join(data)}." if data else ""
        lines.append(f"**{record['machine']}**: {'; '.join(details)}.{said}\n")
    lines += _head(["unit", "part", "claim", *names])
    for row in claim_rows(records):
        sentence = f"{row.sentence} ({FLIPS})" if row.flips else row.sentence
        results = [_result(row.found.get(name)) for name in names]
        lines.append(_line(row.unit, row.part, sentence, *results))
    return "\n".join([*lines, ""])


def _result(facts):
    """Whether a claim held and its value, empty where nobody tried."""
    return f"{HELD[facts['held']]} {facts['value']}".strip() if facts else ""


# ---- the flip map


def map_text(found: FlipMap) -> str:
    """docs/flip-map.md: a table of the seed's checklist, and one of today's list."""
    lines = [MAP_HEAD]
    for source in (SEED, TODAY):
        lines.append(f"## {source.capitalize()}\n")
        lines += _head(["advice", "promises", *found.machines, "why", "part", "from the claim"])
        for row in found.rows:
            piece = row.advice
            if piece.source != source:
                continue
            name = f"**{piece.name}**" if row.flips else piece.name
            cells = [cell.words for cell in row.cells.values()]
            lines.append(_line(name, piece.promise, *cells, piece.why, piece.part, piece.claim))
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


# ---- results


def results_text(records: list[Record]) -> str:
    """docs/results.md: the claims that flip, the remedies, and the benchmarks of each unit."""
    lines = [RESULTS_HEAD, FLIPS_HEAD]
    flipping = [row for row in claim_rows(records) if row.flips]
    unit = ""
    for row in flipping:
        if row.unit != unit:
            unit = row.unit
            lines.append(f"**{title_of(unit)}**\n")
        last = row is flipping[-1] or flipping[flipping.index(row) + 1].unit != unit
        lines.append(_flip(row) + ("\n" if last else ""))
    if not flipping:
        lines.append(NO_FLIPS + "\n")
    lines += _remedies(claim_rows(records))
    lines.append(BENCHMARKS_HEAD)
    for title, tables in _benchmarks_by_unit(records).items():
        lines.append(f"### {title}\n")
        for record, key in tables:
            lines += _benchmark(record, record["benchmarks"][key])
    return "\n".join(lines).rstrip() + "\n"


def title_of(unit: str) -> str:
    """The title "01 Parallel loading" of the unit "01_parallel_loading"."""
    number, _, words = unit.partition("_")
    return f"{number} {words.replace('_', ' ').capitalize()}"


def _flip(row):
    """One item: the sentence, where it held and where it failed, and why it may fail."""
    held = []
    failed = []
    why = ""
    for machine, facts in row.found.items():
        text = f"{machine} ({facts['value']})" if facts["value"] else machine
        if facts["held"] is True:
            held.append(text)
        elif facts["held"] is False:
            failed.append(text)
            why = why or facts.get("otherwise", "")
    text = f"- **{row.sentence}** (part {row.part[0]}): holds on {'; '.join(held)}, "
    text += f"fails on {'; '.join(failed)}."
    return f"{text} Its cell says there: “{why}”" if why else text


def _remedies(rows: list[Row]) -> Iterator[str]:
    """The lines of the table of remedies."""
    found = {row.sentence: row for row in rows}
    yield REMEDIES_HEAD
    yield from _head(["unit", "remedy", "wins", "loses"])
    for remedy in REMEDIES:
        yield _remedy(remedy, found)
    yield ""


def _remedy(remedy: Remedy, found: dict[str, Row]) -> str:
    cells = []
    for sentences in (remedy.wins, remedy.loses):
        texts = [_with_verdicts(sentence, found.get(sentence)) for sentence in sentences]
        cells.append("<br>".join(texts))
    return _line(remedy.unit[:2], f"**{remedy.name}**", *cells)


def _with_verdicts(sentence: str, row: Row | None) -> str:
    """A claim's sentence, and what each machine found."""
    if row is None:
        return f"{sentence} ({NOT_MEASURED})"
    verdicts = [f"{machine}: {_result(facts)}" for machine, facts in row.found.items()]
    return f"{sentence} ({'; '.join(verdicts)})"


def _benchmarks_by_unit(records: Iterable[Record]) -> dict[str, list[tuple[Record, str]]]:
    """{title: (record, key of a benchmark) of each}, in the order of the course."""
    tables = {title_of(unit): [] for unit in UNIT_OF_BENCHMARK.values()}
    tables |= {CHECKUP: [], OTHERS: []}
    for record in records:
        for key in record["benchmarks"]:
            tables[_title_of_benchmark(key)].append((record, key))
    return {title: found for title, found in tables.items() if found}


def _title_of_benchmark(key: str) -> str:
    """The section of a benchmark, which the first word of its key tells."""
    word = key.split(",")[0].split()[0]
    if word == "checkup":
        return CHECKUP
    unit = UNIT_OF_BENCHMARK.get(word)
    return title_of(unit) if unit else OTHERS


def _benchmark(record: Record, table: dict[str, Any]) -> Iterator[str]:
    """The lines of one table with its command, machine and notes."""
    yield f"**{table['title']}** on {record['machine']}, {table['on']}: `{table['command']}`\n"
    before, after = table["notes"][:1], table["notes"][1:]
    for note in before:
        yield f"{note}\n"
    if table["columns"]:
        yield from _head(table["columns"])
        for row in table["rows"]:
            yield _line(*row)
        yield ""
    for note in after:
        yield f"{note}\n"


# ---- steps on a GPU


def gpu_text(records: list[Record], names: list[str], is_dry: bool = False) -> str:
    """docs/results-gpu.md: the steps called `names` on each machine that has a GPU."""
    lines = [GPU_HEAD]
    if is_dry:
        lines.append(DRY)
    with_gpu = [record for record in records if record["is_gpu"]]
    for record in with_gpu:
        lines += _steps(record, names)
    if not with_gpu:
        lines.append(f"No GPU has a record: {NOT_MEASURED}.")
    return "\n".join(lines).rstrip() + "\n"


def _steps(record: Record, names: list[str]) -> Iterator[str]:
    """The lines of one machine: a row per step, then one per measured value."""
    yield f"## {record['machine']}\n"
    yield f"Machine: {record['details']}.\n"
    yield from _head(
        ["step", "ended", "seconds", "cells", "claims that held", "did not hold, or failed"]
    )
    steps = record["steps"]
    for name in names:
        yield _step(name, steps[name]) if name in steps else _line(name, NOT_MEASURED, *[""] * 4)
    yield ""
    yield from _head(["step", "measured", "value"])
    for name in names:
        rows = steps.get(name, {}).get("rows", [])
        if "/" not in name:  # a part has its rows above
            for what, value in rows or [(NOT_MEASURED, "")]:
                yield _line(name, what, value)
    yield ""
    for name in names:
        if steps.get(name, {}).get("note"):
            yield f"**{name}**: {steps[name]['note']}\n"


def _step(name: str, step: dict[str, Any]) -> str:
    rows = dict(step["rows"])
    seconds = "" if step["seconds"] is None else f"{step['seconds']:.0f}"
    wrong = rows.get("failed") or rows.get("did not hold", "")
    cells = rows.get("cells that ran", "")
    return _line(name, step["status"], seconds, cells, rows.get("claims that held", ""), wrong)


def _head(columns: list[str]) -> list[str]:
    """The first two lines of a table in Markdown."""
    return [_line(*columns), "|---" * len(columns) + "|"]


def _line(*cells: object) -> str:
    """A line of a table in Markdown."""
    texts = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells]
    return "| " + " | ".join(texts) + " |"
