"""Compare a training step of FashionCNN with the reference's NaiveDDP and OverlappedDDP and with
torch's DDP.

The wrappers take turns in one run, each rank computes with one thread, the time is that of the
slowest rank.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from course.device import machine
from course.notebook.solutions import load_solutions
from course.parallel.distributed import run_ranks, sgd_step, timed_rounds
from course.training.models import FashionCNN
from instructor.bench import spread

UNIT = "02_data_parallel"


def steps(ranks, rounds, batch_size):
    """Print the step time of each wrapper over that of torch's DDP, paired in each round."""
    print(f"{ranks} ranks, {rounds} rounds")
    answers = load_solutions(UNIT)
    wrappers = {
        "NaiveDDP, a message a parameter": answers.NaiveDDP,
        "OverlappedDDP": answers.OverlappedDDP,
        "torch's DistributedDataParallel": DistributedDataParallel,
    }
    (seconds, *_) = run_ranks(
        _step_seconds, ranks, list(wrappers.values()), batch_size, rounds, timeout=600
    )
    print(
        f"\nFashionCNN, SGD, batch {batch_size} a rank: ms a step; over torch's; median (lowest to highest)"
    )
    for name, own in zip(wrappers, seconds.T, strict=True):
        print(
            f"  {name:<34} {spread(1000 * own, '.1f'):>24}  {spread(own / seconds[:, -1], '.3f')}"
        )
    ratio = (seconds[:, 1] / seconds[:, 2]).median().item()
    print(f"OverlappedDDP by hand takes {ratio:.2f} of torch's step time (asked: at most 1.10)")
    print(machine())


def _step_seconds(rank, world_size, wrappers, batch_size, rounds):
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    images, labels = (
        torch.randn(batch_size, 1, 28, 28, device=device),
        torch.randint(10, (batch_size,), device=device),
    )
    models = [wrap(FashionCNN(dropout=0.0, norm=None).to(device)) for wrap in wrappers]
    return timed_rounds([sgd_step(model, (images, labels)) for model in models], rounds)
