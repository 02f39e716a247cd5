"""The report: one screen of text, JSON for a program."""

import json
import math
import re
from dataclasses import dataclass, field

import torch

from course.checkup import advice as advise
from course.checkup import predict, trials
from course.checkup.facts import facts, gaps
from course.checkup.phases import CODE, TIMED
from course.checkup.predict import duration
from course.checkup.ranks import skew
from course.checkup.watch import WARM_UP
from course.errors import CourseError

BAR = 40  # characters
RARELY = 0.1  # per step: what is asked less often is not worth a line
COLOURS = {
    "data": 33,
    "transfer": 35,
    "forward": 32,
    "backward": 36,
    "optimizer": 34,
    "communication": 31,
    "code": 37,
}
CODE_NAME = "your code"  # what a reader calls the phase CODE
ITEM_NAMES = {
    "item": "__getitem__",
    "read": "read",
    "transform": "transform",
    "collate": "collate_fn",
}


@dataclass
class Report:
    """What a check-up found: `data` holds all of it, str() is the screen."""

    data: dict
    steps: list = field(default_factory=list)  # timed ones, for the timeline

    def __str__(self):
        return text(self.data)

    def _repr_html_(self):
        from course.checkup.html import page

        return page(self)

    def text(self, coloured: bool = False) -> str:
        """The screen, with colours if asked."""
        return text(self.data, coloured)

    def json(self) -> str:
        """All of `data` that plain JSON can hold."""
        return json.dumps(self.data, indent=1, default=_plain)


def make(watch, name: str, ending: str, tries: bool = False, compile: bool = False) -> Report:
    """The Report of what a Watch has seen; with `tries`, of what can be tried after it as well."""
    data = {
        "name": name,
        "ending": ending,
        "cuda": watch.cuda,
        "compiled": watch.compiled,
        "torch": torch.__version__,
    }
    data |= facts(watch) | {"skew": skew(watch), "trials": {}, "items": {}, "costs": {}}
    if tries:
        data |= trials.trials(watch, data, compile)
    data |= predict.predictions(watch, data)
    data["advice"], data["regime"] = advise.advice(data), advise.regime(data)
    data["would_not_help"], data["not_seen"] = advise.would_not_help(data), advise.not_seen(data)
    timed = [step for step in watch.steps if step.kind == TIMED and not step.evaluated][:10]
    data["gaps"] = _gaps(timed)
    return Report(data, timed)


def _gaps(timed):
    """{following phase: seconds of own code per step}."""
    means = {}
    for step in timed:
        for after, spent in gaps(step).items():
            means[after] = means.get(after, 0.0) + spent / len(timed)
    return means


def _plain(value):
    return value.tolist() if isinstance(value, torch.Tensor) else str(value)


# ---- text


