"""Probe of exercise WorkerLoader: real processes, whose work is scripted."""

import multiprocessing
import os
import signal
import time
import warnings
from multiprocessing.process import BaseProcess
from unittest import mock

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.limits import LimitReached, Limits, MachineBusy, limited
from course.engine.probing.errors import Stuck, raised
from course.engine.probing.tensors import kind
from course.engine.probing.threads import wait_until

PATIENCE = 10.0  # seconds that a pass may take; it takes a tenth of one
NAPS = 3000  # milliseconds that a late batch waits for the next one
MOST = 64  # batches of a script
WORDS = "ZeroDivisionError: item 11 of the script"  # of an error in a worker


class _Script:
    """What scripted workers do: they write [index, number, worker's seed, process] into the rows of
    a batch.

    Args:
        happens: number of a batch -> "fails", "dies", "stuck", or "late": it is sent after the next
            one has arrived.
        ending: seconds that a worker needs to end.
    """

    def __init__(self, happens=None, ending=0.0):
        self.happens, self.ending = happens or {}, ending
        # numbers of batches whose task has come and that have arrived; workers that were sent None
        self.given, self.arrived, self.ended = torch.zeros(
            3, MOST, dtype=torch.int64
        ).share_memory_()

    def __len__(self):
        return 10**6

    def __getitem__(self, i):
        return torch.tensor([i, 0, 0, 0])

    def work(self, dataset, seed, pipe, buffers):
        for number, indices in iter(pipe.recv, None):
            self.given[number] = 1
            act = self.happens.get(number)
            if act == "stuck":
                time.sleep(60)
            for row, index in enumerate(indices):
                buffers[number % len(buffers), row] = torch.tensor(
                    [index, number, seed, os.getpid()]
                )
            if act == "late":
                self.wait_for(number + 1)
            if act == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            pipe.send((number, f"Traceback of a worker\n{WORDS}" if act == "fails" else None))
        time.sleep(self.ending)
        self.ended[seed % MOST] = 1

    def wait_for(self, number):
        for _ in range(NAPS):
            if self.arrived[number]:
                break
            time.sleep(0.001)

    def order(self, arrivals):
        """The things that arrive, in order."""
        early, due = {}, 0
        for number, thing in arrivals:
            self.arrived[number] = 1
            early[number] = thing
            while due in early:
                yield early.pop(due)
                due += 1

    def tasks(self, expected, processes):
        """How many tasks have been given, once that is `expected` or more and nothing moves in
        `processes()`.
        """
        wait_until(lambda: self.given.sum() >= expected, processes, 3.0)
        wait_until(lambda: False, processes, 0.5, still=10)
        return int(self.given.sum())


class _Passes:
    """Makes loaders over scripts, and looks after the processes that they start."""

    def __init__(self, answer):
        self.answer, self.before = answer, set(multiprocessing.active_children())

    def loader(self, script, batches, num_workers=2, **slots):
        return self.answer(script, batches, num_workers, script.work, script.order, **slots)

    def children(self):
        return set(multiprocessing.active_children()) - self.before

    def pids(self):
        return [process.pid for process in self.children()]

    def kill(self):
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


def _copies(loader, look=lambda batch: None):
    """Copies of all batches, after `look` at each."""
    return _timely(lambda: [(look(batch), batch.clone())[1] for batch in loader], "a pass")


def _gone(numbers):
    """True if none of these processes is there, not even one that has ended and was not joined."""
    return not any(map(_exists, numbers))


