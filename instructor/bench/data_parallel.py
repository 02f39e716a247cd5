"""Compare a training step of FashionCNN with the reference's and with torch's DDP.

The wrappers (NaiveDDP, OverlappedDDP, DistributedDataParallel) take turns in one run, each rank
computes with one thread, the time is that of the slowest rank.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from course.device import machine
from course.measure.comparison import Comparison
from course.notebook.solutions import load_solutions
from course.parallel.distributed import compare_on_ranks, run_ranks, sgd_step
from course.training.models import FashionCNN
from instructor.bench import control_line, rounds_up_to
from instructor.bench.tables import Table

UNIT = "02_data_parallel"
RANKS_SECONDS_MAX = 600
NAIVE = "NaiveDDP, a message a parameter"
OVERLAPPED = "OverlappedDDP"
TORCH = "torch's DistributedDataParallel"


def steps(ranks: int, rounds: int, batch_size: int) -> list[Table]:
    """Print and return the step time of each wrapper over that of torch's DDP."""
    answers = load_solutions(UNIT)
    wrappers = {
        TORCH: DistributedDataParallel,
        NAIVE: answers.NaiveDDP,
        OVERLAPPED: answers.OverlappedDDP,
    }
    found = run_ranks(
        _step_seconds,
        ranks,
        wrappers,
        batch_size,
        rounds,
        timeout=RANKS_SECONDS_MAX,
    )
    compared = found[0]  # every rank returns the same
    note = f"FashionCNN, SGD, {ranks} ranks, batch {batch_size} per rank; {control_line(compared)}"
    columns = ["wrapper", "ms per step", "times as long as torch's"]
    table = Table("data-parallel steps", "DDP by hand", columns, note)
    for name in compared.seconds:
        milliseconds = f"{1000 * compared.time(name).estimate:.1f}"
        table.add(name, milliseconds, compared.ratio(TORCH, to=name))
    print(table)
    ratio = compared.ratio(TORCH, to=OVERLAPPED)
    print(f"OverlappedDDP by hand takes {ratio} of torch's step time (asked: at most 1.10)")
    print(machine())
    return [table]


def _step_seconds(
    rank: int,
    world_size: int,
    wrappers: dict[str, type[nn.Module]],
    batch_size: int,
    rounds: int,
) -> Comparison:
    """The Comparison of a step with each wrapper, by the slowest rank."""
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    images = torch.randn(batch_size, 1, 28, 28, device=device)
    labels = torch.randint(10, (batch_size,), device=device)
    steps = {}
    for name, wrap in wrappers.items():
        model = wrap(FashionCNN(dropout=0.0, norm=None).to(device))
        steps[name] = sgd_step(model, (images, labels))
    fewest, most = rounds_up_to(rounds)
    return compare_on_ranks(
        steps, fewest_rounds=fewest, most_rounds=most, seconds=RANKS_SECONDS_MAX / 2
    )
