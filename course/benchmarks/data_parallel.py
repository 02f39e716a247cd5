"""What DDP by hand costs beside torch's, and what a collective and a rank cost: ranks -> *tables of ratios*.

    course bench data-parallel steps [--ranks 2]
    course bench data-parallel all_reduce [--ranks 4]
    course bench data-parallel launch [--ranks 2]

`steps` times a training step of FashionCNN with the reference's NaiveDDP and OverlappedDDP against torch's DDP;
`all_reduce` the reference's collectives against the backend's own; `launch` a call of run_ranks.  Contestants take
turns in one run, each rank computes with one thread, the time is that of the slowest rank.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from course.benchmarks import spread
from course.checks.expected import load_solutions
from course.device import machine
from course.parallel.distributed import run_ranks, sgd_step, timed_rounds
from course.training.models import FashionCNN

UNIT = "02_data_parallel"


def run(what, ranks=None, rounds=31, batch_size=64):
    """Print the tables of `what`: steps, all_reduce or launch."""
    ranks = ranks or {"all_reduce": 4}.get(what, 2)
    print(f"{ranks} ranks, {rounds} rounds")
    {"steps": steps, "all_reduce": all_reduce, "launch": launch}[what](ranks, rounds, batch_size)
    print(machine())


def steps(ranks, rounds, batch_size):
    """Prints the step time of each wrapper over that of torch's DDP, paired in each round."""
    answers = load_solutions(UNIT)
    wrappers = {
        "NaiveDDP, a message a parameter": answers.NaiveDDP,
        "OverlappedDDP": answers.OverlappedDDP,
        "torch's DistributedDataParallel": DistributedDataParallel,
    }
    (seconds, *_) = run_ranks(_step_seconds, ranks, list(wrappers.values()), batch_size, rounds, timeout=600)
    print(f"\nFashionCNN, SGD, batch {batch_size} a rank: ms a step; over torch's; median (lowest to highest)")
    for name, taken in zip(wrappers, seconds.T, strict=True):
        print(f"  {name:<34} {spread(1000 * taken, '.1f'):>24}  {spread(taken / seconds[:, -1], '.3f')}")
    ratio = (seconds[:, 1] / seconds[:, 2]).median().item()
    print(f"OverlappedDDP by hand takes {ratio:.2f} of torch's step time (asked: at most 1.10)")


def _step_seconds(rank, world_size, wrappers, batch_size, rounds):
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    images, labels = torch.randn(batch_size, 1, 28, 28, device=device), torch.randint(10, (batch_size,), device=device)

    models = [wrap(FashionCNN(dropout=0.0, norm=None).to(device)) for wrap in wrappers]
    return timed_rounds([sgd_step(model, (images, labels)) for model in models], rounds)


def all_reduce(ranks, rounds, _):
    """Prints MB/s of all-reduces, tensor bytes over seconds, and their time over the backend's own."""
    answers = load_solutions(UNIT)
    variants = {
        "torch.distributed": dist.all_reduce,
        "ring_all_reduce": answers.ring_all_reduce,
        "halving_doubling": answers.halving_doubling,
        "reduce_tree, broadcast_tree": _after(answers.reduce_tree, answers.broadcast_tree),
        "reduce_naive, broadcast_naive": _after(answers.reduce_naive, answers.broadcast_naive),
    }
    if ranks & (ranks - 1):
        del variants["halving_doubling"]  # for powers of two
    for size in (2**10, 2**16, 2**22, 2**25):
        arguments = list(variants.values()), size, rounds
        (seconds, *_) = run_ranks(_collective_seconds, ranks, *arguments, backend="gloo", timeout=600)
        print(f"\n{size:,} bytes: MB/s; time over that of torch.distributed; median (lowest to highest)")
        for name, taken in zip(variants, seconds.T, strict=True):
            print(f"  {name:<30} {spread(size / taken / 1e6, ',.1f'):>28}  {spread(taken / seconds[:, 0], '.2f')}")


def _after(reduce, broadcast):
    return lambda x: (reduce(x, 0), broadcast(x, 0))


def _collective_seconds(rank, world_size, variants, size, rounds):
    torch.set_num_threads(1)
    x = torch.ones(size // 4)
    return timed_rounds([lambda f=f: f(x) for f in variants], rounds)


def launch(ranks, rounds, _):
    """Prints seconds of the first call of run_ranks in this process, and of later ones."""
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        run_ranks(_nothing, ranks, backend="gloo")
        seconds.append(time.perf_counter() - start)
    print(f"first call {seconds[0]:.2f} s, later {spread(torch.tensor(seconds[1:]), '.3f')} s")


def _nothing(rank, world_size):
    return None
