"""`course bench checkup`: an open benchmark of advice, on scripts with one fault each.

Each script of tests/planted has one fault, or none, and trains without it if it gets an argument.
An adviser looks at the script as it is: is what it says first the fault? Then the script trains
alternately with and without the fault, and the ratio of these times is compared with what the first
advice promised. With --peers TraceML and torch's own anti-patterns are asked, too.

Rows are kept in build/, so that an interrupted benchmark continues. How often a late rank is named
is measured in late_ranks.py.
"""

import contextlib
import dataclasses
import json
import math
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributions import Distribution
from torch.optim.optimizer import register_optimizer_step_post_hook

from course.checkup import run as pipeline
from course.checkup import script
from course.checkup.advice import RULES
from course.checkup.facts import BF16
from course.checkup.formats import FAR, at_most
from course.checkup.report import Report
from course.checkup.schedule import Enough
from course.checkup.watch import Watch
from course.device import machine
from course.measure.comparison import Interval, compare_measured
from course.system.files import write_text
from course.system.folders import ROOT
from course.text import counted
from instructor.bench import SECONDS_MAX, advisers, public_scripts, rounds_up_to
from instructor.bench.advisers import CHECKUP, CRASH, HANG, PEERS, Said
from instructor.bench.places import PLANTED
from instructor.bench.tables import Table

KEPT = ROOT / "build" / "bench-checkup.json"
RANKS = {"late_rank": 2, "late_backward": 2}  # scripts for torchrun
COMPILED = ("small_kernels", "recompiled", "broken_graph")  # scripts that need torch.compile
ON_CUDA = ("no_tf32",)  # scripts that need a GPU
# the part of a step that the rules of its advice look at, which is what TraceML names
PARTS = {
    "data": [
        *("workers", "transform", "item", "read", "collate"),
        *("persistent", "epoch_start", "data-bound"),
    ],
    "code": [
        *("syncs", "code", "graphs", "barrier", "skew", "evaluation"),
        *("distributions", "loops", "now and then"),
    ],
    "compute": [
        *("padding", "channels_last", "compile", "batch", "bf16 autocast", "TF32", "float32"),
        *("anomaly", "threads", "recompiles", "graph breaks", "no_sync"),
    ],
    "optimizer": ["fused optimizer", "optimizers", "zeroed"],
    "memory": ["pin_memory", "kept_losses", "growth"],
}
# arguments of scripts whose fix is a number
IN_BF16 = "in bfloat16"  # a fix that needs no argument of the script
FIXES = {"starved": "num_workers=2", "many_workers": "num_workers=0"}


def _faults() -> dict[str, str]:
    """{script: the rule that must find its fault}."""
    faults = {}
    for rule in RULES:
        faults |= dict.fromkeys(rule.PLANTED, rule.NAME)
    return {name: fault for name, fault in faults.items() if not _is_left_out(name)}


def _is_left_out(script: str) -> bool:
    """Whether this machine cannot run it; one needs a compiler for C++, and a minute."""
    return script == "small_kernels" or (script in ON_CUDA and not torch.cuda.is_available())


FAULTS = _faults()
HEALTHY = tuple(sorted(path.stem for path in PLANTED.glob("healthy_*.py")))
WARM_UP_STEPS = 5
RUN_SECONDS = 0.5  # after which a run ends early, if it has taken RUN_STEPS_MIN steps
RUN_STEPS_MIN = 16
WITHIN = 0.2  # relative: how far from the promised gain a fix may be


@dataclass(frozen=True)
class Row:
    """What was said of a planted script, and what its fix is worth.

    Attributes:
        fixed: times as fast with the fix made by hand, or a healthy one in bfloat16 if that is
            advised; None where it was not timed, because there is no number to compare it with.
        said: by each adviser.
    """

    fixed: Interval | None = None
    said: dict[str, Said] = field(default_factory=dict)


