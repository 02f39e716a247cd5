"""Start N ranks of torch.distributed from anywhere.

`run_ranks` starts real processes and leaves none behind, whatever happens in them. What such a
process does is in rank_process.py. Unit 02_data_parallel shows how training uses ranks.

What ranks use is imported here too, because notebooks say `distributed.counted`: counting.py lists
what they send, timing.py compares what they do.
"""

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import cloudpickle
import torch

from course.device import device
from course.errors import CourseError, RankError
from course.parallel.counting import (
    Transfers,
    bytes_of_each,
    counted,
    group_in_place,
    in_words,
    wire_bytes,
)
from course.parallel.network import Network, simulate
from course.parallel.positions import position
from course.parallel.rank_process import ONE_MACHINE, RankFiles, Result, serve
from course.parallel.timing import compare_measured_on_ranks, compare_on_ranks, sgd_step
from course.system.busy import PATIENCE, is_busy

__all__ = [
    "ONE_MACHINE",
    "RankError",
    "Transfers",
    "bytes_of_each",
    "compare_measured_on_ranks",
    "compare_on_ranks",
    "counted",
    "group_in_place",
    "in_words",
    "run_ranks",
    "sgd_step",
    "start_ranks_by",
    "wire_bytes",
]

# Imported by the server that forks ranks. An optimizer's first step imports torch._dynamo: a
# second in every rank.
PRELOADED = ["course.parallel.distributed", "torch._dynamo"]
# gloo's and NCCL's words
PEER_LOST = re.compile("(closed|reset) by peer|Broken pipe|remote process exited")
# torch 2.8 prints it for every group
CONNECTED = re.compile(rb"\[Gloo\] Rank \d+ is connected to .*\n")
FRAME = re.compile(r'  File "(.*)", line (\d+) in (\S+)')  # of faulthandler
PRINT_SECONDS = 0.2  # between two looks at what ranks have printed
STACK_SECONDS = 2  # to wait for the stack of a rank
CAUSE_SECONDS = 1  # to wait for the end of the rank that made another one lose its connection
STDERR_CHARACTERS_MAX = 2000  # the last ones, shown with an error

# never forks this process: safe after CUDA or OpenMP
_start_method = "forkserver"
# other code may start the fork server, and there is only one
multiprocessing.set_forkserver_preload(PRELOADED)


def start_ranks_by(method: str) -> None:
    """Let run_ranks start its processes by this `method` of multiprocessing from now on.

    The default "forkserver" is right unless no thread and no CUDA runs in this process, as in the
    grader's sandbox, which takes "fork".
    """
    global _start_method
    _start_method = method


def run_ranks(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    backend: str | None = None,
    timeout: float = 60.0,
    network: Network | None = None,
) -> list:
    """[fn(rank, world_size, *args) for each rank], each call in its own process.

    torch.distributed is set up in these processes. `fn`, its arguments and its results may be
    whatever cloudpickle can carry, functions of a notebook cell included. Ranks see the environment
    of the caller with RANK, LOCAL_RANK and WORLD_SIZE, and share its cores. What they print is
    printed here, each line with its rank; what they write to stderr appears only with an error. No
    process, file or port is left, except what a rank itself has moved into another session.

    Args:
        world_size: number of ranks, 1 or more.
        backend: "gloo" or "nccl"; None takes NCCL if the course's device is CUDA with a GPU for
            each rank, else gloo.
        timeout: seconds in which all ranks must have returned; PATIENCE times as many where other
            work keeps the processors busy.
        network: None, or a Network: then ranks are threads on a virtual network
            (parallel.network.simulate).

    Raises: the exception of the first rank that raised one, with the rank's traceback as a note and
        its `rank` and `frames` (file, line number), outermost first; RankError if a rank died, or
        if some have not returned in time: it says of each rank in which operation and line it
        waits.
    """
    if world_size < 1:
        raise CourseError(f"asked for {world_size} ranks; take 1 or more.")
    if network is not None:
        return simulate(fn, world_size, network, *args, timeout=timeout).results
    if backend is None:
        backend = _default_backend(world_size)
    try:
        payload = cloudpickle.dumps((fn, args))
    except Exception as error:
        raise CourseError(
            f"the function or its arguments cannot be sent to another process: {error}"
        ) from None
    context = _context()
    ranks = []
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        try:
            with _without_main():
                for number in range(world_size):
                    rank = _Rank(context, number, Path(folder), world_size, backend, timeout)
                    ranks.append(rank)
                    rank.start()
            started = time.monotonic()
            for rank in ranks:
                with contextlib.suppress(BrokenPipeError):  # it died: its missing answer says so
                    rank.pipe.send_bytes(payload)
            return _answers(ranks, started, timeout)
        finally:
            for rank in ranks:
                rank.end()


def _default_backend(world_size: int) -> str:
    has_a_gpu_each = device().type == "cuda" and torch.cuda.device_count() >= world_size
    return "nccl" if has_a_gpu_each else "gloo"