def _exists(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


@exercise(quiz=True, starts_processes=True)
def WorkerLoader(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Passes over scripts: what is in the batches, who made them, what was asked ahead; then what
    goes wrong.
    """
    passes = _Passes(answer)
    warnings.simplefilter("ignore")  # Python warns of a fork beside threads
    try:
        yield from _batches(passes, seed)
        yield from _workers(passes, seed)
        yield from _left_early(passes, seed)
        yield from _failures(passes)
    finally:
        passes.kill()


def _cut(n, size, first=100):
    """Indices from `first` on, n in all, in lists of `size`."""
    return [list(range(k, min(k + size, first + n))) for k in range(first, first + n, size)]


def _batches(passes, seed):
    size = 3 + seed % 2
    batches, script, shared = _cut(4 * size - 1, size), _Script(), []
    loader = passes.loader(script, batches)
    yield "its length is the number of batches", len(loader)
    yield "no process runs before the first batch is asked for", len(passes.children())
    seen = _copies(loader, lambda batch: shared.append(batch.is_shared()))
    yield "what arrives goes through `order`", script.arrived.nonzero().flatten()
    yield "each has the form of its items", [kind(batch) for batch in seen]
    yield "each holds its items, in order", [batch[:, 0] for batch in seen]
    yield "batches lie in shared memory", all(shared)
    late = _copies(passes.loader(_Script({0: "late"}), [[100], [101, 102]], 3))
    yield "batches that finish out of order come in order", [batch[:, 0].tolist() for batch in late]


def _workers(passes, seed):
    script, slots, join = _Script(ending=0.05), set(), BaseProcess.join
    torch.manual_seed(seed)
    # on a busy machine a worker needs more time to end
    with mock.patch.object(
        BaseProcess, "join", lambda process, timeout=None: join(process, timeout and 10 * timeout)
    ):
        loader = passes.loader(script, _cut(14, 2), slots=3)
        rows = torch.cat(_copies(loader, lambda batch: slots.add(batch.data_ptr())))
    yield "more batches than slots", rows[:, 0]
    yield "they lie in `slots` places", len(slots)
    pids = rows[::2, 3].tolist()
    yield (
        "batch k is made by worker k % num_workers",
        [sorted({*pids}, key=pids.index).index(pid) for pid in pids],
    )
    yield "the workers' seeds: base, base + 1", rows[::2, 2]
    yield "no process is left after a pass", _gone(pids)
    yield "each worker is sent None and given time to end by itself", int(script.ended.sum())


def _left_early(passes, seed):
    batches, script = _cut(16, 2), _Script()
    loader, daemons, pids, tasks, in_hand = passes.loader(script, batches), set(), set(), [], []

    def leave():
        for k, batch in enumerate(loader):
            daemons.update(process.daemon for process in passes.children())
            pids.update(passes.pids())
            tasks.append(script.tasks(4 + k, passes.children))
            in_hand.append(batch[:, 1].tolist())
            if k:
                break

    _timely(leave, "a pass that is left by break")
    yield "the processes are daemons", sorted(daemons)
    yield "tasks that were sent when the first batch is yielded: 4 slots by default", tasks[0]
    yield "the batch in hand stays as it was", in_hand
    yield "tasks sent when the second is yielded: one more", tasks[1]
    yield "no process is left when the loop is left by break", _gone(pids)
    torch.manual_seed(seed + 1)
    rows = torch.cat(_copies(loader))
    yield "the next pass starts from the first batch", rows[:, 0]
    yield "the base seed is drawn in each pass from torch's global numbers", rows[::2, 2]
    stuck = iter(passes.loader(_Script({1: "stuck"}), batches, slots=2))
    _timely(lambda: next(stuck), "the first batch")
    pids = passes.pids()
    _timely(stuck.close, "to end a pass while a worker is stuck")
    yield "a worker that does not end by itself is terminated", _gone(pids)


def _failures(passes):
    error, seen, pids = _failing(passes, "fails", 2, num_workers=1)
    yield "an error in the only worker raises RuntimeError", type(error).__name__
    yield "its message holds the text that the worker sent", WORDS in str(error)
    yield "the batches before it have been yielded", seen
    yield "no process is left after an error", _gone(pids)
    # a later worker may hold the first one's end of its pipe, too, and the main process that of the
    # last one
    (first, _, pids), (last, _, more) = (_failing(passes, "dies", batch) for batch in (2, 3))
    yield (
        "a worker that is killed raises RuntimeError",
        [type(error).__name__ for error in (first, last)],
    )
    yield "no process is left after that either", _gone(pids + more)


def _failing(passes, act, batch, num_workers=2):
    """(exception, numbers of the batches before it, processes) of a pass in which a batch fails, or
    its worker dies.
    """
    seen, pids = [], []

    def run():
        for batch in passes.loader(script, _cut(12, 2), num_workers):
            pids[:] = passes.pids()
            seen.append(batch[0, 1].item())

    script = _Script({batch: act})
    return _timely(lambda: raised(run), f"a worker that {act}"), seen, pids
