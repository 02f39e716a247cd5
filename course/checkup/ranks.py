"""Which rank the others wait for: each measures itself, then all exchange what they found."""

import torch.distributed as dist

from course.checkup.facts import lines, phases
from course.checkup.phases import BACKWARD, COMMUNICATION

# where a rank waits for others: DDP's all-reduces run in backward
WAITING = (
    BACKWARD,
    COMMUNICATION,
)


def skew(watch) -> dict:
    """Seconds per step that each rank needs outside WAITING, and who is late; {} unless several
    ranks were watched.

    Returns: {"seconds": one number per rank, "late": the largest minus the smallest, "rank": the
    slowest, "waits": how long this rank waits for it, "phase" and "line": where the slowest loses
    most against the fastest}.
    A collective: every rank calls it, after the same step.
    """
    if watch.ranks == 1 or not watch.ended or not dist.is_initialized():
        return {}
    mine = {name: row["seconds"] for name, row in phases(watch).items() if name not in WAITING}
    ranks = [None] * watch.ranks
    dist.all_gather_object(
        ranks, (mine, {name: top[0][0] for name, top in lines(watch).items() if top})
    )
    seconds = [sum(own.values()) for own, _ in ranks]
    slowest, fastest = seconds.index(max(seconds)), seconds.index(min(seconds))
    (own, where), (other, _) = ranks[slowest], ranks[fastest]
    phase = max(own, key=lambda name: own[name] - other.get(name, 0.0))
    return {"seconds": seconds, "late": max(seconds) - min(seconds), "rank": slowest, "phase": phase,
            "waits": max(seconds) - seconds[dist.get_rank()], "line": where.get(phase, "")}  # fmt: skip
