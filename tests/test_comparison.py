"""The course's one way to compare, on simulated times: its error rates, its stopping, what it says."""

import itertools
import math
import random

import pytest
import torch

from course.errors import CourseError
from course.measure import comparison
from course.measure.comparison import (
    CHANGED,
    USUAL,
    Comparison,
    Interval,
    compare,
    compare_measured,
    difference_interval,
    product,
    ratio_interval,
    ratio_of_gains,
    signed_rank_interval,
)

pytestmark = pytest.mark.check


def machine(seed, slower=0.0):
    """A measure of the ways "a" and "b", with neighbouring times alike, as two cores showed (0.12 per log ratio)."""
    random.seed(seed)
    draws, drift = random.Random(seed), 0.0

    def measure(way):
        nonlocal drift
        drift = 0.9 * drift + draws.gauss(0, 0.05)
        return math.exp(drift + draws.gauss(0, 0.085)) * (1 + slower * (way == "b"))

    return measure


def test_of_equal_ways_3_to_8_percent_are_called_different_and_an_effect_of_10_percent_is_found():
    equal = [compare_measured(["a", "b"], machine(seed)).ratio("b").excludes(1) for seed in range(1000)]
    assert 0.03 <= sum(equal) / len(equal) <= 0.08
    unequal = [compare_measured(["a", "b"], machine(seed, 0.1)).ratio("b") for seed in range(1000)]
    assert sum(ratio.high < 1 for ratio in unequal) >= 950
    assert sum(ratio.low <= 1 / 1.1 <= ratio.high for ratio in unequal) >= 920


@pytest.mark.parametrize("n, left_out", [(5, None), (6, 0), (7, 2), (8, 3), (10, 8), (15, 25), (20, 52), (25, 89)])
def test_the_interval_leaves_out_as_many_means_as_the_tables_of_the_signed_rank_test(n, left_out):
    assert comparison.ranks_left_out(n) == left_out


def test_the_interval_of_a_few_differences_worked_by_hand():
    """Of 1 to 7 the means are 1, 1.5, 2, 2, 2.5, 2.5, …; two at either end lie outside."""
    assert signed_rank_interval([1, 2, 3, 4, 5, 6, 7]) == Interval(4.0, 2.0, 6.0)
    three = difference_interval([0.9, 0.8, 0.85], [0.7, 0.75, 0.8])
    assert three.estimate == pytest.approx(0.0875) and not three.excludes(0) and "fewer than 6 runs" in str(three)


def test_rounds_end_when_every_interval_is_narrow_or_rounds_or_time_are_over():
    steady = compare_measured(["a", "b"], lambda way: 1.0)
    assert (steady.rounds, steady.stopped) == (comparison.FEWEST_ROUNDS, comparison.NARROW)
    noisy = compare_measured(["a", "b"], machine(1), half_width=0.001, rounds=(7, 12))
    assert (noisy.rounds, noisy.stopped) == (12, comparison.ROUNDS_OVER)
    ticks = iter(range(10**6))
    late = compare_measured(["a", "b"], machine(1), half_width=0.001, seconds=9.5, clock=lambda: next(ticks))
    assert late.stopped == comparison.TIME_OVER and late.rounds == 16, "looked at 10 times, after the seventh round"


def test_of_too_few_rounds_the_interval_is_unknown_and_they_end_all_the_same():
    few = compare_measured(["a", "b"], lambda way: 1.0, rounds=(1, 3))
    assert (few.rounds, few.stopped) == (3, comparison.ROUNDS_OVER)
    assert "fewer than 6 runs" in str(few) and few.verdict("b") == comparison.NOT_DECIDED


def test_every_way_runs_once_per_round_in_an_order_that_changes_and_the_first_twice():
    calls = []
    random.seed(0)
    compare_measured(["a", "b", "c"], lambda way: calls.append(way) or 1.0)
    assert calls[:3] == ["a", "b", "c"], "not counted"
    rounds = [calls[i : i + 4] for i in range(3, len(calls), 4)]
    assert all(sorted(names) == ["a", "a", "b", "c"] for names in rounds) and len(set(map(tuple, rounds))) > 3


