"""Count how long a rank waits for one that has ended or hangs: how it ended -> Wait.

Two processes all-reduce once. Then rank 1 returns, is killed, or sleeps, and rank 0 all-reduces
again. As a program this module is one of these ranks.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

from course.parallel.rank_process import ONE_MACHINE

WAYS = ("returned", "killed", "hangs")
LIMIT_SECONDS = 5  # of the process group
PATIENCE_SECONDS = 120
MODULE = "course.parallel.lost_peer"


class Wait(NamedTuple):
    """What rank 0 saw."""

    seconds: float
    said: str  # the error

    @property
    def timed_out(self) -> bool:
        """Whether the time limit ended the wait, and not the end of the connection."""
        return "timed out" in self.said.lower()


def waits() -> dict[str, Wait]:
    """The Wait of rank 0 for each of WAYS in which rank 1 may end; all run at the same time."""
    variables = os.environ | ONE_MACHINE | {"OMP_NUM_THREADS": "1"}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        pairs = {}
        for how in WAYS:
            pairs[how] = [_start(how, rank, folder, variables) for rank in range(2)]
        for how, (rank_0, rank_1) in pairs.items():
            printed = rank_0.communicate(timeout=PATIENCE_SECONDS)[0]
            rank_1.kill()
            rank_1.communicate()
            # torch 2.8 prints a line about the connection first
            line = next(text for text in printed.splitlines() if not text.startswith("[Gloo]"))
            seconds, _, said = line.partition(" ")
            found[how] = Wait(float(seconds), said)
    return found


def _start(how, rank, folder, variables):
    command = [sys.executable, "-m", MODULE, how, str(rank), folder]
    return subprocess.Popen(
        command, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def _rank(how: str, rank: int, folder: str) -> None:
    """Be one rank, and print what rank 0 saw."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/{how}", rank=rank, world_size=2)
    group = dist.new_group(timeout=timedelta(seconds=LIMIT_SECONDS))
    dist.all_reduce(torch.ones(1), group=group)
    if rank == 1 and how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and how == "hangs":
        time.sleep(PATIENCE_SECONDS)
    if rank == 0:
        start = time.perf_counter()
        try:
            dist.all_reduce(torch.ones(1), group=group)
        except RuntimeError as error:
            seconds = time.perf_counter() - start
            said = re.sub(r"^\[.*?\] ", "", str(error).splitlines()[0]).split(" [")[0]
            print(f"{seconds:.2f} {said}", flush=True)


if __name__ == "__main__":
    _rank(sys.argv[1], int(sys.argv[2]), sys.argv[3])
