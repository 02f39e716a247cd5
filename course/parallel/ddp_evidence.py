"""What ranks see of torch's DDP: an experiment per statement of unit 02, part 5.

A function for each: what is run in a rank, or a whole experiment that starts ranks itself. They
return what was seen, and judge nothing.
"""

import copy
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from course.parallel.counting import counted
from course.parallel.rank_process import ONE_MACHINE

LATE_SECONDS = 0.5
LAUNCHER_SECONDS = 120
MACHINES = 2
PROCESSES = 4  # of each machine
VARIABLES = ("GROUP_RANK", "LOCAL_RANK", "RANK", "WORLD_SIZE", "MASTER_ADDR")
# the script of the processes that torchrun starts; each writes a file
WRITE_VARIABLES = f"""\
import os, pathlib, sys
values = [os.environ[name] for name in {VARIABLES}]
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(" ".join(values))
"""


def one_step(rank: int, world_size: int) -> dict[str, list[float]]:
    """{what: numbers} that a rank sees in one step of a model with two weights.

    No barrier is called, and rank 1 comes late. Statements A to F and H.
    """
    torch.manual_seed(rank)
    model = nn.Linear(2, 1, bias=False)
    x = torch.randn(4, 2)
    seen = {"A weights, as drawn by the rank": model.weight.flatten().tolist()}
    with counted() as log:
        ddp = DistributedDataParallel(model)
        seen["A weights, once wrapped"] = model.weight.flatten().tolist()
        alone = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        time.sleep(LATE_SECONDS * rank)
        log.clear()
        output = ddp(x)
        seen["B samples in, results out"] = [len(x), len(output)]
        loss = output.square().mean()
        after_forward = log.calls()
        loss.backward()
        after_backward = log.calls()
        own = torch.autograd.grad(alone(x).square().mean(), alone.weight)[0]
        seen["D own gradient, without DDP"] = own[0].tolist()
        seen["D gradient after DDP's backward"] = model.weight.grad[0].tolist()
        optimizer.step()
        calls = [after_forward, after_backward - after_forward, log.calls() - after_backward]
        seen["C operations in forward, backward, step"] = calls
        seen["E momentum"] = optimizer.state[model.weight]["momentum_buffer"][0].tolist()
        seen["F loss"] = [loss.item()]
    return seen


def side_by_side(seen: Sequence[Mapping[str, Sequence[float]]]) -> str:
    """A line for each quantity that `one_step` saw, with the numbers of both ranks."""
    rank_0, rank_1 = seen
    lines = []
    for what in sorted(rank_0):
        first = "".join(f"{number:8.3g}" for number in rank_0[what])
        second = "".join(f"{number:8.3g}" for number in rank_1[what])
        lines.append(f"{what:<40} rank 0:{first} rank 1:{second}")
    return "\n".join(lines)


def running_means(rank: int, world_size: int) -> list[float]:
    """The running mean of a BatchNorm layer after each of two steps; inputs have mean 10 * rank.

    Statement G.
    """
    model = nn.BatchNorm1d(1)
    ddp = DistributedDataParallel(model)
    x = torch.tensor([[-1.0], [1.0]]) + 10.0 * rank
    means = []
    for _ in range(2):
        ddp(x).sum().backward()
        means.append(model.running_mean.item())
    return means


def opened_file(rank: int, world_size: int, path: str, barrier: bool) -> bool:
    """Whether a rank finds a file that rank 0 takes a while to make.  Statement I."""
    file = Path(path)
    if rank == 0:
        time.sleep(LATE_SECONDS)  # the download
        file.touch()
    if barrier:
        dist.barrier()
    return file.exists()


def found_with_and_without_barrier() -> dict[str, list[bool]]:
    """{"with a barrier" or "without": whether each of two ranks finds the file}.  Statement I."""
    from course.parallel.distributed import run_ranks

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, barrier in (("without a barrier", False), ("with a barrier", True)):
            path = str(Path(folder) / name)
            found[name] = run_ranks(opened_file, 2, path, barrier, backend="gloo")
    return found


def launched_variables() -> list[list[str]]:
    """VARIABLES as torchrun sets them, of each process, in the order of RANK.  Statement M.

    A launcher for each of MACHINES; here all of them run on this one.
    """
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "write_variables.py"
        script.write_text(WRITE_VARIABLES, encoding="utf-8")
        launchers = []
        try:
            for number in range(MACHINES):
                launchers.append(_launcher(number, port, script))
            for launcher in launchers:
                launcher.wait(timeout=LAUNCHER_SECONDS)
        finally:
            for launcher in launchers:
                launcher.kill()
        files = [Path(folder) / str(rank) for rank in range(MACHINES * PROCESSES)]
        return [file.read_text(encoding="utf-8").split() for file in files if file.exists()]


def _launcher(number, port, script):
    """Start torchrun on machine `number`; its processes write into the folder of `script`."""
    command = [sys.executable, "-m", "torch.distributed.run"]
    command += ["--nnodes", str(MACHINES), "--node-rank", str(number)]
    command += ["--nproc-per-node", str(PROCESSES)]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    command += [str(script), str(script.parent)]
    variables = os.environ | ONE_MACHINE | {"OMP_NUM_THREADS": "1"}
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, env=variables, stdout=nowhere, stderr=nowhere)


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
