"""Probe of exercise WorkerLoader: real processes, whose work is scripted."""

import contextlib
import multiprocessing
import os
import signal
import time
import warnings
from multiprocessing.process import BaseProcess
from unittest import mock

import torch

from course.checks.engine import exercise
from course.checks.limits import LimitReached, Limits, MachineBusy, limited
from course.checks.probing.errors import Stuck, raised
from course.checks.probing.tensors import kind
from course.checks.probing.threads import wait_until

PATIENCE = 10.0  # seconds that a pass may take; it takes a tenth of one
LEAST = 0.1  # seconds to end by itself that a worker must be given, which needs half of them
NAPS = 3000  # of a millisecond that a worker waits for its turn: a machine that stands still does not shorten them
MOST = 64  # batches of a script
WORDS = "ZeroDivisionError: item 11 of the script"  # of an error in a worker


class _Script:
    """What scripted workers do: they write [index, number, worker's seed, process] into the rows of a batch.

    Args:
        happens: number of a batch -> "fails", "dies", "stuck", or "late": the next one is sent before; "end" -> the
            seconds that a worker needs to end.
        in_turn: whether a batch is sent only when the one before it has arrived, so that `take_turns` is an order.
    """

    def __init__(self, happens=None, in_turn=False):
        self.happens, self.in_turn = happens or {}, in_turn
        self.given = torch.zeros(MOST, dtype=torch.int64).share_memory_()  # batches whose task has come
        self.turn = torch.zeros(1, dtype=torch.int64).share_memory_()  # the number that may be sent
        self.hasty = torch.zeros(1, dtype=torch.bool).share_memory_()  # whether nobody waits for a turn any more
        self.arrived = []
        self.ended = torch.zeros(MOST, dtype=torch.int64).share_memory_()  # last batches of workers that were sent None

    def __len__(self):
        return 10**6

    def __getitem__(self, i):
        return torch.tensor([i, 0, 0, 0])

    def work(self, dataset, seed, pipe, buffers):
        last = MOST - 1
        for number, indices in iter(pipe.recv, None):
            pipe.send((number, self.write(number, indices, seed, buffers)))
            last = number
        time.sleep(self.happens.get("end", 0))
        self.ended[last] = 1

    def write(self, number, indices, seed, buffers):
        """Fill the slot as the script says; the error that is to be reported, or None."""
        self.given[number] = 1
        act = self.happens.get(number)
        time.sleep(60 if act == "stuck" else 0)
        for row, index in enumerate(indices):
            item = torch.tensor([index, number, seed, os.getpid()])
            buffers[number % len(buffers), row] = item.to(buffers.dtype)
        if self.in_turn or act == "late":
            self.wait_for_turn(number + (act == "late"))
        if act == "dies":
            self.let_go()
            os.kill(os.getpid(), signal.SIGKILL)
        return f"Traceback of a worker\n{WORDS}" if act == "fails" else None

    def wait_for_turn(self, number):
        naps = 0
        while self.turn[0] < number and not self.hasty[0]:
            time.sleep(0.001)
            naps += 1
            if naps == NAPS:
                self.hasty[0] = True  # no turn is given: what arrives does not go through the order

    def take_turns(self, arrivals):
        """An order for workers that send in turn."""
        for due, (number, thing) in enumerate(arrivals):
            self.arrives(number)
            if number != due or number in self.happens:
                self.let_go()
            yield thing

    def take_all(self, arrivals):
        """An order for passes that have no more batches than slots: it takes all before it gives any."""
        things = {}
        for number, thing in arrivals:
            self.arrives(number)
            things[number] = thing
        return (things[number] for number in sorted(things))

    def arrives(self, number):
        self.arrived.append(number)
        self.turn[0] = max(int(self.turn[0]), number + 1)

    def let_go(self):
        """Let no worker wait for its turn."""
        self.turn[0] = MOST

    def tasks(self, expected, processes):
        """How many tasks have been given, once that is `expected` or more and nothing moves in `processes()`."""
        wait_until(lambda: self.given.sum() >= expected, processes, 3.0)
        wait_until(lambda: False, processes, 0.5, still=10)
        return int(self.given.sum())


