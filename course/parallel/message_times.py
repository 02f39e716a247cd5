"""Time messages and all-reduces: between real ranks, and on the virtual network.

`message_seconds` and `all_reduces` run inside a rank; `virtual_seconds` starts virtual ranks.
"""

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist

from course.measure.comparison import Comparison
from course.parallel import network
from course.parallel.timing import compare_on_ranks

SHORT_BYTES = 4  # of a message whose time is the latency
MESSAGES_PER_ROUND = 5

AllReduce = Callable[[torch.Tensor], object]


def message_seconds(rank: int, n_bytes: int, repeats: int) -> float:
    """Median seconds of a message between ranks 0 and 1, there and back again halved.

    The first there-and-back does not count. The other ranks wait meanwhile; a collective of all
    ranks.
    """
    x = torch.ones(n_bytes // 4)
    taken = []
    dist.barrier()
    for _ in range(repeats + 1):
        start = time.perf_counter()
        if rank == 0:
            dist.send(x, 1)
            dist.recv(x, 1)
        elif rank == 1:
            dist.recv(x, 0)
            dist.send(x, 0)
        taken.append((time.perf_counter() - start) / 2)
    dist.barrier()
    return statistics.median(taken[1:])


def all_reduces(
    rank: int,
    world_size: int,
    ways: Mapping[str, AllReduce],
    sizes: Sequence[int],
    rounds: int,
    seconds: float,
) -> tuple[dict[int, Comparison], tuple[float, float]]:
    """({bytes: Comparison of `ways`}, seconds of a short and of the largest message).

    Args:
        sizes: bytes of the tensors, ascending.
        rounds: of the messages, each with MESSAGES_PER_ROUND of them.
        seconds: in all, for the Comparisons.
    """
    torch.set_num_threads(1)
    repeats = MESSAGES_PER_ROUND * rounds
    short = message_seconds(rank, SHORT_BYTES, repeats)
    long = message_seconds(rank, sizes[-1], repeats)
    compared = {}
    for n_bytes in sizes:
        calls = {}
        for name, all_reduce in ways.items():
            calls[name] = functools.partial(all_reduce, torch.ones(n_bytes // 4))
        compared[n_bytes] = compare_on_ranks(calls, seconds=seconds / len(sizes))
    return compared, (short, long)


def virtual_seconds(
    ways: Mapping[str, AllReduce], n_ranks: int, wires: network.Network, n_bytes: int
) -> dict[str, float]:
    """{way: virtual seconds} of an all-reduce of `n_bytes` on `n_ranks` ranks of a network.

    The tensors have no values, so a large one costs no memory.
    """
    seconds = {}
    for name, all_reduce in ways.items():
        run = network.simulate(_all_reduced, n_ranks, wires, all_reduce, n_bytes)
        seconds[name] = run.seconds
    return seconds


def _all_reduced(rank: int, world_size: int, all_reduce: AllReduce, n_bytes: int) -> None:
    all_reduce(torch.empty(n_bytes // 4, device="meta"))


def ranked(seconds: Mapping[str, float]) -> str:
    """The ways with their milliseconds in one line, the fastest first."""
    words = []
    for name in sorted(seconds, key=seconds.get):
        words.append(f"{name} {1e3 * seconds[name]:.2f} ms")
    return ", ".join(words)
