"""Memory that workers copy is a share of what they read, beyond a null."""

import pytest
import torch

from course.loading import worker_costs


def test_growth_is_counted_beyond_the_null_as_a_share_of_the_size():
    share = worker_costs.copied_share([50.0, 52.0], [-2.0, 0.0], 100.0)
    assert (share.estimate, share.low, share.high) == pytest.approx((0.52, 0.5, 0.54))


def test_a_list_that_does_not_grow_is_not_copied_whatever_the_null_is():
    share = worker_costs.copied_share([0.0, 0.1], [-2.8, -1.6], 30.0)
    assert share.excludes(0.5)
    assert share.high < 0.5


def test_what_was_not_counted_has_no_share():
    assert worker_costs.copied_share(None, [0.0], 1.0) is None


def test_names_that_are_not_read_are_not_touched():
    assert worker_costs.Named([None], reads=False)[0] == 0


def test_a_queue_counts_a_batch_from_when_it_is_made_and_those_before_it_are_to_when_the_loop_takes_it(monkeypatch):
    clock = [10.0]
    monkeypatch.setattr(worker_costs.time, "perf_counter", lambda: clock[0])

    def sleep(seconds):
        clock[0] += seconds

    monkeypatch.setattr(worker_costs.time, "sleep", sleep)

    def loader():
        clock[0] = 14.0
        yield torch.tensor([12.0, 14.0])
        yield torch.tensor([13.0, 11.0])  # made before the first one
        clock[0] = 20.0
        yield torch.tensor([20.0, 19.0])

    queue = worker_costs.queue_of(loader(), step_seconds=2.0)
    assert queue.moments == [4.0, 4.0, 4.0, 6.0, 10.0, 10.0]
    assert queue.depths == [-1, 0, 1, 0, -1, 0]
    assert queue.empty_share() == pytest.approx(4 / 6)
