"""Probe of exercise WorkerLoader: real processes, whose work is scripted."""

import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple
from unittest import mock

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.limits import LimitReached, Limits, MachineBusy, limited
from course.engine.probing.errors import Stuck, raised
from course.engine.probing.tensors import kind
from course.engine.probing.threads import wait_until

PASS_SECONDS = 10.0  # that a pass may take; it takes a tenth of one
LATE_MILLISECONDS = 3000  # that a late batch waits for the next one
BATCHES_MAX = 64  # of a script
WORDS = "ZeroDivisionError: item 11 of the script"  # of an error in a worker


class _Script:
    """What scripted workers do.

    They write [index, number of the batch, worker's seed, process] into the rows of a batch.

    Args:
        happens: number of a batch -> "fails", "dies", "stuck", or "late": it is sent after the next
            one has arrived.
        ending: seconds that a worker needs to end.
    """

    def __init__(self, happens: dict[int, str] | None = None, ending: float = 0.0) -> None:
        self.happens = happens or {}
        self.ending = ending
        shared = torch.zeros(3, BATCHES_MAX, dtype=torch.int64).share_memory_()
        self.given = shared[0]  # the batches whose task has come
        self.arrived = shared[1]  # the batches that have arrived
        self.ended = shared[2]  # the workers that were sent None

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.tensor([i, 0, 0, 0])

    def work(
        self, dataset: object, seed: int, pipe: Connection, buffers: Sequence[torch.Tensor]
    ) -> None:
        """What a worker does, until it is sent None."""
        for number, indices in iter(pipe.recv, None):
            self.given[number] = 1
            act = self.happens.get(number)
            if act == "stuck":
                time.sleep(60)
            slot = number % len(buffers)
            for row, index in enumerate(indices):
                buffers[slot, row] = torch.tensor([index, number, seed, os.getpid()])
            if act == "late":
                self.wait_for(number + 1)
            if act == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            pipe.send((number, f"Traceback of a worker\n{WORDS}" if act == "fails" else None))
        time.sleep(self.ending)
        self.ended[seed % BATCHES_MAX] = 1

    def wait_for(self, number: int) -> None:
        """Wait until this batch has arrived, or for LATE_MILLISECONDS."""
        for _ in range(LATE_MILLISECONDS):
            if self.arrived[number]:
                break
            time.sleep(0.001)

    def order(self, arrivals: Iterable[tuple[int, Any]]) -> Iterator[Any]:
        """The things that arrive, in order."""
        early = {}
        due = 0
        for number, thing in arrivals:
            self.arrived[number] = 1
            early[number] = thing
            while due in early:
                yield early.pop(due)
                due += 1

    def tasks(self, expected: int, processes: Callable[[], Iterable[BaseProcess]]) -> int:
        """How many tasks have been given.

        Waits until that is `expected` or more and nothing moves in `processes()`.
        """
        wait_until(lambda: self.given.sum() >= expected, processes, 3.0)
        wait_until(lambda: False, processes, 0.5, still=10)
        return int(self.given.sum())


class _Passes:
    """Makes loaders over scripts, and looks after the processes that they start."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.before = set(multiprocessing.active_children())

    def loader(
        self,
        script: _Script,
        batches: Sequence[Sequence[int]],
        num_workers: int = 2,
        **slots: int,
    ) -> Any:
        """A loader of the answer; `slots` as a keyword, or the default of the answer."""
        return self.answer(script, batches, num_workers, script.work, script.order, **slots)

    def children(self) -> set[BaseProcess]:
        """The processes that were not there before."""
        return set(multiprocessing.active_children()) - self.before

    def pids(self) -> list[int]:
        """The numbers of these processes."""
        return [process.pid for process in self.children()]

    def kill(self) -> None:
        """Kill what is left."""
        for process in self.children():
            process.kill()
            process.join()


def _timely(call: Callable[[], Any], what: str) -> Any:
    """What `call()` returns; Stuck if it takes too long."""
    try:
        with limited(Limits(PASS_SECONDS), 1):
            return call()
    except MachineBusy:
        raise
    except LimitReached:
        raise Stuck(
            f"{what}: nothing came for {PASS_SECONDS:g} seconds. Who waits for whom?"
        ) from None


def _copies(
    loader: Iterable[torch.Tensor], look: Callable[[torch.Tensor], object] = lambda batch: None
) -> list[torch.Tensor]:
    """Copies of all batches, after `look` at each."""

    def run() -> list[torch.Tensor]:
        copies = []
        for batch in loader:
            look(batch)
            copies.append(batch.clone())
        return copies

    return _timely(run, "a pass")


def _gone(pids: Iterable[int]) -> bool:
    """True if none of these processes is there, not even one that has ended and was not joined."""
    return not any(map(_exists, pids))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@exercise(quiz=True, starts_processes=True)
def WorkerLoader(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Passes over scripts: batches, who made them, what is asked ahead; then what goes wrong."""
    passes = _Passes(answer)
    warnings.simplefilter("ignore")  # Python warns of a fork while threads run
    try:
        yield from _batches(passes, seed)
        yield from _workers(passes, seed)
        yield from _left_early(passes, seed)
        yield from _failures(passes)
    finally:
        passes.kill()


