"""Which rank the others wait for: each measures itself, then all exchange what they found."""

import torch.distributed as dist

from course.checkup.facts import LineShare, Phases, Skew
from course.checkup.phases import BACKWARD, COMMUNICATION
from course.checkup.watch import Watch

WAITING = (BACKWARD, COMMUNICATION)  # a rank waits for others there: DDP all-reduces in backward


def skew(watch: Watch, phases: Phases, lines: dict[str, list[LineShare]]) -> Skew | None:
    """How the ranks differ in what is not WAITING; None unless several were watched.

    A collective: every rank calls it, after the same step.
    """
    schedule = watch.schedule
    if schedule.ranks == 1 or not schedule.ended or not dist.is_initialized():
        return None
    own_seconds = {name: one.seconds for name, one in phases.items() if name not in WAITING}
    own_lines = {name: frequent[0].line for name, frequent in lines.items() if frequent}
    ranks: list = [None] * schedule.ranks
    dist.all_gather_object(ranks, (own_seconds, own_lines))
    seconds = [sum(by_phase.values()) for by_phase, _ in ranks]
    slowest = seconds.index(max(seconds))
    fastest = seconds.index(min(seconds))
    phases_of_slowest, lines_of_slowest = ranks[slowest]
    phases_of_fastest, _ = ranks[fastest]
    lost = {
        name: spent - phases_of_fastest.get(name, 0.0) for name, spent in phases_of_slowest.items()
    }
    phase = max(lost, key=lost.get)
    return Skew(
        seconds=seconds,
        late=max(seconds) - min(seconds),
        rank=slowest,
        phase=phase,
        waits=max(seconds) - seconds[dist.get_rank()],
        line=lines_of_slowest.get(phase, ""),
    )
