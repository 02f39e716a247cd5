"""Probe of exercise data_parallel_messages."""

from course.checks.engine import exercise

# Of a layer of 5 x 4 weights without bias, two rows per device: counted from messages that were really sent.
COUNTED = {2: (6, 3, 152, 4, 2, 120), 3: (9, 6, 304, 6, 4, 240), 4: (12, 9, 456, 8, 6, 360),
           5: (15, 12, 608, 10, 8, 480), 8: (24, 21, 1064, 16, 14, 840)}  # fmt: skip
KEYS = [f"{way}_{what}" for way in ("forward", "backward") for what in ("messages", "crossing", "bytes")]


@exercise()
def data_parallel_messages(answer, device, seed):
    """The counts of steps, some of which were counted."""
    n = 3 + seed % 3
    counts = answer(n, 100_123 + seed, 3_127 * n, 5_391 * n)  # many digits, so that a wrong number tells its cause
    yield "returns a dict", type(counts).__name__
    yield "its keys", sorted(counts)
    yield "its values are int", sorted({type(value).__name__ for value in counts.values()})
    yield "messages of the forward", counts["forward_messages"]
    yield "those of the forward that leave their device", counts["forward_crossing"]
    yield "bytes that cross in the forward", counts["forward_bytes"]
    large = answer(8, 10**17 + 1, 8 * (10**17 + 3), 8)
    yield "large numbers stay exact in the forward", large["forward_bytes"]
    yield "messages of the backward", counts["backward_messages"]
    yield "those of the backward that leave their device", counts["backward_crossing"]
    yield "bytes that cross in the backward", counts["backward_bytes"]
    yield "large numbers stay exact in the backward", large["backward_bytes"]
    for devices in (n, 2, 8):
        counted = dict(zip(KEYS, COUNTED[devices], strict=True))
        seen = answer(devices, 5 * 4 * 4, devices * 2 * 4 * 4, devices * 2 * 5 * 4)
        yield f"{devices} devices, as messages are counted", seen == counted
    yield "a single device: nothing crosses", answer(1, 40, 24, 8)