def run(
    steps: int = 60,
    minutes: float = 0.3,
    rounds: int = 7,
    only: tuple[str, ...] = (),
    peers: bool = False,
    public: Path | None = None,
    fresh: bool = False,
    within: float | None = None,
) -> list[Table]:
    """Print and return the tables.

    Args:
        minutes: that the check-up may watch each script, and try as long again.
        only: scripts; the others keep the rows that they have.
        peers: ask the other advisers, too.
        public: a folder with any of public_scripts.CLONES, whose scripts are watched too.
        fresh: forget the rows that were kept.
        within: minutes, after which no script begins; the next call continues (default: no limit).
    """
    stop = _Stop(within)
    rows = {} if fresh else read_rows()
    asked = [CHECKUP, *(advisers.peers() if peers else [])]
    wanted = only or (*FAULTS, *HEALTHY)
    for name in wanted:
        row = rows.get(name, Row())
        if not only and not _not_asked(name, row, asked):
            continue
        if stop.is_near():
            break
        rows[name] = _extended(row, name, asked, steps, minutes, rounds, bool(only))
        print(name, *_cells(name, rows[name], asked), sep=" | ", flush=True)
        _write_rows(rows)
        stop.note()
    known = {name: rows[name] for name in (*FAULTS, *HEALTHY) if name in rows}
    tables = [table_of(known, asked), summary(known, asked)]
    if public or peers:
        tables.append(public_table(public, steps))
    print(*tables, sep="\n")
    print(machine())
    missing = [name for name in wanted if _not_asked(name, known.get(name, Row()), asked)]
    if missing:
        print(f"{counted(len(missing), 'script')} to go: call again without --fresh to continue.")
    return tables


def _not_asked(name: str, row: Row, asked: list[str]) -> set[str]:
    """The advisers that have not yet said anything; others do not look at several ranks."""
    able = {CHECKUP} if name in RANKS else set(asked)
    return able - set(row.said)