def test_each_round_may_draw_what_its_ways_work_on_and_the_interval_covers_the_draws():
    drawn, of_draw = [], {0: 1.0}
    random.seed(0)

    def draw(number):
        drawn.append(number)
        of_draw[0] = 1 + number % 3

    found = compare({"a": lambda: None, "b": lambda: None}, before_round=drawn.append, seconds=0.0, progress=False)
    assert drawn == list(range(found.rounds + 1))
    drawn.clear()
    varied = compare_measured(["a", "b"], lambda way: of_draw[0] if way == "b" else 1.0, before_round=draw, seconds=0.0)
    assert drawn == list(range(varied.rounds + 1))
    assert varied.control == Interval(1, 1, 1) and varied.ratio("b").high > 1.5 * varied.ratio("b").low


def test_what_it_says():
    found = compare_measured(["one worker", "two workers"], {"one worker": 2.0, "two workers": 1.0}.__getitem__)
    assert str(found).splitlines() == [
        "two workers  2.00 (2.00 to 2.00) times as fast as one worker: faster",
        "control: one worker against itself 1.00 (1.00 to 1.00)",
        "7 rounds, narrow enough",
    ]
    same = torch.ones(7, dtype=torch.float64)
    crooked = comparison.Comparison({"a": same, "b": same / 1.1}, Interval(0.83, 0.8, 0.9), comparison.NARROW)
    assert "not decided here" in str(crooked)


def test_two_ways_of_a_comparison_are_compared_with_each_other_and_seconds_agree_with_ratios():
    found = compare_measured(["four", "two", "one"], {"four": 4.0, "two": 2.0, "one": 1.0}.__getitem__)
    assert found.ratio("one", "two") == Interval(2.0, 2.0, 2.0) and found.verdict("two", "one") == comparison.SLOWER
    assert found.pair("two", "one").ratio("one") == found.ratio("one", "two")
    assert found.pair("two", "one").control == found.control
    assert [found.time(way).estimate for way in found.seconds] == [4.0, 2.0, 1.0]
    assert found.rate("two", 100) == Interval(50.0, 50.0, 50.0)
    uneven = torch.tensor([1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 4.0], dtype=torch.float64)
    wide = comparison.Comparison({"a": torch.full_like(uneven, 2.0), "b": uneven}, Interval(1, 1, 1), "")
    assert wide.time("b").low == 2.0 / wide.ratio("b").high and wide.rate("b", 2.0).high == wide.ratio("b").high


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (Interval(1.2, 1.01, 1.4), comparison.FASTER),
        (Interval(0.8, 0.7, 0.99), comparison.SLOWER),
        (Interval(1.0, 0.96, 1.04), comparison.SAME),
        (Interval(1.0, 0.96, 1.06), comparison.NOT_DECIDED),
    ],
)
def test_the_verdict_follows_from_the_interval(ratio, verdict):
    assert comparison.verdict_on(ratio) == verdict


def test_a_control_that_differs_from_1_widens_every_interval_by_as_much():
    seconds = {"a": torch.full((7,), 2.0), "b": torch.full((7,), 1.5)}
    sound = comparison.Comparison(seconds, Interval(1.0, 0.9, 1.1), comparison.NARROW)
    assert (sound.ratio("b").low, sound.verdict("b")) == (pytest.approx(4 / 3), comparison.FASTER)
    slower = comparison.Comparison(seconds, Interval(1.02, 1.01, 1.05), comparison.NARROW)
    assert slower.ratio("b").low == pytest.approx(4 / 3 / 1.02) and slower.verdict("b") == comparison.FASTER
    restless = comparison.Comparison(seconds, Interval(0.6, 0.5, 0.7), comparison.NARROW)
    assert restless.ratio("b").high == pytest.approx(4 / 3 / 0.6) and restless.verdict("b") == comparison.NOT_DECIDED


