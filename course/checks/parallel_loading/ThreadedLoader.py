"""Probe of exercise ThreadedLoader: items that say who writes them, and wait for each other."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_text
from course.engine.probing.laws import tried
from course.engine.probing.tensors import kind
from course.engine.probing.threads import Meeting, acting, wait_until

SLOTS = 3


class _Items:
    """`load_into`: writes the index everywhere; notes indices and threads.

    Args:
        happens: index -> what is called before it is written.
    """

    def __init__(self, happens: dict[int, Callable[[], object]] | None = None) -> None:
        self.happens = happens or {}
        self.written = []
        self.threads = set()
        self.threads_before = set(threading.enumerate())
        self.lock = threading.Lock()

    def __call__(self, index: int, out: torch.Tensor) -> None:
        with self.lock:
            self.threads.add(threading.get_ident())
        if index in self.happens:
            self.happens[index]()
        out.fill_(index)
        with self.lock:
            self.written.append(index)

    def settled(self, expected: int) -> int:
        """How many items are written, once that is `expected` or no thread acts any more."""
        wait_until(lambda: len(self.written) >= expected, lambda: acting(self.threads_before), 1)
        time.sleep(0.02)
        return len(self.written)


def _cut(n: int, size: int, first: int = 50) -> list[list[int]]:
    """Indices from `first` on, n in all, in lists of `size`."""
    indices = list(range(first, first + n))
    return [indices[start : start + size] for start in range(0, n, size)]


def _refuse() -> None:
    raise LookupError("no item of this number")


@exercise(quiz=True)
def ThreadedLoader(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Passes over items that note who writes them."""
    size = 4 + seed % 3
    batches = _cut(6 * size - 1, size)
    memory = torch.full((SLOTS, size, 2, 3), -1.0)
    before = set(threading.enumerate())

    def loader(
        items: _Items,
        threads: int = 2,
        buffers: torch.Tensor = memory,
        batches: Sequence[list[int]] = batches,
    ) -> Any:
        return answer(items, batches, buffers, threads)

    first_has_come = threading.Event()
    last = batches[0][-1]

    def wait_for_the_first_batch() -> None:
        wait_until(first_has_come.is_set, lambda: acting(before), 0.5, still=10)

    items = _Items({last: wait_for_the_first_batch})
    one = loader(items)
    yield "its length is the number of batches", len(one)
    slots = []
    whole = []

    def look(batch: torch.Tensor) -> None:
        slots.append(_slot(batch, memory))
        whole.append(last in items.written)
        first_has_come.set()

    copies = _copies(one, look)
    yield "as many batches as there are", len(copies)
    yield "batch k lies in slot k % slots, not in a copy", tried(slots, size)
    yield from _ahead(loader, size)
    yield "each has the form of its items", list(map(kind, copies))
    yield "a slow item: its batch is whole when it comes", whole[:1]
    yield "each holds its items, in order", copies
    yield "each item is written once", sorted(items.written)
    yield "no item is written by the main thread", threading.get_ident() not in items.threads
    yield "a second pass", _copies(one)

    yield from _together(loader, batches)
    yield "one slot, one thread", _copies(loader(_Items(), 1, memory[:1]))
    yield "no batch", _copies(loader(_Items(), batches=[]))

    broken = _Items({batches[2][1]: _refuse})
    sizes = []
    error = error_text(lambda: sizes.extend(map(len, loader(broken))))
    yield "an error of an item reaches the caller", error
    yield "the batches before it have been yielded", sizes


def _copies(
    loader: Iterable[torch.Tensor], look: Callable[[torch.Tensor], object] = lambda batch: None
) -> list[torch.Tensor]:
    """Copies of all batches, with `look` at each before the next is asked for."""
    copies = []
    for batch in loader:
        copies.append(batch.clone())
        look(batch)
    return copies


def _slot(batch: torch.Tensor, memory: torch.Tensor) -> int | str:
    """The number of the slot of `memory` in which `batch` begins.

    Or "a copy", whose address says nothing.
    """
    number = (batch.data_ptr() - memory.data_ptr()) // memory[0].nbytes
    return number if number in range(len(memory)) else "a copy"


def _ahead(loader: Callable[..., Any], size: int) -> Facts:
    """What is written while the caller has a batch."""
    items = _Items()
    running = iter(loader(items))
    first = next(running)
    written = items.settled(SLOTS * size)
    yield "when a batch is yielded, the other slots are filled, and no more", written
    yield "the batch in hand stays as it was", first
    next(running)
    written = items.settled((SLOTS + 1) * size)
    yield "when the next one is asked for, the slot is used again", written
    del first
    running.close()


def _together(loader: Callable[..., Any], batches: Sequence[list[int]]) -> Facts:
    """Whether items are written at the same time, by no more threads than asked for."""
    two = Meeting(2)

    def meet() -> None:
        if two.met is None:
            two.wait()

    list(loader(_Items(dict.fromkeys(batches[0], meet)), batches=batches[:1]))
    yield "two threads write items of one batch at the same time", tried(two.met, batches[0])
