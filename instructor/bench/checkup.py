"""`course bench checkup`: is a planted fault named first, and is the advice worth what it says?

Each script in PLANTED has one fault, or none, and trains without it if it gets an argument. The
benchmark watches the script, then trains it alternately with and without the fault, and compares
the ratio of these times with what the first advice expected.
"""

import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from course.checkup import run as pipeline
from course.checkup import script
from course.checkup.advice import RULES
from course.checkup.report import Report
from course.checkup.schedule import Enough
from course.checkup.watch import Watch
from course.device import machine
from course.measure.comparison import Interval, compare_measured
from instructor.bench import SECONDS_MAX, public_scripts, rounds_up_to
from instructor.bench.places import PLANTED

LEFT_OUT = ("late_rank", "small_kernels")  # one needs torchrun; one a compiler, and a minute


def _faults() -> dict[str, str]:
    """{script: the rule that must find its fault}."""
    faults = {}
    for rule in RULES:
        faults |= dict.fromkeys(rule.PLANTED, rule.NAME)
    return {name: fault for name, fault in faults.items() if name not in LEFT_OUT}


FAULTS = _faults()
HEALTHY = ("healthy_mlp", "healthy_images", "healthy_tokens")
WARM_UP_STEPS = 5
WITHIN = 0.2  # relative: how far from the expected gain a fix may be


@dataclass(frozen=True)
class Row:
    """What the check-up said of a planted script, and what following it is worth."""

    name: str  # of the first advice; "" if there is none
    text: str  # of the same
    expected: float  # times as fast
    fixed: Interval | None  # times as fast as measured; None unless the advice names the fault
    cost: float | None  # share of the time that watching took; None if it was not measured


def run(
    steps: int = 60, rounds: int = 7, only: tuple[str, ...] = (), public: Path | None = None
) -> dict[str, Row]:
    """Print the table and return {script: its Row}.

    Args:
        public: a folder with any of public_scripts.CLONES, whose scripts are watched too.
    """
    rows = {}
    print("| script | first advice | expected | fixed by hand | cost of watching |")
    print("|---|---|---|---|---|")
    for name in (*FAULTS, *HEALTHY):
        if not only or name in only:
            rows[name] = planted(name, steps, rounds)
            _print_row(name, rows[name])
    summary(rows)
    if public:
        _print_public(public, steps)
    print(machine())
    return rows


def _print_row(name: str, row: Row) -> None:
    fixed = str(row.fixed or "")
    cost = "not measured" if row.cost is None else f"{row.cost:.1%}"
    print(f"| {name} | {row.text} | {row.expected:.2f} | {fixed} | {cost} |", flush=True)


def _print_public(public: Path, steps: int) -> None:
    public_scripts.write_noise(public)
    print("| public script | its report |\n|---|---|")
    for name in public_scripts.PUBLIC:
        print(f"| {name} | {public_scripts.report(public, name, steps)} |", flush=True)


def summary(rows: dict[str, Row]) -> None:
    """Print how often the fault came first, nothing was advised, and an expectation held."""
    first = [rows[name].name == fault for name, fault in FAULTS.items() if name in rows]
    quiet = [rows[name].name == "" for name in HEALTHY if name in rows]
    held = []
    costs = []
    for row in rows.values():
        if row.fixed:
            held.append(abs(row.fixed.estimate / row.expected - 1) <= WITHIN)
        if row.cost is not None:
            costs.append(row.cost)
    print(f"the planted fault is the first advice: {sum(first)} of {len(first)}")
    print(f"nothing is advised where nothing is wrong: {sum(quiet)} of {len(quiet)}")
    print(f"fixing it gives what was expected, within {WITHIN:.0%}: {sum(held)} of {len(held)}")
    if costs:
        print(f"cost of watching: median {statistics.median(costs):.1%}, highest {max(costs):.1%}")


def planted(name: str, steps: int, rounds: int) -> Row:
    """The Row of one script."""
    path = PLANTED / f"{name}.py"
    seen = watched(path, [], steps)
    cost = seen.facts.own_cost
    if not seen.advice:
        return Row("", "nothing", 1.0, None, cost)
    first = seen.advice[0]
    fixed = None
    if first.name == FAULTS.get(name):
        fixed = worth(path, first.text, steps, rounds)
    return Row(first.name, first.text, first.gain, fixed, cost)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def watched(path: Path, arguments: list[str], steps: int, compile: bool = False) -> Report:
    """The Report of a script, whose own output is dropped."""
    found = script.find(str(path), is_module=False)
    with script.as_main(found, arguments) as module:
        with Watch(steps) as watch, _quiet():
            ending = script.run(found.code, module)
        return pipeline.analyse(watch, path.name, ending.how, not ending.code, compile)


def worth(path: Path, fix: str, steps: int, rounds: int) -> Interval:
    """How many times as fast per sample the script trains with the fix."""
    arguments = {"as it is": [], fix: [fix]}
    found = compare_measured(
        list(arguments),
        lambda way: seconds(path, arguments[way], steps),
        rounds=rounds_up_to(rounds),
        seconds=SECONDS_MAX,
    )
    return found.ratio(fix)


def seconds(path: Path, arguments: list[str], steps: int) -> float:
    """Seconds per sample of `steps` steps of a script after a few that warm up; unwatched."""
    times = []
    leader = []  # the optimizer that steps first, whose steps count

    def stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        leader.append(optimizer)
        if optimizer is leader[0]:
            times.append(time.perf_counter())
            if len(times) > WARM_UP_STEPS + steps:
                raise Enough

    found = script.find(str(path), is_module=False)
    handle = register_optimizer_step_post_hook(stepped)
    try:
        with script.as_main(found, arguments) as module, _quiet():
            script.run(found.code, module)
    finally:
        handle.remove()
    per_step = (times[-1] - times[WARM_UP_STEPS]) / (len(times) - 1 - WARM_UP_STEPS)
    return per_step / vars(module).get("samples", 1)
