"""Probe of exercise data_parallel_messages."""

from course.checks.engine import exercise


@exercise()
def data_parallel_messages(answer, device, seed):
    """The counts of steps, also where they are large."""
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
    yield "a single device: nothing crosses", answer(1, 40, 24, 8)
