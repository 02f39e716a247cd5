"""Compare a training step of FashionCNN with the reference's and with torch's DDP.

The wrappers (NaiveDDP, OverlappedDDP, DistributedDataParallel) take turns in one run, each rank
computes with one thread, the time is that of the slowest rank.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from course.device import machine
from course.notebook.solutions import load_solutions
from course.parallel.distributed import run_ranks, sgd_step, timed_rounds
from course.training.models import FashionCNN
from instructor.bench import spread
from instructor.bench.tables import Table

UNIT = "02_data_parallel"
RANKS_SECONDS_MAX = 600
NAIVE = "NaiveDDP, a message a parameter"
OVERLAPPED = "OverlappedDDP"
TORCH = "torch's DistributedDataParallel"


def steps(ranks: int, rounds: int, batch_size: int) -> list[Table]:
    """Print the step time of each wrapper over that of torch's DDP, paired in each round.

    Returns: the table.
    """
    answers = load_solutions(UNIT)
    wrappers = {
        NAIVE: answers.NaiveDDP,
        OVERLAPPED: answers.OverlappedDDP,
        TORCH: DistributedDataParallel,
    }
    found = run_ranks(
        _step_seconds,
        ranks,
        list(wrappers.values()),
        batch_size,
        rounds,
        timeout=RANKS_SECONDS_MAX,
    )
    seconds = dict(zip(wrappers, found[0].T, strict=True))  # every rank returns the same
    note = f"{ranks} ranks, FashionCNN, SGD, batch {batch_size} per rank, {rounds} rounds, "
    note += "median (lowest to highest)"
    columns = ["wrapper", "ms per step", "time over torch's"]
    table = Table("data-parallel steps", "DDP by hand", columns, note)
    for name, own in seconds.items():
        ratio = spread(own / seconds[TORCH], ".3f")
        table.add(name, spread(1000 * own, ".1f"), ratio)
    print(table)
    ratio = (seconds[OVERLAPPED] / seconds[TORCH]).median().item()
    print(f"OverlappedDDP by hand takes {ratio:.2f} of torch's step time (asked: at most 1.10)")
    print(machine())
    return [table]


def _step_seconds(
    rank: int, world_size: int, wrappers: list[type[nn.Module]], batch_size: int, rounds: int
) -> Tensor:
    """Seconds (rounds, wrappers) of a step, as the slowest rank took them."""
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    images = torch.randn(batch_size, 1, 28, 28, device=device)
    labels = torch.randint(10, (batch_size,), device=device)
    steps = []
    for wrap in wrappers:
        model = wrap(FashionCNN(dropout=0.0, norm=None).to(device))
        steps.append(sgd_step(model, (images, labels)))
    return timed_rounds(steps, rounds)