class _Stop:
    """Says when to stop, so that the last script ends in time if it takes as long as the longest.

    Args:
        minutes: in which all must end; None for no limit.
    """

    def __init__(self, minutes: float | None) -> None:
        self._last = time.monotonic()
        self._end = math.inf if minutes is None else self._last + 60 * minutes
        self._longest = 0.0

    def note(self) -> None:
        """Note that a script has ended, and the next one begins."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._last)
        self._last = now

    def is_near(self) -> bool:
        """Whether another script might end too late."""
        return time.monotonic() + self._longest > self._end


def _extended(
    row: Row, name: str, asked: list[str], steps: int, minutes: float, rounds: int, again: bool
) -> Row:
    """A Row in which all of `asked` have said something; `again` asks those that have."""
    path = PLANTED / f"{name}.py"
    said = dict(row.said)
    for adviser in asked:
        if adviser in said and not again:
            continue
        if adviser == CHECKUP:
            said[adviser] = advisers.ask_checkup(path, steps, minutes, RANKS.get(name, 1))
        elif name not in RANKS:
            said[adviser] = PEERS[adviser](path, steps)
    fixed = row.fixed
    first = said[CHECKUP]
    has_number = first.gain is not None or first.bound is not None
    row = Row(fixed, said)
    is_timed = name in FAULTS and name not in RANKS and _right(name, CHECKUP, row) == "yes"
    if name in HEALTHY and first.name == BF16:
        fixed = worth(path, IN_BF16, steps, rounds)
    elif is_timed and has_number and (fixed is None or again):
        is_number = name in FIXES and first.text.startswith("num_workers=")
        fix = first.text if is_number else FIXES.get(name, "mended")
        fixed = worth(path, fix, steps, rounds)
    return Row(fixed, said)


def table_of(rows: dict[str, Row], asked: list[str]) -> Table:
    """A row per script: the fault, what it costs, and what each adviser says first."""
    columns = ["script", "first advice", "right", "promised", "by hand", "cost", "s", *asked[1:]]
    table = Table("checkup advice", "The first advice on scripts with one planted fault", columns)
    for name, row in rows.items():
        table.add(name, *_cells(name, row, asked))
    return table


def _cells(name: str, row: Row, asked: list[str]) -> list[str]:
    first = row.said[CHECKUP]
    promised = "" if first.gain is None else f"{first.gain:.2f}"
    if first.bound is not None:
        promised = f"at most {at_most(first.bound)}"
    cost = "" if first.cost is None else f"{first.cost:.1%}"
    text = f"{first.failed} {first.text}".strip().replace("|", "/")
    cells = [text, _right(name, CHECKUP, row), promised, str(row.fixed or ""), cost]
    cells.append(f"{first.seconds:.0f}")
    for peer in asked[1:]:
        said = row.said.get(peer)
        cells.append(f"{said.failed or said.text}: {_right(name, peer, row)}" if said else "")
    return cells


def _right(name: str, adviser: str, row: Row) -> str:
    """A word on whether the first thing said is right."""
    said = row.said[adviser]
    if said.failed:
        return "no"
    if name in HEALTHY:
        return "no" if _is_false_alarm(adviser, row) else "yes"
    return "yes" if _names_cause(name, adviser, said) else "no"


def _is_false_alarm(adviser: str, row: Row) -> bool:
    """Whether a healthy script was said to have a fault; bfloat16 is none where it is faster."""
    said = row.said[adviser]
    if adviser == CHECKUP and said.name == BF16:
        return row.fixed is None or row.fixed.low <= 1
    return advisers.is_alarm(adviser, said)


def _names_cause(name: str, adviser: str, said: Said) -> bool:
    rule = FAULTS[name]
    part = next((part for part, rules in PARTS.items() if rule in rules))
    return advisers.names_cause(adviser, said, rule, part)


def summary(rows: dict[str, Row], asked: list[str]) -> Table:
    """How often each adviser was right, promised what the fix gave, raised alarms, and crashed."""
    columns = ["adviser", "first advice right", "false alarms", f"promise within {WITHIN:.0%}"]
    columns.append("bound held")
    columns += ["crashes", "hangs", "cost, median", "cost, most"]
    n_all = len(FAULTS) + len(HEALTHY)
    note = f"{len(rows)} of {n_all} scripts; TraceML says no causes, so the part of a step is right"
    table = Table("checkup advisers", "Advisers on the scripts above", columns, note)
    for adviser in asked:
        table.add(adviser, *_counts(rows, adviser))
    return table


def _counts(rows: dict[str, Row], adviser: str) -> list[str]:
    of_adviser = {name: row for name, row in rows.items() if adviser in row.said}
    said = {name: row.said[adviser] for name, row in of_adviser.items()}
    planted = [name for name in said if name in FAULTS]
    right = [name for name in planted if _right(name, adviser, rows[name]) == "yes"]
    healthy = [name for name in said if name in HEALTHY]
    alarms = [name for name in healthy if _is_false_alarm(adviser, rows[name])]
    promised = []
    bounded = []
    for name in right:
        first, fixed = said[name], of_adviser[name].fixed
        if first.gain is not None and fixed is not None:
            promised.append(abs(fixed.estimate / first.gain - 1) <= WITHIN)
        if first.bound is not None and fixed is not None:
            bounded.append(first.bound >= FAR or fixed.low <= first.bound)
    failures = [one.failed for one in said.values()]
    costs = [one.cost for one in said.values() if one.cost is not None]
    median = f"{statistics.median(costs):.1%}" if costs else "not measured"
    return [
        f"{len(right)} of {len(planted)}",
        f"{len(alarms)} of {len(healthy)}",
        f"{sum(promised)} of {len(promised)}",
        f"{sum(bounded)} of {len(bounded)}",
        str(failures.count(CRASH)),
        str(failures.count(HANG)),
        median,
        f"{max(costs):.1%}" if costs else "",
    ]


def public_table(public: Path | None, steps: int) -> Table:
    """A row per public script, by its address: what the report says, or that it was not run."""
    table = Table("checkup public", "Public scripts, on noise", ["script", "its report"])
    if public:
        public_scripts.write_noise(public)
    for name in public_scripts.PUBLIC:
        found = public_scripts.NOT_RUN
        if public:
            found = public_scripts.report(public, name, steps)
        table.add(public_scripts.address(name), found.replace("|", "/"))
    return table


# ---- rows that are kept


def read_rows() -> dict[str, Row]:
    """{script: its Row} of an earlier call."""
    if not KEPT.exists():
        return {}
    rows = {}
    for name, one in json.loads(KEPT.read_text(encoding="utf-8")).items():
        fixed = Interval(**one["fixed"]) if one["fixed"] else None
        rows[name] = Row(fixed, {adviser: Said(**said) for adviser, said in one["said"].items()})
    return rows


def _write_rows(rows: dict[str, Row]) -> None:
    KEPT.parent.mkdir(exist_ok=True)
    plain = {name: dataclasses.asdict(row) for name, row in rows.items()}
    write_text(KEPT, json.dumps(plain, indent=1))


# ---- a script in this process


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


@contextlib.contextmanager
def _settings_kept() -> Iterator[None]:
    """After the block torch is set as before: threads, checks of arguments, the group of ranks."""
    threads = torch.get_num_threads()
    checks = Distribution._validate_args
    has_group = dist.is_available() and dist.is_initialized()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        Distribution.set_default_validate_args(checks)
        if dist.is_available() and dist.is_initialized() and not has_group:
            dist.destroy_process_group()


def watched(path: Path, arguments: list[str], steps: int, compile: bool = False) -> Report:
    """The Report of a script, whose own output is dropped."""
    found = script.find(str(path), is_module=False)
    with _settings_kept(), script.as_main(found, arguments) as module:
        with Watch(steps) as watch, _quiet():
            ending = script.run(found.code, module)
        return pipeline.analyse(watch, path.name, ending.how, not ending.code, compile)


def worth(path: Path, fix: str, steps: int, rounds: int) -> Interval:
    """How many times as fast per sample the script trains with the fix.

    Args:
        fix: an argument of the script, or IN_BF16.
    """
    arguments = {"as it is": [], fix: [] if fix == IN_BF16 else [fix]}

    def seconds_of(way: str) -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=way == IN_BF16):
            return seconds(path, arguments[way], steps)

    found = compare_measured(
        list(arguments),
        seconds_of,
        rounds=rounds_up_to(rounds),
        seconds=SECONDS_MAX,
    )
    return found.ratio(fix)


def seconds(path: Path, arguments: list[str], steps: int) -> float:
    """Seconds per sample of `steps` steps of a script after a few that warm up; unwatched.

    Slow steps are fewer: a run ends after RUN_SECONDS, but not before RUN_STEPS_MIN steps.
    """
    times = []
    leader = []  # the optimizer that steps first, whose steps count

    def stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        leader.append(optimizer)
        if optimizer is leader[0]:
            times.append(time.perf_counter())
            done = len(times) - 1 - WARM_UP_STEPS
            is_slow = done >= RUN_STEPS_MIN and times[-1] - times[WARM_UP_STEPS] > RUN_SECONDS
            if done >= steps or is_slow:
                raise Enough

    found = script.find(str(path), is_module=False)
    handle = register_optimizer_step_post_hook(stepped)
    try:
        with _settings_kept(), script.as_main(found, arguments) as module, _quiet():
            script.run(found.code, module)
    finally:
        handle.remove()
    per_step = (times[-1] - times[WARM_UP_STEPS]) / (len(times) - 1 - WARM_UP_STEPS)
    return per_step / vars(module).get("samples", 1)
