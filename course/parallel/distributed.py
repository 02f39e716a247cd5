"""Start N ranks of torch.distributed from anywhere and count what they send.

`run_ranks` starts real processes and leaves none behind, whatever happens in them.  `counted` lists
the operations of a rank, `wire_bytes` asks Linux what went through its connections, `Transfers`
counts copies between the devices of one process. Unit 02_data_parallel shows how training uses
them.
"""

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import re
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path

import cloudpickle
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from course.device import cores, device
from course.errors import CourseError, RankError
from course.parallel.network import of_rank, position, simulate
from course.system.busy import PATIENCE, is_busy

# Imported by the server that forks ranks.  An optimizer's first step imports torch._dynamo: a
# second in every rank.
PRELOADED = ["course.parallel.distributed", "torch._dynamo"]
# never forks this process: safe after CUDA or OpenMP; the grader's sandbox sets "fork"
START_METHOD = "forkserver"
LATER = (
    3600  # seconds after which torch itself gives up: later than run_ranks, whose message says more
)
# gloo's and NCCL's words
PEER_LOST = re.compile("(closed|reset) by peer|Broken pipe|remote process exited")
# torch 2.8 prints it for every group
CONNECTED = re.compile(rb"\[Gloo\] Rank \d+ is connected to .*\n")
LOOK = 0.2  # seconds between two prints of what ranks have printed
# Linux: the option; offset in its struct tcp_info of bytes sent, then bytes resent
TCP_INFO, BYTES_SENT = (
    11,
    200,
)

# Environment of ranks that share this machine.  torch asks for the name of each address that
# connects: with these options of the resolver an answer that is lost costs a second instead of
# five.  torchrun would have them meet at the machine's name, and wait for ever where that leads
# nowhere.
ONE_MACHINE = {
    "GLOO_SOCKET_IFNAME": "lo" if sys.platform.startswith("linux") else "lo0",
    "PET_LOCAL_ADDR": "127.0.0.1",
    "RES_OPTIONS": "timeout:1 attempts:1",
}

# other code may start the fork server, and there is only one
multiprocessing.set_forkserver_preload(PRELOADED)


class Traffic(list):
    """The operations that one rank called, in order: tuples (name, bytes of its tensors)."""

    def calls(self, name=None):
        """Number of calls, of the operation `name` or of all."""
        return sum(name in (None, operation) for operation, _ in self)

    def bytes(self, name=None):
        """Bytes of the tensors in these calls; a tensor counts once per call, however it
        travels.
        """
        return sum(size for operation, size in self if name in (None, operation))


@contextlib.contextmanager
def counted():
    """Yield the Traffic of this rank's calls to the default process group inside the block, DDP's
    own calls included.

    Operations have the names of torch.distributed: "all_reduce", "broadcast", "send", "recv"
    (isend, irecv too), ... An object that keeps the group, as DDP does, must be made inside the
    block.
    Raises: RankError where torch.distributed is not set up.
    """
    with group_in_place(lambda group: CountingGroup(group, Traffic())) as counting:
        yield counting.traffic


@contextlib.contextmanager
def group_in_place(make):
    """Replace the default process group by `make(that group)` inside the block; yield the new
    one.
    """
    if not dist.is_initialized():
        raise RankError("found no process group; do it in a function that run_ranks calls.")
    world, group = c10d._world, dist.group.WORLD
    made = make(group)
    for table in (world.pg_map, world.pg_names, world.pg_group_ranks, world.pg_backend_config):
        table[made] = table[group]
    c10d._update_default_pg(made)
    try:
        yield made
    finally:
        c10d._update_default_pg(group)


def timed_rounds(variants, rounds):
    """Seconds of each call of each variant, a float64 tensor (rounds, variants), the same on every
    rank.

    Each round calls every variant once, in a random order, each after a barrier; the time is that
    of the slowest rank. One uncounted round warms up.

    Args:
        variants: list of functions without arguments, the same ones on every rank.
    """
    order = torch.Generator().manual_seed(0)
    seconds = torch.zeros(rounds + 1, len(variants), dtype=torch.float64)
    for row in seconds:
        for i in torch.randperm(len(variants), generator=order).tolist():
            dist.barrier()
            start = time.perf_counter()
            variants[i]()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            row[i] = time.perf_counter() - start
    slowest = seconds.cuda() if dist.get_backend() == "nccl" else seconds
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest[1:].cpu()


