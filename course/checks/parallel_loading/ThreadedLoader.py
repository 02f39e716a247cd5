"""Probe of exercise ThreadedLoader: items that say who writes them, and wait for each other."""

import threading
import time

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_text
from course.engine.probing.tensors import kind
from course.engine.probing.threads import Meeting, acting, wait_until


class _Items:
    """`load_into`: writes the index everywhere; notes indices and threads."""

    def __init__(self, happens=None):
        self.happens, self.written, self.threads = happens or {}, [], set()
        self.before = set(threading.enumerate())
        self.lock = threading.Lock()

    def __call__(self, index, out):
        with self.lock:
            self.threads.add(threading.get_ident())
        if index in self.happens:
            self.happens[index]()
        out.fill_(index)
        with self.lock:
            self.written.append(index)

    def settled(self, expected):
        """How many items have been written, once that is `expected` or no thread acts any more."""
        wait_until(lambda: len(self.written) >= expected, lambda: acting(self.before), 1)
        time.sleep(0.02)
        return len(self.written)


def _cut(n, size, first=50):
    return [list(range(k, min(k + size, first + n))) for k in range(first, first + n, size)]


def _refuse():
    raise LookupError("no item of this number")


@exercise(quiz=True)
def ThreadedLoader(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Passes over items that note who writes them."""
    size, slots = 4 + seed % 2, 3
    batches = _cut(6 * size - 1, size)
    memory = torch.full((slots, size, 2, 3), -1.0)
    before = set(threading.enumerate())

    def loader(items, threads=2, buffers=memory, batches=batches):
        return answer(items, batches, buffers, threads)

    came, last = threading.Event(), batches[0][-1]
    items = _Items({last: lambda: wait_until(came.is_set, lambda: acting(before), 0.5, still=10)})
    one = loader(items)
    yield "its length is the number of batches", len(one)
    seen = [
        (batch.clone(), _slot(batch, memory), last in items.written, came.set()) for batch in one
    ]
    yield "as many batches as there are", len(seen)
    yield "batch k lies in slot k % slots, not in a copy", [slot for _, slot, *_ in seen]
    yield from _ahead(loader, size, slots, before)
    yield "each has the form of its items", [kind(batch) for batch, *_ in seen]
    yield "a slow item: its batch is whole when it comes", [whole for _, _, whole, _ in seen[:1]]
    yield "each holds its items, in order", [batch for batch, *_ in seen]
    yield "each item is written once", sorted(items.written)
    yield "no item is written by the main thread", threading.get_ident() not in items.threads
    yield "a second pass", [batch.clone() for batch in one]

    yield from _together(loader, batches, size)
    yield "one slot, one thread", [b.clone() for b in loader(_Items(), 1, memory[:1])]
    yield "no batch", [b.clone() for b in loader(_Items(), batches=[])]

    broken, seen = _Items({batches[2][1]: _refuse}), []
    yield (
        "an error of an item reaches the caller",
        error_text(lambda: seen.extend(len(b) for b in loader(broken))),
    )
    yield "the batches before it have been yielded", seen


def _slot(batch, memory):
    """The number of the slot of `memory` in which `batch` begins, or "a copy", whose address says
    nothing.
    """
    number = (batch.data_ptr() - memory.data_ptr()) // memory[0].nbytes
    return number if number in range(len(memory)) else "a copy"


def _ahead(loader, size, slots, before):
    """What is written while the caller has a batch."""
    items = _Items()
    running = iter(loader(items))
    first = next(running)
    yield (
        "when a batch is yielded, the other slots are filled, and no more",
        items.settled(slots * size),
    )
    yield "the batch in hand stays as it was", first
    next(running)
    yield (
        "when the next one is asked for, the slot is used again",
        items.settled((slots + 1) * size),
    )
    del first
    running.close()


def _together(loader, batches, size):
    """Whether items are written at the same time, by no more threads than asked for."""
    two = Meeting(2)

    def meet():
        if two.met is None:
            two.wait()

    list(loader(_Items(dict.fromkeys(batches[0], meet)), batches=batches[:1]))
    yield "two threads write items of one batch at the same time", two.met