def _cut(n: int, size: int, first: int = 100) -> list[list[int]]:
    """Indices from `first` on, n in all, in lists of `size`."""
    indices = list(range(first, first + n))
    return [indices[start : start + size] for start in range(0, n, size)]


def _batches(passes: _Passes, seed: int) -> Facts:
    size = 3 + seed % 2
    script = _Script()
    shared = []
    loader = passes.loader(script, _cut(4 * size - 1, size))
    yield "its length is the number of batches", len(loader)
    yield "no process runs before the first batch is asked for", len(passes.children())
    copies = _copies(loader, lambda batch: shared.append(batch.is_shared()))
    yield "what arrives goes through `order`", script.arrived.nonzero().flatten()
    yield "each has the form of its items", list(map(kind, copies))
    yield "each holds its items, in order", [batch[:, 0] for batch in copies]
    yield "batches lie in shared memory", all(shared)
    late = _copies(passes.loader(_Script({0: "late"}), [[100], [101, 102]], 3))
    indices = [batch[:, 0].tolist() for batch in late]
    yield "batches that finish out of order come in order", indices


def _workers(passes: _Passes, seed: int) -> Facts:
    script = _Script(ending=0.05)
    addresses = set()
    join = BaseProcess.join

    def patient_join(process: BaseProcess, timeout: float | None = None) -> None:
        join(process, timeout and 10 * timeout)

    torch.manual_seed(seed)
    # on a busy machine a worker needs more time to end
    with mock.patch.object(BaseProcess, "join", patient_join):
        loader = passes.loader(script, _cut(14, 2), slots=3)
        rows = torch.cat(_copies(loader, lambda batch: addresses.add(batch.data_ptr())))
    yield "more batches than slots", rows[:, 0]
    yield "they lie in `slots` places", len(addresses)
    pids = rows[::2, 3].tolist()
    workers = list(dict.fromkeys(pids))  # in the order of their first batches
    makers = [workers.index(pid) for pid in pids]
    yield "batch k is made by worker k % num_workers", makers
    yield "the workers' seeds: base, base + 1", rows[::2, 2]
    yield "no process is left after a pass", _gone(pids)
    yield "each worker is sent None and given time to end by itself", int(script.ended.sum())


def _left_early(passes: _Passes, seed: int) -> Facts:
    batches = _cut(16, 2)
    script = _Script()
    loader = passes.loader(script, batches)
    daemons = set()
    pids = set()
    tasks = []
    in_hand = []

    def leave_at_the_second() -> None:
        for k, batch in enumerate(loader):
            daemons.update(process.daemon for process in passes.children())
            pids.update(passes.pids())
            tasks.append(script.tasks(4 + k, passes.children))
            in_hand.append(batch[:, 1].tolist())
            if k:
                break

    _timely(leave_at_the_second, "a pass that is left by break")
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


def _failures(passes: _Passes) -> Facts:
    failure = _failing(passes, "fails", 2, num_workers=1)
    yield "an error in the only worker raises RuntimeError", type(failure.error).__name__
    yield "its message holds the text that the worker sent", WORDS in str(failure.error)
    yield "the batches before it have been yielded", failure.seen
    yield "no process is left after an error", _gone(failure.pids)
    # a later worker may hold the first one's end of its pipe, too, and the main process that of the
    # last one
    first = _failing(passes, "dies", 2)
    last = _failing(passes, "dies", 3)
    names = [type(first.error).__name__, type(last.error).__name__]
    yield "a worker that is killed raises RuntimeError", names
    yield "no process is left after that either", _gone(first.pids + last.pids)


class _Failure(NamedTuple):
    """What came of a pass that fails."""

    error: BaseException | None
    seen: list[int]  # the numbers of the batches before it
    pids: list[int]  # of the workers


def _failing(passes: _Passes, act: str, batch: int, num_workers: int = 2) -> _Failure:
    """A pass in which this batch fails, or its worker dies."""
    script = _Script({batch: act})
    seen = []
    pids = []

    def run() -> None:
        for rows in passes.loader(script, _cut(12, 2), num_workers):
            pids[:] = passes.pids()
            seen.append(rows[0, 1].item())

    error = _timely(lambda: raised(run), f"a worker that {act}")
    return _Failure(error, seen, pids)