class _Octets(_Script):
    def __getitem__(self, i):
        return torch.zeros(4, dtype=torch.uint8)


class _Passes:
    """Makes loaders over scripts, and looks after the processes that they start."""

    def __init__(self, answer):
        self.answer, self.before = answer, set(multiprocessing.active_children())
        self.hasty = torch.zeros(1, dtype=torch.bool).share_memory_()

    def loader(self, script, batches, num_workers=2, **slots):
        script.hasty = self.hasty  # the same for all scripts: one of them waits in vain, at most
        order = script.take_turns if script.in_turn else script.take_all
        return self.answer(script, batches, num_workers, script.work, order, **slots)

    def children(self):
        return set(multiprocessing.active_children()) - self.before

    def end(self):
        """Kill what is left."""
        for process in self.children():
            process.kill()
            process.join()


def _timely(call, what):
    """What `call()` returns; Stuck if it takes too long."""
    try:
        with limited(Limits(PATIENCE), 1):
            return call()
    except MachineBusy:
        raise
    except LimitReached:
        raise Stuck(f"{what}: nothing came for {PATIENCE:g} seconds. Who waits for whom?") from None


@contextlib.contextmanager
def _patient_joins():
    """Inside, whoever has waited some time for a process to end waits on as long as it moves, on a busy machine."""
    join = BaseProcess.join

    def patient(process, timeout=None):
        join(process, timeout)
        if timeout and timeout > LEAST:
            wait_until(lambda: not process.is_alive(), lambda: [process], 3.0)

    with mock.patch.object(BaseProcess, "join", patient):
        yield


@contextlib.contextmanager
def _hasty_joins():
    """Inside, whoever waits some seconds for a process to end waits 30 ms: it has ended by then, or never does.

    What was asked for adds up as before: with more than PATIENCE seconds of it, so long is waited.
    """
    join, asked = BaseProcess.join, 0.0

    def hasty(process, timeout=None):
        nonlocal asked
        join(process, None if timeout is None else min(timeout, 0.03))
        if process.is_alive():
            asked += timeout
            join(process, PATIENCE if asked > PATIENCE else 0)

    with mock.patch.object(BaseProcess, "join", hasty):
        yield


def _copies(loader, what="a pass"):
    """Copies of all batches."""
    return _timely(lambda: [batch.clone() for batch in loader], what)


def _gone(numbers):
    """True if none of these processes is there, not even one that has ended and was not joined."""
    return not any(os.path.exists(f"/proc/{n}") if os.path.isdir("/proc") else _alive(n) for n in numbers)


def _alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


@exercise(quiz=True)
def WorkerLoader(answer, device, seed):
    """Passes over scripts: what is in the batches, who made them, what was asked ahead; then what goes wrong."""
    passes = _Passes(answer)
    warnings.simplefilter("ignore")  # Python warns of a fork beside threads
    try:
        yield from _batches(passes, seed)
        yield from _workers(passes, seed)
        yield from _left_early(passes, seed)
        yield from _failures(passes)
    finally:
        passes.end()


def _cut(n, size, first=100):
    """Indices from `first` on, n in all, in lists of `size`."""
    return [list(range(k, min(k + size, first + n))) for k in range(first, first + n, size)]


def _batches(passes, seed):
    size = 3 + seed % 2
    batches = _cut(4 * size - 1, size)
    script = _Script()
    loader = passes.loader(script, batches)
    yield "its length is the number of batches", len(loader)
    yield "no process runs before the first batch is asked for", len(passes.children())
    shared = []

    def one():
        for batch in loader:
            shared.append(batch.is_shared())
            yield batch.clone()

    seen = _timely(lambda: list(one()), "a pass of four batches")
    yield "what arrives goes through `order`", sorted(script.arrived)
    found = [any(index in b[:, 0].tolist() for index in i) for b, i in zip(seen, batches, strict=False)]
    yield "what a worker writes is seen in the main process", found
    yield "batches lie in shared memory", all(shared)
    yield "each has the form of its items", [kind(batch) for batch in seen]
    yield "each holds its items, in order", [batch[:, 0] for batch in seen]
    with _hasty_joins():  # where the second worker dies, the first waits for it
        late = _copies(passes.loader(_Octets({0: "late"}), [[100], [101, 102]], 3))
    yield "three workers, two batches of bytes, the first one smaller", [kind(batch) for batch in late]
    yield "batches that finish out of order come in order", [batch[:, 0].tolist() for batch in late]


