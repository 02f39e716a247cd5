"""What the process of a rank does: set up torch.distributed, call, send the result, wait.

distributed.py starts these processes and watches them.
"""

import contextlib
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle
import torch
import torch.distributed as dist

from course.device import cores
from course.errors import RankError
from course.parallel.positions import of_rank

# Environment of ranks that share this machine. torch asks for the name of each address that
# connects: with these options of the resolver an answer that is lost costs a second instead of
# five. torchrun would have them meet at the machine's name, and hang if that leads nowhere.
ONE_MACHINE = {
    "GLOO_SOCKET_IFNAME": "lo" if sys.platform.startswith("linux") else "lo0",
    "PET_LOCAL_ADDR": "127.0.0.1",
    "RES_OPTIONS": "timeout:1 attempts:1",
}
# torch itself gives up so much later than run_ranks, whose message says more
EXTRA_TORCH_SECONDS = 3600


class RankFiles(NamedTuple):
    """Paths of a rank: what it prints, what it writes to stderr, and the store where ranks meet."""

    out: str
    err: str
    store: str


class Result(NamedTuple):
    """What a rank sends back: a value, or an error with its frames and its traceback as text."""

    value: Any
    error: BaseException | None = None
    frames: list[tuple[str, int]] | tuple = ()
    traceback: str = ""


def serve(
    pipe: Connection, variables: dict[str, str], files: RankFiles, backend: str, timeout: float
) -> None:
    """Run a rank: set up, call what comes through `pipe`, send the Result, wait to be killed.

    Args:
        variables: its environment, with RANK and WORLD_SIZE.
        timeout: seconds after which run_ranks ends it.
    """
    _set_up_process(files)
    os.environ.clear()
    os.environ.update(ONE_MACHINE | variables)
    torch_timeout = timeout + EXTRA_TORCH_SECONDS
    rank = int(variables["RANK"])
    world_size = int(variables["WORLD_SIZE"])
    try:
        payload = pipe.recv_bytes()
        threading.Thread(target=_die_with_parent, args=(pipe,), daemon=True).start()
        torch.set_num_threads(max(1, cores() // world_size))
        if backend == "nccl":
            torch.cuda.set_device(rank)
        dist.init_process_group(
            backend,
            rank=rank,
            world_size=world_size,
            init_method=files.store,
            timeout=timedelta(seconds=torch_timeout),
        )
        fn, args = cloudpickle.loads(payload)
        result = Result(fn(rank, world_size, *args))
    except BaseException as caught:
        text = traceback.format_exc()
        error = of_rank(caught, rank)
        result = Result(None, error, error.frames, text)
    sys.stdout.flush()
    pipe.send_bytes(_packed(result))
    time.sleep(torch_timeout)  # connections stay open for the others, until the parent ends us


def _set_up_process(files: RankFiles) -> None:
    """Make this fork a process that could have been started afresh, and redirect its output."""
    os.setsid()  # its workers end with it
    # the modules that the server has imported stay: the collector need not look through them
    gc.freeze()
    vars(sys).pop("ps1", None)  # Lightning asks for it: a fork of a notebook is not interactive
    # as in a process that was not forked
    torch.default_generator.manual_seed(torch.Generator().initial_seed())
    for path, descriptor in ((files.out, 1), (files.err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)
    sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)
    # run_ranks sends this signal to learn where the rank is
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=False)


def _packed(result: Result) -> bytes:
    """The Result as bytes; a RankError in place of what cannot be pickled."""
    value, error, frames, text = result
    if error is not None:
        error = error.with_traceback(None)  # which cannot be pickled
    try:
        packed = cloudpickle.dumps(Result(value, error, frames, text))
        cloudpickle.loads(packed)  # some exceptions can be packed and not unpacked
        return packed
    except Exception as reason:
        message = f"a rank returned an object of type {type(value).__name__}, "
        message += f"which cannot be pickled: {reason}"
        if error is not None:
            message = f"{type(error).__name__}: {error}"
        return cloudpickle.dumps(Result(None, RankError(message), frames, text))


def _die_with_parent(pipe: Connection) -> None:
    """Wait for the other end of `pipe` to close, then kill this rank and its workers."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    os.killpg(os.getpgid(0), signal.SIGKILL)
