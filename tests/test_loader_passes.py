"""Numbers of workers compared by passes, on a clock that the test moves: ratios, CPU time, figures."""

import math
import re

import pytest
import torch

from course.loading import loader_passes
from course.loading.loader_passes import WorkerComparison, batches_for, compare_workers
from course.loading.loaders import forked
from course.measure import comparison
from course.measure.comparison import Comparison, Interval, compare_measured
from course.plots import parallel_loading as plots

pytestmark = pytest.mark.check


def compared(times, cpu):
    """The WorkerComparison of constant seconds and CPU seconds of the ways."""
    passes = compare_measured(list(times), times.__getitem__)
    used = {way: torch.full((passes.rounds,), cpu[way], dtype=torch.float64) for way in times}
    return WorkerComparison(passes, used, n_items=1000)


def test_the_speed_up_is_parallelism_divided_by_overhead():
    case = compared({"0 workers": 3.0, "2 workers": 2.0}, {"0 workers": 3.0, "2 workers": 3.6})
    assert case.ratio(2).estimate == pytest.approx(1.5)
    assert case.parallelism(2).estimate == pytest.approx(1.8) and case.overhead(2).estimate == pytest.approx(1.2)
    assert case.extra_ms(2).estimate == pytest.approx(0.6)
    said = (
        "speed-up 1.50 = parallelism 1.80 (1.80 to 1.80) ÷ overhead 1.20 (1.20 to 1.20), +0.60 ms of CPU time per image"
    )
    assert case.breakdown(2) == said and str(case) == str(case.passes)


def test_no_parallelism_is_said_where_the_clock_of_cpu_time_is_too_coarse():
    case = compared({"0 workers": 3.0, "2 workers": 2.0}, {"0 workers": 0.0, "2 workers": 3.6})
    assert case.breakdown(2) == f"speed-up 1.50: {loader_passes.TOO_SHORT}"


@pytest.mark.parametrize("workers, n", [([0], 40), ([0, 1, 2], 40), ([0, 3], 42), ([0, 3, 4, 8], 48)])
def test_a_pass_has_a_multiple_of_every_number_of_workers_as_batches(workers, n, monkeypatch):
    monkeypatch.setenv("COURSE_SCALE", "laptop")
    assert batches_for(workers) == n


def test_each_way_draws_the_same_batches_and_its_cpu_time_is_that_of_the_same_passes(monkeypatch):
    clock = {"cpu": 0.0, "pass": 0}
    drawn = []
    monkeypatch.setattr(loader_passes.usage, "cpu_seconds", lambda: clock["cpu"])

    def seconds_per_pass(loader, n_batches, repeats, warmup, synchronize):
        assert (n_batches, repeats, warmup, synchronize) == (8, 1, 0, None)
        drawn.append((loader.num_workers, len(loader)))
        clock["pass"] += 1
        clock["cpu"] += 10 * clock["pass"]
        return torch.tensor([float(clock["pass"])], dtype=torch.float64)

    limits = dict(rounds=(6, 6), half_width=9.0, progress=False)
    case = compare_workers(list(range(7)), 3, [0, 2], seconds_per_pass, **limits)
    assert set(drawn) == {(0, 8), (2, 8)} and case.n_items == 24
    for way, seconds in case.passes.seconds.items():
        assert case.cpu_seconds[way].tolist() == [10 * taken for taken in seconds.tolist()]


def test_a_step_sees_every_batch_before_the_next_is_drawn():
    events = []

    def drawn():
        for i in range(3):
            events.append(f"draw {i}")
            yield i

    assert list(loader_passes.Trained(drawn(), lambda batch: events.append(f"step {batch}"))) == [0, 1, 2]
    assert events == ["draw 0", "step 0", "draw 1", "step 1", "draw 2", "step 2"]


def test_a_batch_is_stacked_where_a_worker_stacks_it():
    items = [torch.zeros(3), torch.ones(3)]
    batch = loader_passes.collate_as_a_worker(items)
    assert batch.is_shared() and torch.equal(batch, torch.stack(items))
    assert not loader_passes.default_collate(items).is_shared()


def test_all_ways_make_their_batches_by_the_given_function():
    drawn = []

    def seconds_per_pass(loader, n_batches, repeats, warmup, synchronize):
        drawn.append((loader.num_workers, next(iter(loader))))
        return torch.ones(1, dtype=torch.float64)

    limits = dict(rounds=(1, 1), half_width=9.0, progress=False)
    compare_workers(list(range(7)), 3, [0, 2], seconds_per_pass, collate_fn=sum, **limits)
    assert set(drawn) == {(0, 3), (2, 3)}


def test_items_come_again_where_there_are_too_few(monkeypatch):
    repeated = loader_passes.Repeated([10, 11, 12], 5)
    assert [batch.tolist() for batch in forked(repeated, 2)] == [[10, 11], [12, 10], [11]]
    slept = []
    monkeypatch.setattr(loader_passes.time, "sleep", slept.append)
    assert list(map(loader_passes.Sleeping(3, 0.01).__getitem__, range(3))) == [0, 1, 2] and slept == [0.01] * 3


def test_the_interval_of_a_quotient_is_wider_than_both_and_unknown_if_one_is():
    wide, narrow = Interval(2.0, 2 / 1.3, 2 * 1.3), Interval(0.5, 0.5 / 1.1, 0.5 * 1.1)
    found = comparison.quotient(wide, narrow)
    assert found.estimate == 4.0 and found.high / 4 == pytest.approx(math.exp(math.hypot(math.log(1.3), math.log(1.1))))
    assert not math.isfinite(comparison.quotient(wide, Interval(1.0, 0.0, math.inf)).high)