def _context() -> BaseContext:
    """The context of multiprocessing that starts ranks."""
    context = multiprocessing.get_context(_start_method)
    if _start_method == "forkserver":
        # their probes run in ranks
        checks = [name for name in sys.modules if name.startswith("course.checks.")]
        context.set_forkserver_preload([*PRELOADED, *checks])
    return context


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep multiprocessing from importing the caller's main module in the ranks.

    They do not need it.
    """
    main = vars(sys.modules["__main__"])
    hidden = {name: main.pop(name) for name in ("__spec__", "__file__") if name in main}
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update({"__spec__": None} | hidden)


class _Rank:
    """One rank, as the process that starts it sees it."""

    def __init__(
        self,
        context: BaseContext,
        number: int,
        folder: Path,
        world_size: int,
        backend: str,
        timeout: float,
    ):
        self.number = number
        self.out = folder / f"out{number}"
        self.err = folder / f"err{number}"
        self.shown_bytes = 0  # of what it has printed
        self.pipe, self._its_end = context.Pipe()
        files = RankFiles(str(self.out), str(self.err), f"file://{folder / 'store'}")
        variables = dict(
            os.environ, RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(world_size)
        )
        arguments = (self._its_end, variables, files, backend, timeout)
        self.process = context.Process(target=serve, args=arguments)

    def start(self) -> None:
        """Start the process."""
        self.process.start()
        self._its_end.close()

    def is_ready(self) -> bool:
        """True if it has answered or died."""
        return self.pipe.poll() or not self.process.is_alive()

    def answer(self) -> Any:
        """What the rank's call returned.

        Raises: what the call raised; RankError if the rank died.
        """
        try:
            if not self.pipe.poll():  # a child of the dead rank may hold the other end open
                raise EOFError
            result: Result = cloudpickle.loads(self.pipe.recv_bytes())
        except (EOFError, ConnectionError):
            self.process.join()
            how = _how_ended(self.process.exitcode)
            raise RankError(
                f"rank {self.number} died before it answered ({how}).{self._stderr()}"
            ) from None
        error = result.error
        if error is None:
            return result.value
        error.rank = self.number
        error.frames = result.frames
        error.add_note(f"in rank {self.number}:\n{result.traceback}{self._stderr()}")
        raise error

    def _stderr(self) -> str:
        text = self.err.read_text(errors="replace")[-STDERR_CHARACTERS_MAX:].strip()
        return f" It wrote to stderr:\n{text}" if text else ""

    def print_output(self, ended: bool = False) -> None:
        """Print the whole lines that the rank has printed since the last call.

        If it has `ended`, print half a line too.
        """
        try:
            with open(self.out, "rb") as file:
                file.seek(self.shown_bytes)
                text = file.read()
        except FileNotFoundError:
            return
        if not ended:
            text = text[: text.rfind(b"\n") + 1]
        self.shown_bytes += len(text)
        for line in CONNECTED.sub(b"", text).decode(errors="replace").splitlines():
            print(f"[rank {self.number}] {line}")

    def state(self, has_answered: bool) -> str:
        """One line on where the rank is now."""
        if has_answered:
            return f"rank {self.number} has returned."
        return position(self.number, self._stack())

    def _stack(self) -> list[tuple[str, int, str]]:
        """(file, line number, function) of each frame, innermost first; [] if it does not say."""
        written = self.err.stat().st_size if self.err.exists() else 0
        with contextlib.suppress(OSError):
            os.kill(self.process.pid, signal.SIGUSR1)
        until = time.monotonic() + STACK_SECONDS
        frames = []
        while not frames and time.monotonic() < until:
            time.sleep(0.05)
            with contextlib.suppress(FileNotFoundError):
                new = self.err.read_text(errors="replace")[written:]
                frames = FRAME.findall(new)
        return [(file, int(line), function) for file, line, function in frames]

    def end(self) -> None:
        """Kill the rank with every process that it started, and print the rest of its output."""
        if self.process.pid is None:  # interrupted before it was started
            return
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.process.close()
        self.pipe.close()
        self.print_output(ended=True)


def _how_ended(exit_code: int) -> str:
    if exit_code < 0:
        return f"killed by signal {-exit_code}, {signal.strsignal(-exit_code)}"
    return f"exit code {exit_code}"


def _answers(ranks: Sequence[_Rank], started: float, timeout: float) -> list:
    """What each rank's call returned, as soon as all have; meanwhile print what they print.

    Raises: what the first call that fails raised; RankError if a rank died or has not returned in
        time.
    """
    answers = {}
    while len(answers) < len(ranks):
        waiting = [rank for rank in ranks if rank.number not in answers]
        _wait_for_one(waiting, PRINT_SECONDS)
        ready = [rank for rank in waiting if rank.is_ready()]
        for rank in ready:
            others = [other for other in waiting if other is not rank]
            answers[rank.number] = _answer(rank, others)
        for rank in ranks:
            rank.print_output()
        if not ready and _is_late(started, timeout):
            states = [rank.state(rank.number in answers) for rank in ranks]
            message = f"not all ranks returned within {timeout:g} seconds."
            raise RankError("\n".join([message, *states]))
    return [answers[number] for number in range(len(ranks))]


def _wait_for_one(ranks: Sequence[_Rank], seconds: float) -> None:
    """Block until one of `ranks` has answered or died, at most `seconds`."""
    ends = []
    for rank in ranks:
        ends += [rank.pipe, rank.process.sentinel]
    wait(ends, timeout=seconds)


def _answer(rank: _Rank, others: Sequence[_Rank]) -> Any:
    """What the call of `rank` returned.

    Raises: what it raised. If that is a lost connection, what one of the `others` raised, or how it
        died: the reason why the connection was lost.
    """
    try:
        return rank.answer()
    except RuntimeError as error:
        if PEER_LOST.search(str(error)):
            # the end of a rank shows a moment after the lost connection
            _wait_for_one(others, CAUSE_SECONDS)
            for other in others:
                if other.is_ready():
                    other.answer()
        raise


def _is_late(started: float, timeout: float) -> bool:
    patience = PATIENCE if is_busy() else 1
    return time.monotonic() > started + timeout * patience
