"""Contests of schedules: what they set, who is ahead, and what small studies find."""

import pytest
import torch

from course.training import contest
from course.training.contest import Contest

pytestmark = pytest.mark.check


def test_schedules_have_one_entry_per_step_and_start_and_end_where_they_should():
    for name, make in contest.SCHEDULES.items():
        assert len(make(0.1, 120)) == 120, name
    assert contest.linear(0.5, 4) == [(0.5, 0.9), (0.375, 0.9), (0.25, 0.9), (0.125, 0.9)]
    held = contest.stable_then_decay(0.1, 10)
    assert [lr for lr, _ in held] == [0.1] * 9 + [0.05]
    rates = [lr for lr, _ in contest.cyclic(0.1, 60)]
    assert max(rates) == rates[10] == pytest.approx(0.1) and rates[30] == pytest.approx(0.01 + 0.09 / 2)


def test_one_cycle_and_the_defaults_of_torch_are_two_schedules():
    rates, momenta = zip(*contest.one_cycle(0.1, 200), strict=True)
    assert max(rates) == pytest.approx(0.1) and rates[0] == pytest.approx(0.01) and rates[-1] == pytest.approx(1e-6)
    assert max(range(200), key=rates.__getitem__) == 89 and min(momenta) == pytest.approx(0.85)
    defaults = [lr for lr, _ in contest.torch_default(0.1, 200)]
    assert max(range(200), key=defaults.__getitem__) == 59 and defaults[0] == pytest.approx(0.004)


def _contest(rows):
    """A Contest of "a" and "b", whose accuracies are the same at both peaks."""
    tables = {}
    for name, column in zip("ab", zip(*rows, strict=True), strict=True):
        tables[name] = torch.tensor([[value, value] for value in column], dtype=torch.float64)
    return Contest((0.1, 0.2), tables)


def test_each_contestant_counts_with_its_own_best_peak():
    tables = {"a": torch.tensor([[0.5, 0.7]] * 6), "b": torch.tensor([[0.6, 0.2]] * 6)}
    whole = Contest((0.1, 0.2), tables)
    assert (whole.best_peak("a"), whole.best_peak("b")) == (0.2, 0.1)
    ahead = whole.ahead("a", "b")
    assert ahead.estimate == pytest.approx(10, abs=1e-3) and ahead.excludes(0)


def test_small_studies_find_one_sign_although_the_whole_finds_none():
    whole = _contest([(0.51, 0.5)] * 3 + [(0.5, 0.51)] * 3)
    found = contest.small_studies(whole, "a", "b")
    assert len(found.gains) == 20 and (found.first_wins, found.second_wins) == (1, 1)
    assert found.share_of_wins == 0.1 and not whole.ahead("a", "b").excludes(0)


def test_all_are_trained_with_the_same_seeds_and_peaks():
    calls = []

    def train(schedule, seed):
        calls.append((schedule[0][0], len(schedule), seed))
        return seed + schedule[0][0]

    few = {name: contest.SCHEDULES[name] for name in ("constant", "linear")}
    whole = contest.contest(train, few, (0.1, 0.2), (1, 2, 3), 5)
    assert whole.accuracies["linear"].tolist() == whole.accuracies["constant"].tolist()
    assert whole.accuracies["linear"][2, 1].item() == pytest.approx(3.2)
    assert len(calls) == 12 and {n for _, n, _ in calls} == {5}


def test_half_the_difference_takes_four_times_the_seeds_and_six_are_the_least():
    assert (contest.seeds_to_see(0.5, 1.5), contest.seeds_to_see(0.25, 1.5)) == (36, 144)
    assert contest.seeds_to_see(100, 1.5) == 6


def test_steps_needed_lie_between_two_lengths():
    reached = {50: 0.5, 100: 0.7, 200: 0.8}
    assert contest.steps_needed(reached, 0.7) == pytest.approx(100)
    assert contest.steps_needed(reached, 0.6) == pytest.approx(50 * 2**0.5)
    assert contest.steps_needed(reached, 0.9) == pytest.approx(200)


def test_a_budget_ends_where_more_is_saved_for_backward():
    weight = torch.ones(4, requires_grad=True)
    with contest.activation_budget(16):
        (torch.ones(4) * weight).sum()
    with pytest.raises(torch.OutOfMemoryError), contest.activation_budget(15):
        (torch.ones(4) * weight).sum()


def test_the_spread_of_paired_differences_is_in_points():
    assert contest.paired_spread([0.52, 0.54, 0.56], [0.5, 0.5, 0.5]) == pytest.approx(2)
