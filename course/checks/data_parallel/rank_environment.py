"""Probe of exercise rank_environment."""

import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist

from course.checks.data_parallel.ranks import HANG
from course.checks.engine import exercise
from course.checks.probing.values import type_names
from course.distributed import run_ranks


@exercise(isolated=True)
def rank_environment(answer, device, seed):
    """A table of variables, and two processes that meet with them."""
    nodes, per_node, port = 3 + seed % 3, 4 + seed % 2, 29500 + seed % 400
    first = answer(0, 0, nodes, per_node, "10.0.0.7", port)
    yield "returns a dict", type(first).__name__
    yield "the names of the variables", sorted(map(str, first))
    yield "all names and values are str", type_names([*first.keys(), *first.values()])
    yield "the first process of the first node", first
    yield "another process of the first node", answer(0, 2, nodes, per_node, "10.0.0.7", port)
    yield "the first process of another node", answer(2, 0, nodes, per_node, "10.0.0.7", port)
    yield "any other process", answer(nodes - 1, 1, nodes, per_node, "gpu-3.example.org", port + 1)
    pairs = [(node, local) for node in range(nodes) for local in range(per_node)]
    ranks = [str(answer(*pair, nodes, per_node, "a", port).get("RANK")) for pair in pairs]
    yield "the ranks of all processes, node by node", ranks
    yield "one process on one node", answer(0, 0, 1, 1, "localhost", port)
    before = dict(os.environ)
    answer(0, 0, 2, 2, "localhost", port)
    yield "the environment of the caller stays as it is", dict(os.environ) == before
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = [answer(node, 0, 2, 1, "127.0.0.1", port) for node in range(2)]
    can_meet = [
        {"RANK": str(i), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} for i in (0, 1)
    ]
    if any(need.items() - theirs.items() for need, theirs in zip(can_meet, given, strict=True)):
        yield "two nodes of one process each meet and add 1 and 2", "they would wait for ever"
    else:
        try:
            sums = run_ranks(_meet, 2, given, backend="gloo", timeout=HANG)
        except RuntimeError:  # a busy machine, or another process was at the port: once more
            sums = run_ranks(_meet, 2, given, backend="gloo", timeout=HANG)
        yield "two nodes of one process each meet and add 1 and 2", sums


def _meet(rank, world_size, given):
    """The sum over all ranks of rank + 1, in a process group of what the environment says alone."""
    dist.destroy_process_group()
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        del os.environ[name]
    os.environ.update(given[rank])
    dist.init_process_group("gloo", init_method="env://", timeout=timedelta(seconds=HANG))
    total = torch.tensor([rank + 1])
    dist.all_reduce(total)
    return total.item()