def _workers(passes, seed):
    script, slots = _Script({"end": LEAST / 2}, in_turn=True), set()
    loader = passes.loader(script, _cut(14, 2), slots=3)

    def copies():
        for batch in loader:
            slots.add(batch.data_ptr())
            yield batch.clone()

    torch.manual_seed(seed)
    with _patient_joins():
        rows = torch.cat(_timely(lambda: list(copies()), "7 batches of two workers"))
    yield "more batches than slots", rows[:, 0]
    yield "they lie in `slots` places", len(slots)
    pids = rows[::2, 3].tolist()
    yield "no batch is made in the main process", os.getpid() not in pids
    yield "batch k is made by worker k % num_workers", [sorted({*pids}, key=pids.index).index(pid) for pid in pids]
    yield "the workers' seeds: base, base + 1", rows[::2, 2]
    yield "no process is left after a pass", _gone(pids)
    yield "each worker is sent None and given time to end by itself", int(script.ended.sum())
    alone = passes.loader(_Script(in_turn=True), _cut(4, 2), 1)
    yield "one worker, two batches", [batch[:, 1].tolist() for batch in _copies(alone)]


def _left_early(passes, seed):
    batches, script = _cut(16, 2), _Script(in_turn=True)
    loader, daemons, pids, tasks, in_hand = passes.loader(script, batches), set(), [], [], []

    def leave():
        for k, batch in enumerate(loader):
            if not k:
                daemons.update(process.daemon for process in passes.children())
                pids.extend(process.pid for process in passes.children())
                script.let_go()
            tasks.append(script.tasks(4 + k, passes.children))
            in_hand.append(batch[:, 1].tolist())
            if k:
                break

    _timely(leave, "a pass that is left by break")
    yield "the processes are daemons", sorted(daemons)
    yield "tasks that were sent when the first batch is handed out: 4 slots by default", tasks[0]
    yield "the batch in hand stays as it was", in_hand
    yield "tasks sent when the second is handed out: one more", tasks[1]
    yield "no process is left when the loop is left by break", _gone(pids)
    script.turn[0] = 0
    torch.manual_seed(seed + 1)
    rows = torch.cat(_copies(loader))
    yield "the next pass starts from the first batch", rows[:, 0]
    yield "the base seed is drawn in each pass from torch's global numbers", rows[::2, 2]
    stuck = iter(passes.loader(_Script({1: "stuck"}, in_turn=True), batches, slots=2))
    _timely(lambda: next(stuck), "the first batch")
    pids = [process.pid for process in passes.children()]
    with _hasty_joins():
        _timely(stuck.close, "to end a pass while a worker is stuck")
    yield "a worker that does not end by itself is terminated", _gone(pids)


def _failures(passes):
    error, seen, pids = _failing(passes, "fails", 2, num_workers=1)
    yield "an error in the only worker raises RuntimeError", type(error).__name__
    yield "its message holds the text that the worker sent", WORDS in str(error)
    yield "the batches before it have been handed out", seen
    yield "no process is left after an error", _gone(pids)
    # a later worker may hold the first one's end of its pipe, too, and the main process that of the last one
    (first, _, pids), (last, _, more) = (_failing(passes, "dies", batch) for batch in (2, 3))
    yield "a worker that is killed raises RuntimeError", [type(error).__name__ for error in (first, last)]
    yield "no process is left after that either", _gone(pids + more)


def _failing(passes, act, batch, num_workers=2):
    """(exception, numbers of the batches before it, processes) of a pass in which a batch fails, or its worker dies."""
    script, seen, pids = _Script({batch: act}, in_turn=True), [], []

    def run():
        for batch in passes.loader(script, _cut(12, 2), num_workers):
            pids[:] = [process.pid for process in passes.children()]
            seen.append(batch[0, 1].item())

    return _timely(lambda: raised(run), f"a worker that {act}"), seen, pids
