"""The loop's waiting is timed apart from the dropping of batches."""

from course.loading import feeding


class _Slow:
    """A batch that takes `seconds` on the clock to make, and to drop."""

    def __init__(self, clock, seconds, to_drop):
        clock[0] += seconds
        self.clock = clock
        self.to_drop = to_drop

    def __del__(self):
        self.clock[0] += self.to_drop


def test_dropping_a_batch_is_not_waiting(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(feeding.time, "perf_counter", lambda: clock[0])

    def step(batch):
        clock[0] += 5

    found = feeding.waiting((_Slow(clock, 1, 2) for _ in range(3)), step)
    # after the first batch: three steps, two batches waited for, three dropped
    assert found.first == 1
    assert found.share == 2 / 23
    assert found.dropping == 6 / 23
