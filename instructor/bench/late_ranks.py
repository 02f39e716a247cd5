"""`course bench checkup --ranks`: is a late rank named, and none where both are alike?

Two ranks train the same model under DDP. In a late run one of them, drawn at random, sleeps for a
share of a step in each step, before its forward pass or inside its backward pass.
"""

import collections
import contextlib
import random
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from course.checkup.advice import late_rank
from course.checkup.phases import BACKWARD, CODE
from course.checkup.schedule import Enough
from course.checkup.summary import summarise
from course.checkup.watch import Watch
from course.device import machine
from course.parallel.distributed import run_ranks
from instructor.bench.tables import Table

RANKS = 2
LATE_RUNS = 10  # in each of PLACES
BALANCED_RUNS = 40
PLACES = (CODE, BACKWARD)  # where a rank is late
LATE_SHARE = 0.25  # of a step, by which it is late
NOBODY = -1
WIDTH, LAYERS, BATCH = 256, 6, 128
CALIBRATION_STEPS = 20
SECONDS_MAX = 900


@dataclass(frozen=True)
class Run:
    """A training of RANKS ranks."""

    place: str = ""  # where `late` is late
    late: int = NOBODY


def run(
    late_runs: int = LATE_RUNS, balanced_runs: int = BALANCED_RUNS, steps: int = 60
) -> list[Table]:
    """Print and return the table, in a list.

    Args:
        late_runs: in each of PLACES.
    """
    rng = random.Random(0)
    runs = [Run(place, rng.randrange(RANKS)) for place in PLACES for _ in range(late_runs)]
    runs += [Run()] * balanced_runs
    rng.shuffle(runs)
    of_ranks = run_ranks(_named_in, RANKS, runs, steps, timeout=SECONDS_MAX)
    table = table_of(runs, of_ranks[0])
    print(table, machine(), sep="\n")
    return [table]


def table_of(runs: list[Run], named: list[int]) -> Table:
    """A row per place: how often the late rank was named, the other one, or none.

    Args:
        named: the rank that was named in each run, or NOBODY.
    """
    columns = ["one rank is late", "runs", "that one is named", "another one is", "none is"]
    note = f"{RANKS} ranks, late by {LATE_SHARE:.0%} of a step"
    table = Table("checkup ranks", "Late ranks that the check-up names", columns, note)
    words = {CODE: "before forward", BACKWARD: "inside backward", "": "never"}
    for place in (*PLACES, ""):
        found: collections.Counter[str] = collections.Counter()
        for one, rank in zip(runs, named, strict=True):
            if one.place == place:
                found[_outcome(one, rank)] += 1
        counts = [found[outcome] for outcome in ("right", "wrong", "none")]
        right = counts[0] if place else ""
        table.add(words[place], sum(counts), right, counts[1], counts[2])
    return table


def _outcome(one: Run, rank: int) -> str:
    if rank == NOBODY:
        return "none"
    return "right" if rank == one.late else "wrong"


def _named_in(rank: int, world_size: int, runs: list[Run], steps: int) -> list[int]:
    """The rank that the check-up names in each run."""
    torch.set_num_threads(1)
    seconds = _calibrated()
    named = []
    for one in runs:
        delays = {}
        if one.late == rank:
            delays[one.place] = LATE_SHARE * seconds
        with contextlib.suppress(Enough), Watch(steps) as watch:
            _train(delays)
        facts = summarise(watch)
        if late_rank.check(facts) is None:
            named.append(NOBODY)
        else:
            named.append(facts.skew.rank)
    return named


def _calibrated() -> float:
    """Seconds per step without a delay: rank 0's, after as many steps that warm up."""
    _train({}, CALIBRATION_STEPS)
    begin = time.perf_counter()
    _train({}, CALIBRATION_STEPS)
    seconds = torch.tensor((time.perf_counter() - begin) / CALIBRATION_STEPS)
    dist.broadcast(seconds, 0)
    return seconds.item()


def _train(delays: dict[str, float], steps: int | None = None) -> None:
    """Train for `steps`, or until the check-up ends it.

    Args:
        delays: seconds that this rank sleeps in each step, by place.
    """
    torch.manual_seed(0)

    def delayed(gradient: Tensor) -> Tensor:
        time.sleep(delays.get(BACKWARD, 0.0))
        return gradient

    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    first, rest = nn.Sequential(*layers[:LAYERS]), nn.Sequential(*layers[LAYERS:])
    model = DistributedDataParallel(_Halves(first, rest, delayed))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(BATCH, WIDTH)
    done = 0
    while steps is None or done < steps:
        time.sleep(delays.get(CODE, 0.0))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        done += 1


class _Halves(nn.Module):
    """Two modules, one after the other; a hook sees the gradient between them."""

    def __init__(self, first, rest, hook):
        super().__init__()
        self.first = first
        self.rest = rest
        self.hook = hook

    def forward(self, x):
        """The output of both."""
        hidden = self.first(x)
        hidden.register_hook(self.hook)
        return self.rest(hidden)
