"""Read ahead: a thread fills buffers while its consumer computes.

With two buffers or more, batch i + 1 is filled while the consumer works on batch i. The hard part
is the end: a consumer may leave after three batches, by `break`, by an error, or by the stop button
of a notebook. A thread that waits for a buffer would then hang and keep the memory of all of them.
When a generator is closed, or nobody refers to it any more, Python raises GeneratorExit at its
`yield`, so its `finally` runs: there the thread is told to stop, and awaited.
"""

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any


def read_ahead(
    fill: Callable[[Any, Any], Any], work: Iterable, buffers: Sequence[Any]
) -> Generator[Any, None, None]:
    """Yield what `fill` returns for each item of `work`; one thread fills while you compute.

    Args:
        fill: callable (item, buffer) -> value; fills the buffer, the value is usually a view of it.
        work: items, possibly lazy and without an end.
        buffers: 2 or more, whatever `fill` understands; nothing else looks into them.

    A value is the consumer's until it asks for the next one. `close()` ends the thread.

    Raises: ValueError by the first next() if there are fewer than 2 buffers; what `fill` and `work`
        raise, after the values before.
    Source: Dijkstra 1965, "Cooperating sequential processes": a ring of buffers, two semaphores.
    """
    if len(buffers) < 2:
        raise ValueError(
            f"one buffer is held while another is filled: at least 2 are needed, "
            f"found {len(buffers)}."
        )
    free = threading.Semaphore(len(buffers) - 1)  # less one: item 0 need not wait
    filled = threading.Semaphore(0)
    values = []
    errors = []
    has_left = threading.Event()

    def run() -> None:
        try:
            for k, item in enumerate(work):
                values.append(fill(item, buffers[k % len(buffers)]))
                filled.release()
                free.acquire()  # before the next item is asked for
                if has_left.is_set():
                    break
        except BaseException as error:
            errors.append(error)
        finally:
            filled.release()  # without a value: the end

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while filled.acquire() and values:
            yield values.pop(0)
            free.release()  # the consumer asks for the next value, so this buffer is free
    finally:
        has_left.set()
        free.release()
        thread.join()
    if errors:
        raise errors.pop()