def test_half_the_width_takes_four_times_the_rounds():
    logarithms = torch.tensor([-0.1, -0.08, -0.02, 0.0, 0.02, 0.08, 0.1] * 3, dtype=torch.float64)
    seconds = {"a": torch.ones(21, dtype=torch.float64), "b": torch.exp(-logarithms)}
    calm = Interval(1.0, 0.9, 1.1)
    passes = Comparison(seconds, calm, comparison.NARROW)
    width = math.log(passes.ratio("b").high / passes.ratio("b").low) / 2
    assert passes.rounds_for("b", 2 * width) == 21 and passes.rounds_for("b", width) == 84
    assert passes.rounds_for("b", 1.0) == comparison.FEWEST_ROUNDS
    few = Comparison({way: taken[:3] for way, taken in seconds.items()}, calm, comparison.ROUNDS_OVER)
    assert few.rounds_for("b", 0.1) == comparison.MOST_ROUNDS, "the interval of three rounds is unknown"


def test_the_title_of_a_figure_has_the_numbers_that_it_draws():
    plain = compared(
        {"0 workers": 3.0, "1 worker": 4.0, "2 workers": 2.0}, {"0 workers": 1, "1 worker": 1, "2 workers": 1}
    )
    heavy = compared({"0 workers": 9.0, "2 workers": 5.0}, {"0 workers": 1, "2 workers": 1})
    figure = plots.speedups({"ToTensor": plain, "heavy": heavy})
    drawn = []
    for ax in figure.axes:
        named = [label.get_text() for label in ax.get_yticklabels()]
        points = [line.get_xdata() for line in ax.lines if line.get_marker() == "o"]
        (place,) = points[named.index("2 workers")]
        drawn.append(float(place))
    title = [float(number) for number in re.findall(r"\d+\.\d+", figure.get_suptitle())]
    assert title == [round(number, 2) for number in drawn] == [1.5, 1.8]
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()


def test_points_of_whole_rounds_lie_on_the_line():
    batches = {"12 batches": 12, "10 batches": 10, "8 batches": 8}
    slept = compare_measured(list(batches), {"12 batches": 0.03, "10 batches": 0.03, "8 batches": 0.02}.__getitem__)
    ax = plots.rounds_of_workers(slept, batches, workers=4, ms=10).axes[0]
    line, *points = ax.lines
    expected = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
    for point in points:
        (n,), (ms,) = point.get_xdata(), point.get_ydata()
        assert ms == pytest.approx(expected[n])


def test_a_forecast_pairs_the_costs_and_the_passes_of_a_round(monkeypatch):
    costs = iter(loader_passes.WorkerCosts(cpu=0.1, wall=0.1 * k, main=0.01) for k in range(1, 99))
    monkeypatch.setattr(
        loader_passes, "OneWorker", lambda data, batch_size: type("One", (), {"costs": lambda self: next(costs)})()
    )
    monkeypatch.setattr(loader_passes, "effective_cores", lambda data, rounds, seconds: 1.5)

    def seconds_per_pass(loader, n_batches, repeats, warmup):
        assert n_batches == len(loader) == 8
        return torch.tensor([8.0 if loader.num_workers == 0 else 4.0], dtype=torch.float64)

    limits = dict(rounds=(6, 6), half_width=9.0, progress=False)
    one = loader_passes.forecast([1, 2], 3, [0, 2], seconds_per_pass, [1], 0.1, **limits)
    assert [cost.wall for cost in one.costs] == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6, 0.7]) and one.cores == [1.5] * 6
    assert one.ms(1).tolist() == pytest.approx([200, 300, 400, 500, 600, 700]), "the first pass is not counted"
    assert one.interval_ms(2).estimate == pytest.approx(500)
    assert one.measured_over(torch.full((6,), 400.0, dtype=torch.float64), 2).estimate == pytest.approx(1.25)


def test_a_checked_forecast_compares_the_formula_with_each_number_that_was_held_out(monkeypatch):
    seconds = {"0 workers": 8.0, "1 worker": 6.0, "2 workers": 4.0}
    passes = compare_measured(list(seconds), seconds.__getitem__)
    costs = [loader_passes.WorkerCosts(cpu=0.8, wall=0.8, main=0.0)] * passes.rounds
    found = loader_passes.Forecast(passes, costs, [2.0] * passes.rounds, n_batches=8, others=0.0)
    monkeypatch.setattr(loader_passes, "forecast", lambda *arguments, **limits: found)

    def predict_seconds(workers, a, c, cores):
        return a / torch.tensor(workers, dtype=torch.float64)

    checked = loader_passes.checked_forecast(
        [1], 1, [2], seconds_per_pass=None, predict_seconds=predict_seconds, computed=[1], cores_seconds=0.1
    )
    assert checked.predicted == pytest.approx({1: 800, 2: 400})
    assert checked.missed[2].estimate == pytest.approx(1.25) and checked.furthest_miss().estimate == pytest.approx(1.25)
    assert checked.measured[0].estimate == pytest.approx(1000) and checked.measured[2].estimate == pytest.approx(500)
    assert checked.fastest([0, 1, 2]) == 2 and checked.times_as_long(0, 2).estimate == pytest.approx(2)
    assert "2 workers 1.25" in str(checked)


def test_passes_of_different_lengths_are_timed_over_their_own_batches():
    asked = []

    def seconds_per_pass(loader, n_batches, repeats, warmup):
        asked.append((len(loader), n_batches, loader.num_workers))
        return torch.tensor([float(n_batches)], dtype=torch.float64)

    batches = {"4 batches": 4, "6 batches": 6}
    slept = loader_passes.compare_lengths(batches, 0.0, 2, seconds_per_pass, rounds=(6, 6))
    assert set(asked) == {(4, 4, 2), (6, 6, 2)} and slept.ratio("6 batches").estimate == pytest.approx(4 / 6)