def text(data: dict, coloured: bool = False) -> str:
    """The screen."""
    blocks = [
        _head(data),
        _phases(data, coloured),
        _facts(data),
        _table(data, coloured),
        _predictions(data),
    ]
    blocks += [
        _list("No proven gain here", data["would_not_help"]),
        _list("Not seen", data["not_seen"]),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _head(data):
    s, steps, cost = data["seconds"], data["steps"], data["own_cost"]
    own = (
        "not measured: too few steps"
        if cost is None
        else f"{cost:.1%} of the time, the last steps left out"
    )
    return (
        f"Check-up of {data['name']}: {data['regime']}\n"
        f"{steps['watched']} steps watched, {steps['run']} run in all; "
        f"{duration(s['median'])} each ({duration(s['low'])} to {duration(s['high'])}); {data['ending']}. "
        f"Cost of watching: {own}."
    )


def _phases(data, coloured):
    rows = []
    for name, row in data["phases"].items():
        bar = "█" * round(BAR * row["share"])
        bar = f"\x1b[{COLOURS[name]}m{bar}\x1b[0m" if coloured else bar
        spread = f"{row['share']:6.1%} ({row['low']:.0%} to {row['high']:.0%})"
        at = where(data, name) if name in (CODE, "data") else ""
        rows.append(f"  {CODE_NAME if name == CODE else name:<14}{spread:<22} {bar} {at}".rstrip())
    if data["evaluation"]["times"]:
        rows.append(
            f"  evaluation: {data['evaluation']['share']:.1%} of all the time, in {data['evaluation']['times']} steps"
        )
    return "\n".join(rows)


def where(data: dict, phase: str) -> str:
    """Where a phase spends its time: "mostly before forward, at train.py:116"."""
    lines = data["lines"].get(phase, [])
    at = f"at {lines[0][0]}" if lines else ""
    if phase != CODE or not data.get("gaps"):
        return at
    after = max(data["gaps"], key=data["gaps"].get)
    return ", ".join(
        filter(None, [f"mostly before {'the ' if after == 'next step' else ''}{after}", at])
    )


def _facts(data):
    rows = []
    one = data["loader"]
    if one:
        rows.append(f"loader      {one['dataset']}, batch {one['batch_size']}, {one['workers']} workers, "
                    f"pin_memory {one['pin_memory']}, persistent {one['persistent']}")  # fmt: skip
    if data.get("items"):
        shares = ", ".join(
            f"{ITEM_NAMES[name]} {part:.0%}" for name, part in data["items"]["shares"].items()
        )
        rows.append(f"items       {duration(data['items']['seconds'])} each: {shares}")
    m, names = (
        data["memory"],
        ", ".join(f"{name}, {n:,} trained, {dtype}" for name, n, dtype in data["models"]),
    )
    rows.append(
        f"model       {names or 'none was seen'}; optimizer {', '.join(data['optimizers']['names'])}"
    )
    if data["batch"]:
        rows.append(
            f"batch       {size(data['batch']['bytes'])}: {' '.join(map(str, data['batch']['shapes'][:4]))}"
        )
    saved = size(m["activations"]) if m["activations"] is not None else "not seen"
    rows.append(f"memory      weights {size(m['weights'])}, gradients {size(m['gradients'])}, "
                f"optimizer {size(m['optimizer'])}, activations {saved}")  # fmt: skip
    if data["backwards"] > 1.5:
        rows.append(f"backward    {data['backwards']:g} per step")
    for call, line, n in [
        row for row in [*data["syncs"], *data["collectives"]] if row[2] >= RARELY
    ][:4]:
        rows.append(f"asks        {call} at {line}, {n:.3g} per step")
    if data["skew"]:
        rows.append(
            f"ranks       without backward and collectives, per step: {_of_ranks(data['skew']['seconds'])}"
        )
    if data["padding"]:
        p = data["padding"]
        rows.append(
            f"padding     {p['waste']:.2f} cells per token; {p['bucketed']:.2f} if similar lengths were batched"
        )
    return "\n".join("  " + row for row in rows)


def _of_ranks(seconds):
    """The seconds of each rank, or of the slowest and the fastest of many."""
    order = sorted(range(len(seconds)), key=lambda rank: -seconds[rank])
    order = order if len(order) <= 4 else [*order[:2], *order[-2:]]
    return ", ".join(f"rank {rank} {duration(seconds[rank])}" for rank in order)


def _table(data, coloured):
    if not data["phases"]:
        return f"The first {WARM_UP} steps only warm up, so no step was timed. Let the script train for {2 * WARM_UP}."
    if not data["advice"]:
        tried = (
            ", and nothing that was tried made it faster"
            if data["trials"]
            else ". Nothing was tried"
        )
        return f"Nothing to advise: no fault was seen{tried}."
    rows = ["  advice | at most | here | part"]
    for number, line in enumerate(data["advice"], 1):
        most = f"{line['bound']:.2f}x" if line["bound"] > 1.005 else "memory, or nothing"
        # to look at a line is worth nothing yet
        predicted = line["gain"] > 1.005 and line["name"] != "code"
        tried = line["tried"] or (f"predicted {line['gain']:.2f}x" if predicted else "not tried")
        first = f"{number}. {line['text']}"
        first = f"\x1b[1m{first}\x1b[0m" if coloured and number == 1 else first
        rows.append(f"  {first} | {most} | {tried} | {line['part']}")
    return "\n".join(rows)


def _predictions(data):
    return "\n".join("  " + line for line in data.get("predicted", []))


def _list(title, sentences):
    return (
        "\n".join([f"{title}:", *(f"  - {sentence}" for sentence in sentences)])
        if sentences
        else ""
    )


def size(n_bytes: float) -> str:
    """Text "12.3 MB"."""
    power = min(4, int(math.log(max(1, n_bytes), 1000)))
    return f"{n_bytes / 1000**power:.3g} {['B', 'kB', 'MB', 'GB', 'TB'][power]}"


# ---- for a program


def fails(data: dict, condition: str) -> bool:
    """Whether a condition such as "data > 20%" or "advice > 0" holds. Raises: CourseError if it is
    not one.
    """
    match = re.fullmatch(r"\s*([a-z ]+?)\s*([<>])\s*([\d.]+)\s*(%?)\s*", condition)
    known = {name: row["share"] for name, row in data["phases"].items()}
    known = {**dict.fromkeys(COLOURS, 0.0), **known, "evaluation": data["evaluation"]["share"]}
    known["advice"] = len(data["advice"])
    if not match or match[1] not in known:
        raise CourseError(f'--fail-if got "{condition}"; write a phase, < or >, and a share: "data > 20%". '
                          f"Phases: {', '.join(known)}.")  # fmt: skip
    limit = float(match[3]) / (100 if match[4] else 1)
    return known[match[1]] > limit if match[2] == ">" else known[match[1]] < limit
