"""The small GPT on one rank and on several: steps to compare, and where a rank's time goes.

The functions run inside a rank. course.parallel.timing compares, small_gpt.py has the model.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from course.device import cores, own_gpus
from course.measure.comparison import Comparison, Interval, difference_interval
from course.parallel.timing import compare_measured_on_ranks, compare_on_ranks
from course.training.small_gpt import gpt_step, random_tokens, small_gpt

ONE = "a whole batch on one rank"
ALONE = "alone"
SILENT = "silent"
SHARED = "shared"
EACH = "each"
RUNS = 5  # of a step, whose median says how late a batch is

Step = Callable[[], None]


def own_device() -> torch.device:
    """The device of this rank."""
    return (
        torch.device("cuda", dist.get_rank())
        if dist.get_backend() == "nccl"
        else torch.device("cpu")
    )


def ranks_with_own_device() -> int:
    """How many ranks have their own GPU, or their own core where there is one GPU at most."""
    return own_gpus() or max(2, cores())


def compared_steps(
    rank: int, world_size: int, rows: int, ranks: Sequence[int], seconds: float
) -> Comparison:
    """The Comparison of a step on ONE rank with those of (n, variant), for the other n of `ranks`.

    Args:
        rows: sequences of a whole batch.
        ranks: numbers of ranks, 1 first.
    """
    torch.set_num_threads(1)
    steps = {}
    for n in ranks:
        group = dist.new_group(list(range(n)))
        if n == 1:
            steps[n, ONE] = _step_with(rows) if rank == 0 else _look_on
            continue
        steps[n, ALONE] = _step_with(rows // n) if rank == 0 else _look_on
        for variant in (SILENT, SHARED, EACH):
            steps[n, variant] = _look_on
            if rank < n:
                steps[n, variant] = _shared_step(
                    variant, rows if variant == EACH else rows // n, group
                )
    return compare_on_ranks(steps, seconds=seconds)


def _look_on() -> None:
    """The step of a rank that takes no part."""


def _step_with(rows: int) -> Step:
    return gpt_step(small_gpt().to(own_device()), random_tokens(rows).to(own_device()))


def _shared_step(variant: str, rows: int, group: dist.ProcessGroup) -> Step:
    model = DistributedDataParallel(small_gpt().to(own_device()), process_group=group)
    tokens = random_tokens(rows, seed=dist.get_rank()).to(own_device())
    step = gpt_step(model, tokens)
    return without_sync(model, step) if variant == SILENT else step


def without_sync(model: DistributedDataParallel, step: Step) -> Step:
    """`step` under the no_sync of `model`: all is computed, nothing is sent."""

    def quiet_step() -> None:
        with model.no_sync():
            step()

    return quiet_step


def speedups(compared: Comparison, ranks: Sequence[int], variant: str) -> list[Interval]:
    """How many times as fast as a step on one rank a step of `variant` is on each of `ranks`.

    Args:
        compared: what `compared_steps` returned.
        ranks: numbers of ranks, 1 first.
        variant: SHARED or EACH.
    """
    ratios = []
    for n in ranks:
        way = compared.base if n == 1 else (n, variant)
        ratios.append(compared.ratio(way))
    return ratios


def lost_shares(compared: Comparison, n: int) -> dict[str, Interval]:
    """{cause: what it adds to a step shared by `n` ranks}, in steps of one rank.

    With 1 / n, the ideal, they add up to the step.
    """
    one = compared.seconds[compared.base]
    alone, silent, shared = (
        (compared.seconds[n, variant] / one).tolist() for variant in (ALONE, SILENT, SHARED)
    )
    ideal = [1 / n] * len(alone)
    return {
        "a small batch": difference_interval(alone, ideal),
        "others compute too": difference_interval(silent, alone),
        "sending": difference_interval(shared, silent),
    }


def compared_delays(
    rank: int, world_size: int, rows: int, delays: Mapping[str, Sequence[float]], seconds: float
) -> tuple[Comparison, dict[str, tuple[float, float]]]:
    """(Comparison of DDP's step where batches are late, {way: (late, own) seconds of this rank}).

    Own seconds are what a rank takes in a step that sends nothing: its batch is late, and it
    computes. They are measured in the same rounds as the step that sends, as a way of the
    Comparison.

    Args:
        rows: sequences per rank.
        delays: {way: how late the batch of each rank is, in steps without delay}.
    """
    torch.set_num_threads(1)
    model = DistributedDataParallel(small_gpt().to(own_device()))
    step = gpt_step(model, random_tokens(rows, seed=rank).to(own_device()))
    silent_step = without_sync(model, step)
    on_time = torch.tensor(_median_seconds(step), device=own_device())
    dist.all_reduce(on_time, dist.ReduceOp.MAX)
    late = {way: of_ranks[rank] * on_time.item() for way, of_ranks in delays.items()}
    steps = {way: _late_step(late[way], step) for way in delays}
    for way in delays:
        steps[_silently(way)] = _late_step(late[way], silent_step)
    mine: dict[str, list[float]] = {way: [] for way in steps}

    def measure(way: str) -> float:
        mine[way].append(_seconds(steps[way]))
        return mine[way][-1]

    compared = compare_measured_on_ranks(list(steps), measure, seconds=seconds)
    own = {}
    for way in delays:
        in_rounds = mine[_silently(way)][1:]  # the first run warms up, and is in no round
        own[way] = (late[way], statistics.median(in_rounds))
    return compared, own


def _silently(way: str) -> str:
    return f"{way}, nothing sent"


def _late_step(late: float, step: Step) -> Step:
    """`step`, after a batch has come so many seconds late."""

    def late_step() -> None:
        time.sleep(late)
        step()

    return late_step


def shares_of_ways(
    of_ranks: Sequence[tuple[Comparison, Mapping[str, tuple[float, float]]]],
) -> dict[str, list[dict[str, float]]]:
    """{way: `step_shares` of each rank}, of what `compared_delays` returned on each rank."""
    compared, ways = of_ranks[0]
    shares = {}
    for way in ways:
        late_and_own = [of_rank[way] for _, of_rank in of_ranks]
        shares[way] = step_shares(compared.median(way), late_and_own)
    return shares


def step_shares(
    step_seconds: float, late_and_own: Sequence[tuple[float, float]]
) -> list[dict[str, float]]:
    """{"batch late", "computing", "waiting", "sending": share of a step} of each rank.

    Args:
        step_seconds: of a step of all ranks.
        late_and_own: how late the batch of each rank is, and what it takes alone, that included.
    """
    slowest = max(own for _, own in late_and_own)
    whole = max(step_seconds, slowest)
    shares = []
    for late, own in late_and_own:
        parts = {
            "batch late": late,
            "computing": own - late,
            "waiting": slowest - own,
            "sending": whole - slowest,
        }
        shares.append({name: part / whole for name, part in parts.items()})
    return shares


def _median_seconds(step: Step) -> float:
    """The median of some runs of `step` on this rank, while the other ranks compute too."""
    _seconds(step)
    return statistics.median(_seconds(step) for _ in range(RUNS))


def _seconds(step: Step) -> float:
    """The seconds of one run of `step` on this rank, which all ranks start together."""
    dist.barrier()
    started = time.perf_counter()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started
