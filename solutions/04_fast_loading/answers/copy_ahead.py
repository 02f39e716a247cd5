"""Known mistakes of exercise copy_ahead, and right answers in other styles."""

import collections
import contextlib
import itertools

from course.engine.known_answers import alternative

START = "running = copies.start(batch)"
LOOP_WAITS = "running.wait()  # asked for more, the loader refills what this copy reads"
EACH = "            if ready:\n                yield ready.tensors()\n"
LAST = "        if ready:\n            yield ready.tensors()\n"
MISTAKES = {
    "never_waits": (
        "You wait for no copy, so the loader refills a buffer while it is read, and batches hold rows of the next "
        "one. Call wait() of a copy before you ask the loader for more.",
        (LOOP_WAITS, "pass"),
    ),
    "waits_for_the_older": (
        "You wait for the older of two copies, the one that was yielded. The newer one reads the buffer that is "
        "about to be refilled: wait for that.",
        (LOOP_WAITS, "if ready:\n                ready.wait()"),
    ),
    "waits_after_asking": (
        "wait() is at the top of the loop: by then the loader has been asked for the batch of this turn, and has "
        "refilled the buffer. Wait at the end of the loop, before the `for` asks again.",
        (LOOP_WAITS, "pass"),
        (START, "if ready:\n                ready.wait()\n            " + START),
    ),
    "waits_at_once": (
        "wait() comes right after start(), so nothing runs during the copy. Yield the previous batch first, and wait "
        "when the consumer comes back.",
        (LOOP_WAITS, "pass"),
        (START, START + "\n            running.wait()"),
    ),
    "one_at_a_time": (
        "A copy is started and its own batch is yielded, so no copy runs while the consumer computes. Start the "
        "copy of the next batch before you yield this one.",
        (EACH, "            yield running.tensors()\n"),
        (LAST, ""),
    ),
    "tensors_too_early": (
        "tensors() is called as soon as the copy is started, so the step on the batch before it waits for this "
        "copy, too. Call tensors() when you yield that batch.",
        (START, START + "\n            tensors = running.tensors()"),
        ("ready = running\n", "ready = tensors\n"),
        (EACH, "            if ready:\n                yield ready\n"),
        ("yield ready.tensors()", "yield ready"),
    ),
    "last_one_lost": (
        "The last batch is missing: when the loader is at its end, one copy has not been yielded yet.",
        (LAST, ""),
    ),
    "all_copies_first": (
        "All copies are made before the first batch is yielded, so the device would have to hold all data. Keep two.",
        ("ready = running = None", "running, started = None, []"),
        (EACH, ""),
        ("ready = running\n", "started.append(running)\n"),
        ("        if ready:", "        for ready in started:"),
    ),
    "keeps_every_copy": (
        "The copies that were yielded are kept, so the device's memory fills up. Drop each when the next is yielded.",
        ("ready = running = None", "ready, running, started = None, None, []"),
        ("ready = running\n", "ready = running\n            started.append(running)\n"),
    ),
    "handles": (
        "The copies themselves are yielded. The consumer computes on tensors: yield what tensors() returns.",
        (EACH, "            if ready:\n                yield ready\n"),
        ("yield ready.tensors()", "yield ready"),
    ),
}


@alternative
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


@alternative
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


@alternative
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
