"""Memory that workers copy is a share of what they read, beyond a null."""

import pytest

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