def test_an_interval_excludes_a_null_on_either_side_by_the_size_of_the_sentence():
    assert Interval(1.3, 1.2, 1.4).excludes(1, by=0.15) and not Interval(1.3, 1.2, 1.4).excludes(1, by=0.25)
    assert Interval(0.7, 0.6, 0.8).excludes(1) and not Interval(1.0, 0.9, 1.1).excludes(1)


def test_functions_are_run_and_one_alone_is_no_comparison():
    ran = []
    result = compare({"a": lambda: ran.append(1), "b": lambda: ran.append(2)}, progress=False, most_rounds=8)
    assert ran.count(1) == 2 * result.rounds + 1 and ran.count(2) == result.rounds + 1
    with pytest.raises(CourseError, match="a comparison needs two ways or more, found 1."):
        compare({"a": print})


def test_it_draws_a_row_per_way_and_the_control():
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    compare_measured(["slow", "fast"], {"slow": 2.0, "fast": 1.0}.__getitem__).draw(axes)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fast", comparison.CONTROL]
    assert "times as fast as slow" in axes.get_xlabel()


@pytest.mark.parametrize("workers, batches", [(0, 40), (1, 40), (3, 42), (4, 40), (16, 48), (64, 64)])
def test_a_steady_pass_is_a_multiple_of_the_workers(workers, batches, monkeypatch):
    monkeypatch.setenv("COURSE_SCALE", "laptop")
    assert comparison.steady_batches(workers) == batches


def test_a_product_adds_distances_in_squares():
    found = product(Interval(2.0, 2 / 1.3, 2 * 1.3), Interval(3.0, 3 / 1.4, 3 * 1.4))
    wide = math.exp(math.hypot(math.log(1.3), math.log(1.4)))
    assert (found.estimate, found.low, found.high) == pytest.approx((6, 6 / wide, 6 * wide))
    certain = product(Interval(1.0, 1.0, 1.0), Interval(3.0, 2.0, 4.0))
    assert (certain.low, certain.high) == pytest.approx((2, 4))
    assert product(Interval(1.0, 0.0, math.inf), Interval(3.0, 2.0, 4.0)).low == 0


def test_the_interval_of_a_product_holds_the_truth_in_95_of_100():
    rng = torch.Generator().manual_seed(0)
    held = 0
    for _ in range(400):
        a, b = torch.randn(2, 12, generator=rng, dtype=torch.float64).mul(0.1).exp()
        ones = torch.ones(12, dtype=torch.float64)
        found = product(ratio_interval(a, ones), ratio_interval(b, ones))
        held += found.low <= 1 <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_times_of_zero_leave_an_interval_unknown_and_raise_nothing():
    numbers = [0.0, 0.5, 2.0, math.inf]
    known = Interval(1.1, 1.0, 1.2)
    for low, estimate, high in itertools.combinations_with_replacement(numbers, 3):
        odd = Interval(estimate, low, high)
        for first, second in ((odd, known), (known, odd), (odd, odd)):
            quotient = comparison.quotient(first, second)
            product = comparison.product(first, second.inverted())
            if low == 0 or math.isinf(high):
                assert not quotient.is_known and (product.low == 0 or math.isinf(product.high))
    zeros = torch.zeros(8, dtype=torch.float64)
    for numerators, denominators in ((zeros, 1 + zeros), (1 + zeros, zeros), (zeros, zeros)):
        assert not comparison.quotient(comparison.ratio_interval(numerators, denominators), known).is_known


def test_a_ratio_of_gains_is_the_quotient_of_the_two_ratios_although_one_pair_has_more_rounds():
    def pair(gain, rounds):
        seconds = {USUAL: torch.full((rounds,), gain, dtype=torch.float64), CHANGED: torch.ones(rounds).double()}
        return Comparison(seconds, Interval(1.0, 1.0, 1.0), "narrow enough")

    found = ratio_of_gains(pair(3.0, 7), pair(1.5, 61))
    assert (found.estimate, found.low, found.high) == pytest.approx((2, 2, 2))
