"""The loop's waiting is timed apart from the dropping of batches."""

import torch

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


def test_the_round_that_starts_workers_is_not_kept(monkeypatch):
    shares = iter([0.9, 0.25, 0.5])
    monkeypatch.setattr(feeding, "waiting", lambda batches, step: feeding.Waiting(2.0, next(shares)))
    found = feeding.waiting_in_rounds({"a way": []}, step=None, rounds=2)
    assert found.share == {"a way": [25.0, 50.0]} and found.first == {"a way": 2.0}
    shares = iter([0.9, 0.25, 0.5])
    monkeypatch.setattr(feeding, "idle_share", lambda batches, step: next(shares))
    assert feeding.idle_in_rounds({"a way": []}, step=None, rounds=2) == {"a way": [25.0, 50.0]}


def test_the_way_that_idles_least_is_named_and_compared():
    idle = {"a": [50.0] * 6, "b": [30.0] * 6}
    assert feeding.least_idle(idle) == "b"
    assert feeding.less_idle(idle, "b", than="a").estimate == 20
    assert feeding.least_idle({}) is None and feeding.less_idle({}, "b", than="a") is None
    cpu = torch.device("cpu")
    assert feeding.ways_to_feed([torch.zeros(1)], 1, cpu, move=None, prefetch=None) == {}


def test_without_a_gpu_nothing_is_copied():
    copies = feeding.compare_copies(8, torch.device("cpu"), 1.0)
    assert str(copies) == feeding.NO_GPU and copies.pinned_ratio is None and copies.returns == {}
