"""Known mistakes of exercise copy_ahead, and right answers in other styles."""

import collections
import contextlib
import itertools

from course.checks.engine import alternative, mistake


def _close(batches):
    if hasattr(batches, "close"):
        batches.close()


def _settle(running, batches):
    try:
        if running:
            running.wait()
    finally:
        _close(batches)


@mistake(
    "copy_ahead",
    "No copy is waited for: the loader refills the buffer while it is read, and batches hold rows of the next one. "
    "Call wait() of a copy before the loader is asked for more.",
)
def never_waits(batches, copies):
    batches, ready = iter(batches), None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _close(batches)


@mistake(
    "copy_ahead",
    "The copy that is waited for is the one that was handed out, the older of the two. The newer one reads the buffer "
    "that is about to be refilled: wait for that.",
)
def waits_for_the_older(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
                ready.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "wait() stands at the top of the loop: by then the loader has been asked for the batch of this turn, and has "
    "refilled the buffer. Wait at the end of the loop, before the `for` asks again.",
)
def waits_after_asking(batches, copies):
    batches, ready = iter(batches), None
    try:
        for batch in batches:
            if ready:
                ready.wait()
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _settle(ready, batches)


@mistake(
    "copy_ahead",
    "wait() comes right after start(): the processor stands still during the copy, and nothing runs beside it. Hand "
    "out the batch before it first, wait when the consumer comes back.",
)
def waits_at_once(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            running.wait()
            if ready:
                yield ready.tensors()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "A copy is started and its own batch is handed out: while that is computed on, no copy runs. Start the copy of "
    "the next batch before you hand out this one.",
)
def one_at_a_time(batches, copies):
    batches, running = iter(batches), None
    try:
        for batch in batches:
            running = copies.start(batch)
            yield running.tensors()
            running.wait()
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "tensors() is called as soon as the copy is started: all that is computed from then on waits for it, the batch "
    "before it included. Call tensors() when you hand out that batch.",
)
def tensors_too_early(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            tensors = running.tensors()
            if ready:
                yield ready
            running.wait()
            ready = tensors
        if ready:
            yield ready
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "The last batch is missing: when the loader is at its end, one copy has not been handed out yet.",
)
def last_one_lost(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "All copies are made before the first batch is handed out: the device would have to hold the whole data. Keep two.",
)
def all_copies_first(batches, copies):
    batches, all_of_them = iter(batches), []
    try:
        for batch in batches:
            all_of_them.append(copies.start(batch))
            all_of_them[-1].wait()
        for copy in all_of_them:
            yield copy.tensors()
    finally:
        _close(batches)


@mistake(
    "copy_ahead",
    "The copies that were handed out are kept, so the device's memory fills up. Drop each when the next is handed out.",
)
def keeps_every_copy(batches, copies):
    batches, started = iter(batches), []
    try:
        for batch in batches:
            started.append(copies.start(batch))
            if len(started) > 1:
                yield started[-2].tensors()
            started[-1].wait()
        if started:
            yield started[-1].tensors()
    finally:
        _settle(started[-1] if started else None, batches)


@mistake(
    "copy_ahead",
    "The handles of the copies are handed out. The consumer computes on tensors: hand out what tensors() returns.",
)
def handles(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready
            running.wait()
            ready = running
        if ready:
            yield ready
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "When the consumer leaves early, nothing is cleaned up: a copy is under way, and the loader keeps its thread. Do "
    "both in `finally`.",
)
def cleans_up_after_the_last_batch(batches, copies):
    batches, ready = iter(batches), None
    for batch in batches:
        running = copies.start(batch)
        if ready:
            yield ready.tensors()
        running.wait()
        ready = running
    if ready:
        yield ready.tensors()
    _close(batches)


@mistake(
    "copy_ahead",
    "When the consumer leaves early, the loader is closed while a copy still reads its buffer. Wait for that copy "
    "first.",
)
def closes_under_a_copy(batches, copies):
    batches, ready = iter(batches), None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _close(batches)


@mistake(
    "copy_ahead",
    "The loader is left open when the consumer leaves early: its thread and its buffers live on. Close the iterator "
    "over `batches` in `finally`.",
)
def never_closes(batches, copies):
    ready = running = None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        if running:
            running.wait()


@mistake(
    "copy_ahead",
    "close() is asked of `batches`, but what runs is its iterator. Take that once, by iter(batches), and close it.",
)
def closes_the_iterable(batches, copies):
    ready = running = None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "When wait() fails in `finally`, close() is skipped and the loader stays open. Put that wait in a `try`, and "
    "close in the `finally` of it.",
)
def closes_if_the_wait_is_well(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        if running:
            running.wait()
        _close(batches)


@mistake(
    "copy_ahead",
    "close() is called on any iterable, and a list has none. Close the iterator if it has a close().",
)
def closes_anything(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        try:
            if running:
                running.wait()
        finally:
            batches.close()


@alternative("copy_ahead")
def with_a_queue(batches, copies):
    started = collections.deque()
    with contextlib.ExitStack() as stack:
        source = iter(batches)
        stack.callback(getattr(source, "close", lambda: None))
        stack.callback(lambda: [copy.wait() for copy in started])
        for batch in source:
            started.append(copies.start(batch))
            if len(started) == 2:
                yield started.popleft().tensors()
            started[0].wait()
        for copy in started:
            yield copy.tensors()


@alternative("copy_ahead")
def first_one_apart(batches, copies):
    source = iter(batches)
    current = None
    try:
        for batch in itertools.islice(source, 1):
            current = copies.start(batch)
            current.wait()
        while current is not None:
            batch = next(source, None)
            following = None if batch is None else copies.start(batch)
            try:
                tensors = current.tensors()
                current = None
                yield tensors
            finally:
                if following is not None:
                    following.wait()
            current = following
    finally:
        if callable(getattr(source, "close", None)):
            source.close()


def _copied(source, copies):
    """Each copy with the one after it, which is under way then."""
    before = None
    for batch in source:
        copy = copies.start(batch)
        try:
            if before is not None:
                yield before
        finally:
            copy.wait()
        before = copy
    if before is not None:
        yield before


@alternative("copy_ahead")
def inner_generator(batches, copies):
    source = iter(batches)
    inner = _copied(source, copies)
    try:
        for copy in inner:
            yield copy.tensors()
    finally:
        inner.close()
        if hasattr(source, "close"):
            source.close()