def sgd_step(model, batch, lr=0.01):
    """A function without arguments that takes one step of SGD with `model`, whatever wrapper the
    model is in.

    Args:
        model: module, or a wrapper; a wrapper's `average_gradients`, if it has one, is called after
            backward.
        batch: images and labels, on the model's device.
    """
    images, labels = batch
    optimizer = torch.optim.SGD(model.parameters(), lr)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        getattr(model, "average_gradients", lambda: None)()
        optimizer.step()

    return step


def wire_bytes():
    """Bytes that this process has sent through its open TCP connections, as Linux counts them; None
    on other systems.

    Gloo connects ranks by TCP, also on one machine. Its headers count too, some hundred bytes per
    call.
    """
    if not sys.platform.startswith("linux"):
        return None
    total = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the handle that listed the folder is gone
            if not os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(number))) as connection:
                if (
                    connection.family in (socket.AF_INET, socket.AF_INET6)
                    and connection.type == socket.SOCK_STREAM
                ):
                    info = connection.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 256)
                    sent, resent = struct.unpack_from("QQ", info, BYTES_SENT)
                    total += sent - resent
    return total


class Transfers:
    """Copies tensors between the devices of one process, and logs each copy.

    Args:
        devices: list of torch.device or str; a device that is listed several times plays several.

    `log` is the list of messages (source, target, bytes); source and target are places (indices) in
    `devices`.
    """

    def __init__(self, devices):
        self.devices = [torch.device(d) for d in devices]
        self.log, self._returned = [], []

    def send(self, tensors, source, target):
        """Copy a list of tensors to device number `target`, as one message; gradients flow back
        through the copies.
        """
        self.log.append((source, target, sum(t.nbytes for t in tensors)))
        copies, back = [t.to(self.devices[target], copy=True) for t in tensors], []
        for copied in copies:
            if copied.requires_grad:
                copied.register_hook(lambda gradient: back.append(gradient.nbytes))
        self._returned.append((target, source, back))
        return copies

    @property
    def returned(self):
        """The messages (source, target, bytes) in which autograd has sent gradients back, one per
        message sent.
        """
        return [(source, target, sum(back)) for source, target, back in self._returned if back]

    @property
    def crossing(self):
        """The messages from one place to another."""
        return [message for message in self.log if message[0] != message[1]]


def run_ranks(fn, world_size, *args, backend=None, timeout=60.0, network=None):
    """[fn(rank, world_size, *args) for each rank], each call in a process of its own with
    torch.distributed set up.

    `fn`, its arguments and its results may be whatever cloudpickle can carry, functions of a
    notebook cell included. Ranks see the environment of the caller with RANK, LOCAL_RANK and
    WORLD_SIZE, and share its cores. What they print is printed here, each line with its rank; what
    they write to stderr appears only with an error. No process, file or port is left, except what a
    rank itself has moved into another session.

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
        backend = (
            "nccl"
            if device().type == "cuda" and torch.cuda.device_count() >= world_size
            else "gloo"
        )
    try:
        payload = cloudpickle.dumps((fn, args))
    except Exception as error:
        raise CourseError(
            f"the function or its arguments cannot be sent to another process: {error}"
        ) from None
    context = multiprocessing.get_context(START_METHOD)
    if START_METHOD == "forkserver":
        # their probes run in ranks
        checks = [name for name in sys.modules if name.startswith("course.checks.")]
        context.set_forkserver_preload([*PRELOADED, *checks])
    ranks, answers = [], {}
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        try:
            with _without_main():
                for number in range(world_size):
                    ranks.append(_Rank(context, number, Path(folder), world_size, backend, timeout))
                    ranks[-1].process.start()
                    ranks[-1].theirs.close()
            started = time.monotonic()
            for rank in ranks:
                with contextlib.suppress(BrokenPipeError):  # it died: its missing answer says so
                    rank.pipe.send_bytes(payload)
            while len(answers) < world_size:
                waiting = [rank for rank in ranks if rank.number not in answers]
                wait(
                    [end for rank in waiting for end in (rank.pipe, rank.process.sentinel)],
                    timeout=LOOK,
                )
                ready = [
                    rank for rank in waiting if rank.pipe.poll() or not rank.process.is_alive()
                ]
                for rank in ready:
                    try:
                        answers[rank.number] = rank.answer()
                    except RuntimeError as error:
                        if PEER_LOST.search(str(error)):
                            _blame([other for other in waiting if other is not rank])
                        raise
                for rank in ranks:
                    rank.print_output()
                if not ready and time.monotonic() > started + timeout * (
                    PATIENCE if is_busy() else 1
                ):
                    states = "\n".join(rank.state(rank.number in answers) for rank in ranks)
                    raise RankError(f"not all ranks returned within {timeout:g} seconds.\n{states}")
            return [answers[number] for number in range(world_size)]
        finally:
            for rank in ranks:
                rank.end()


def _blame(ranks):
    """Raise what one of `ranks` raised, or how it died: the reason why another rank lost its
    connection.

    The end of a rank shows a moment after the lost connection, so wait for it.
    """
    wait([end for rank in ranks for end in (rank.pipe, rank.process.sentinel)], timeout=1)
    for rank in ranks:
        if rank.pipe.poll() or not rank.process.is_alive():
            rank.answer()


@contextlib.contextmanager
def _without_main():
    """Keep multiprocessing from importing the caller's main module in the ranks, which do not need
    it.
    """
    main = sys.modules["__main__"]
    hidden = {name: vars(main).pop(name) for name in ("__spec__", "__file__") if name in vars(main)}
    main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update({"__spec__": None} | hidden)


class _Rank:
    """One rank, as the process that started it sees it."""

    def __init__(self, context, number, folder, world_size, backend, timeout):
        self.number, self.out, self.err, self.shown = (
            number,
            folder / f"out{number}",
            folder / f"err{number}",
            0,
        )
        self.pipe, self.theirs = context.Pipe()
        files = str(self.out), str(self.err), f"file://{folder / 'store'}"
        variables = dict(
            os.environ, RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(world_size)
        )
        self.process = context.Process(
            target=_serve, args=(self.theirs, variables, files, backend, timeout)
        )

    def answer(self):
        """What the rank's call returned. Raises: what the call raised; RankError if the rank
        died.
        """
        try:
            if not self.pipe.poll():  # a child of the dead rank may hold the other end open
                raise EOFError
            value, error, frames, text = cloudpickle.loads(self.pipe.recv_bytes())
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode
            how = (
                f"killed by signal {-code}, {signal.strsignal(-code)}"
                if code < 0
                else f"exit code {code}"
            )
            raise RankError(
                f"rank {self.number} died before it answered ({how}).{self._said()}"
            ) from None
        if error is None:
            return value
        error.rank, error.frames = self.number, frames
        error.add_note(f"in rank {self.number}:\n{text}{self._said()}")
        raise error

    def _said(self):
        said = self.err.read_text(errors="replace")[-2000:].strip()
        return f" It wrote to stderr:\n{said}" if said else ""

    def print_output(self, ended=False):
        """Print the whole lines that the rank has printed since the last call; if it has `ended`,
        half a line too.
        """
        with contextlib.suppress(FileNotFoundError), open(self.out, "rb") as file:
            file.seek(self.shown)
            text = file.read()
            text = text if ended else text[: text.rfind(b"\n") + 1]
            self.shown += len(text)
            for line in CONNECTED.sub(b"", text).decode(errors="replace").splitlines():
                print(f"[rank {self.number}] {line}")

    def state(self, answered):
        """One line on where the rank is now."""
        if answered:
            return f"rank {self.number} has returned."
        written = self.err.stat().st_size if self.err.exists() else 0
        with contextlib.suppress(OSError):
            os.kill(self.process.pid, signal.SIGUSR1)
        frames, until = [], time.monotonic() + 2
        while not frames and time.monotonic() < until:
            time.sleep(0.05)
            with contextlib.suppress(FileNotFoundError):
                new = self.err.read_text(errors="replace")[written:]
                frames = re.findall(r'  File "(.*)", line (\d+) in (\S+)', new)
        return position(self.number, [(file, int(line), name) for file, line, name in frames])

    def end(self):
        """Kill the rank with every process that it started, and print the rest of its output."""
        if self.process.pid is None:  # interrupted before it was started
            return
        for kill, number in ((os.killpg, self.process.pid), (os.kill, self.process.pid)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(number, signal.SIGKILL)
        self.process.join()
        self.process.close()
        self.pipe.close()
        self.print_output(ended=True)


def _serve(pipe, variables, files, backend, timeout):
    """Run a rank: set up, call, send the result, wait to be killed."""
    os.setsid()  # its workers end with it
    # the modules that the server has imported stay: the collector need not look through them
    gc.freeze()
    vars(sys).pop("ps1", None)  # a fork of a notebook is no notebook: Lightning asks for it
    # as in a process that was not forked
    torch.default_generator.manual_seed(torch.Generator().initial_seed())
    out, err, store = files
    for path, stream in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    sys.stdout, sys.stderr = (
        open(n, "w", buffering=1, errors="replace", closefd=False) for n in (1, 2)
    )
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=False)
    os.environ.clear()
    os.environ.update(ONE_MACHINE | variables)
    value, error, frames, text = None, None, (), ""
    try:
        payload = pipe.recv_bytes()
        threading.Thread(target=_die_with_parent, args=(pipe,), daemon=True).start()
        rank, world_size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
        torch.set_num_threads(max(1, cores() // world_size))
        if backend == "nccl":
            torch.cuda.set_device(rank)
        late = timedelta(seconds=timeout + LATER)
        dist.init_process_group(
            backend, rank=rank, world_size=world_size, init_method=store, timeout=late
        )
        fn, args = cloudpickle.loads(payload)
        value = fn(rank, world_size, *args)
    except BaseException as caught:
        error, text = of_rank(caught, int(variables["RANK"])), traceback.format_exc()
        frames = error.frames
    sys.stdout.flush()
    pipe.send_bytes(_packed(value, error, frames, text))
    time.sleep(timeout + LATER)  # connections stay open for the others, until the parent ends us


def _packed(value, error, frames, text):
    """The result as bytes; a RankError in place of what cannot be pickled."""
    try:
        packed = cloudpickle.dumps((value, error and error.with_traceback(None), frames, text))
        cloudpickle.loads(packed)  # some exceptions can be packed and not unpacked
        return packed
    except Exception as reason:
        unfit = f"a rank returned an object of type {type(value).__name__}, which cannot be pickled: {reason}"
        error = RankError(f"{type(error).__name__}: {error}" if error else unfit)
        return cloudpickle.dumps((None, error, frames, text))


def _die_with_parent(pipe):
    """Wait for the other end of `pipe` to close, then kill this rank and its workers."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _counted(name, operation):
    """Make a method of a process group that logs the call and passes it on."""

    def call(self, *args, **options):
        tensors = args[0] if args and isinstance(args[0], list) else []
        self.traffic.append(
            (operation, sum(t.nbytes for t in tensors if isinstance(t, torch.Tensor)))
        )
        return getattr(self.inner, name)(*args, **options)

    return call


class CountingGroup(dist.ProcessGroup):
    """A process group that logs every operation and lets another group do it; DDP's reducer calls
    it too.
    """

    def __init__(self, inner, traffic):
        super().__init__(inner.rank(), inner.size())
        self.inner, self.traffic = inner, traffic

    def getBackendName(self):  # a name that torch looks up
        return "counting"

    allreduce = _counted("allreduce", "all_reduce")
    broadcast = _counted("broadcast", "broadcast")
    reduce = _counted("reduce", "reduce")
    allgather = _counted("allgather", "all_gather")
    all_gather_single = _counted("all_gather_single", "all_gather")  # all_gather_into_tensor
    _allgather_base = _counted("_allgather_base", "all_gather")  # the same before torch 2.12
    gather = _counted("gather", "gather")
    scatter = _counted("scatter", "scatter")
    reduce_scatter = _counted("reduce_scatter", "reduce_scatter")
    send = _counted("send", "send")
    recv = _counted("recv", "recv")
    recv_anysource = _counted("recv_anysource", "recv")
    barrier = _counted("barrier", "barrier")
