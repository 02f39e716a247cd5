"""Figures of comparisons: their titles and points are the ratios of the Comparison."""

import math
from types import SimpleNamespace

import pytest
import torch

from course.loading.loader_passes import CheckedForecast
from course.loading.recorded_epochs import Gain
from course.measure import yardsticks
from course.measure.comparison import FASTER, NARROW, NOT_MEASURED, SAME, SLOWER, Comparison, Interval
from course.parallel.lives import Life
from course.plots import batch_grouping, data_parallel, fast_loading, faster_training, large_batch, parallel_loading
from course.plots.style import BLUE, GREEN, RED, middle_and_reach
from course.training import ladder
from course.training.race import Worth

pytestmark = pytest.mark.check

SOUND = Interval(1.0, 0.98, 1.02)


def compared(**seconds):
    """A Comparison of ways that took the same seconds in each of seven rounds."""
    rounds = {way: torch.full((7,), value, dtype=torch.float64) for way, value in seconds.items()}
    return Comparison(rounds, SOUND, NARROW)


def dots(ax):
    """{(x, y): colour} of the single points of an axes."""
    lines = [line for line in ax.lines if line.get_marker() == "o" and len(line.get_xdata()) == 1]
    return {(float(line.get_xdata()[0]), float(line.get_ydata()[0])): line.get_color() for line in lines}


def test_each_advice_has_the_ratio_of_its_comparison_in_the_colour_of_its_verdict():
    rows = {
        "faster": compared(a=2.0, b=1.0),
        "slower": compared(a=1.0, b=2.0),
        "equal": compared(a=1.0, b=1.0),
        "absent": "needs CUDA",
    }
    figure = faster_training.advice_ratios(rows, "times as fast")
    (ax,) = figure.axes
    assert dots(ax) == {(2.0, 0.0): GREEN, (0.5, 1.0): RED, (1.0, 2.0): BLUE}
    assert NOT_MEASURED in [text.get_text() for text in ax.texts]
    assert figure.get_suptitle() == "1 of 3 are faster, 1 slower"


def test_a_rung_is_compared_with_the_one_before_it_and_what_cannot_be_measured_says_why():
    seconds = {ladder.BASELINE: 8.0, "one": 4.0, "two": 1.0}
    rungs = {name: type("Rung", (), {"reason": ""}) for name in (ladder.BASELINE, ladder.CONTROL, "one", "two")}
    rungs["three"] = type("Rung", (), {"reason": "it compiles for too long"})
    found = ladder.compared(rungs, compared(**seconds))
    assert list(found) == ["one", "two", "three"] and found["three"] == "it compiles for too long"
    assert (found["one"].ratio("one").estimate, found["two"].ratio("two").estimate) == (2.0, 4.0)


def test_the_two_baselines_take_turns_so_that_all_rungs_make_as_many_steps():
    class Rung:
        reason = ""
        done = 0

        def steps(self, n):
            self.done += n
            return float(n)

    rungs = {name: Rung() for name in (ladder.BASELINE, ladder.CONTROL, ladder.FUSED)}
    found = ladder.timed(rungs, 5, progress=False)
    assert {rung.done for rung in rungs.values()} == {5 * (1 + found.rounds)}
    assert found.median(ladder.BASELINE) == 1.0 and list(found.seconds) == [ladder.BASELINE, ladder.FUSED]


def _worth(name, times, by_design=False):
    ratio = Interval(times, times / 1.05, times * 1.05)
    certain = Interval(1.0, 1.0, 1.0)
    return Worth(name, certain if by_design else ratio, certain, Interval(1.0, 0.99, 1.01), by_design)


def test_pieces_are_ranked_and_counted_by_their_verdicts():
    rows = [_worth("a", 0.8), _worth("b", 1.5), _worth("c", 1.0, by_design=True), _worth("d", 1.2)]
    figure = faster_training.left_out(rows)
    assert figure.get_suptitle().startswith("2 of 4 pieces save time, 1 cost time")
    images, cost, together = figure.axes
    assert [label.get_text() for label in images.get_yticklabels()] == ["b", "d", "c", "a"]
    colors = [line.get_color() for line in together.lines if line.get_marker() == "o" and len(line.get_xdata())]
    green, red, blue = (faster_training.VERDICT_COLORS[verdict] for verdict in (FASTER, SLOWER, SAME))
    assert colors == [green, green, blue, red]


def test_the_board_is_titled_by_its_first_row_and_verdict():
    rows = [_worth("mine 2", 1.5), _worth("mine 1", 1.0), _worth("everything again", 1.0, by_design=True)]
    title = faster_training.leaderboard(rows).get_suptitle()
    assert title == "mine 2: 1.50 (1.43 to 1.58) times as fast as everything, faster"


def test_the_race_is_titled_by_its_two_ratios():
    looks = [(0, 0.0, 0.1), (100, 1.0, 0.9)]
    runs = [SimpleNamespace(name=name, images=80.0, seconds=0.8, looks=looks) for name in ("plain", "everything")]
    runs.append(SimpleNamespace(name="mine", images=math.inf, seconds=math.inf, looks=looks))
    figure = faster_training.race(runs, 0.8, Interval(1.1, 1.0, 1.2), Interval(7.0, 6.0, 8.0))
    titles = [ax.get_title() for ax in figure.axes]
    assert titles[0] == "plain needs 1.10 (1.00 to 1.20) times the images"
    assert titles[1] == "plain needs 7.00 (6.00 to 8.00) times the seconds"


def test_memory_and_time_are_titled_by_the_segments_that_keep_least():
    longer = {k: Interval(k / 2, k / 2 - 0.1, k / 2 + 0.1) for k in (1, 2, 4)}
    sizes = {1: 3e6, 2: 1e6, 4: 2e6}
    figure = faster_training.memory_and_time(sizes, sizes, 2e6, longer, Interval(1.3, 1.2, 1.4))
    assert figure.axes[1].get_title() == "2 segments: 1.00 (0.90 to 1.10) times as long"


def test_loaders_are_bars_and_yardsticks_lines_by_their_names():
    found = compared(**{yardsticks.MEMCPY: 1.0, "ours": 2.0})
    (ax,) = fast_loading.epoch_times(found, 4 * 10**9, "title").axes
    assert [bar.get_width() for bar in ax.patches] == [2.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["ours"]
    assert ax.get_legend().get_texts()[0].get_text() == yardsticks.MEMCPY


def test_the_gain_of_reading_ahead_is_told_per_kind_of_step():
    computing = [Gain(0.5, Interval(1.2, 1.1, 1.3), 1.5), Gain(1.0, Interval(1.3, 1.2, 1.4), 1.9)]
    waiting = [Gain(1.0, Interval(1.8, 1.7, 1.9), 1.9)]
    title = fast_loading.pipeline_gain({"computing": computing, "waiting": waiting}).get_suptitle()
    gains = "computing 1.30 (predicted 1.90), waiting 1.80 (predicted 1.90)"
    assert title == f"Gain where a step takes about a fill: {gains}"


def test_rates_are_printed_beside_the_ratio(capsys):
    yardsticks.show_rates(compared(copy=2.0, ours=1.0), 2 * 10**9)
    first, second = capsys.readouterr().out.splitlines()
    assert first.split()[-4:] == ["2000.0", "ms", "1", "GB/s"]
    assert second.endswith("2 GB/s  2.00 (2.00 to 2.00) of copy")


@pytest.mark.parametrize(
    ("seconds", "title"),
    [
        ((2.0, 4.0, 1.0), "2 workers: 2.00 (2.00 to 2.00) times as fast as none"),
        ((1.0, 2.0, 1.0), "No number of workers is proven to be faster than none"),
    ],
)
def test_the_best_number_of_workers_is_one_that_is_proven_to_be_faster(seconds, title):
    found = compared(**dict(zip("abc", seconds, strict=True)))
    (ax,) = parallel_loading.worker_plot([0, 1, 2], found).axes
    assert ax.get_title() == title


def test_seconds_that_differ_by_orders_of_magnitude_can_be_read():
    (ax,) = parallel_loading.seconds(compared(fork=0.1, spawn=2.5, kept=0.004), "title").axes
    assert [text.get_text() for text in ax.texts] == ["100 ms", "2,500 ms", "4.0 ms"]
    assert ax.get_xscale() == "log" and ax.get_xlim()[1] > 2500


def test_predictions_and_bars_stand_beside_intervals():
    measured = {0: Interval(4.0, 3.9, 4.1), 2: Interval(1.0, 0.9, 1.1)}
    missed = {2: Interval(0.8, 0.72, 0.88)}
    case = CheckedForecast(None, predicted={1: 2.0, 2: 1.25}, measured=measured, missed=missed)
    (ax,) = parallel_loading.predicted_workers({"plain": case}, 8).axes[:1]
    assert ax.get_title() == "plain: 0.72 to 0.88 times the prediction"
    (ax,) = parallel_loading.bars({"a": [1.0, 2.0, 3.0], "b": [10.0] * 3}, "the time", "title").axes
    assert [text.get_text() for text in ax.texts] == ["2 %", "10 %"] and ax.get_xlabel().startswith("% of the time")
    assert parallel_loading.bars({}, "the time", "title") is None


def test_ranks_are_drawn_by_their_ratios():
    found = compared(torch=1.0, naive=1.5)
    (ax,) = data_parallel.step_ratios(found, "title").axes
    assert dots(ax).keys() == {(1.5, 0.0)} and ax.get_xlabel() == "step time / that of torch"
    speedups = [Interval(1.0, 1.0, 1.0), Interval(1.6, 1.5, 1.7)]
    lost = {2: {"a small batch": Interval(0.05, 0.0, 0.1), "sending": Interval(0.1, 0.1, 0.1)}}
    figure = data_parallel.scaling([1, 2], speedups, speedups, 2, lost)
    widths = [bar.get_width() for bar in figure.axes[1].patches]
    assert widths == pytest.approx([0.5, 0.05, 0.1])
    assert figure.axes[1].lines[0].get_xdata().tolist() == pytest.approx([1 / 1.6] * 2), "measured, not a sum"
    assert figure.axes[0].get_title() == "2 ranks: 1.60 times as fast with one batch"
    seconds = [Interval(1e-3, 0.9e-3, 1.1e-3), Interval(2e-3, 1.9e-3, 2.1e-3)]
    panels = {"forward": {"DDP": speedups}, "step": {"DDP": speedups, "star": speedups}}
    forward, step = data_parallel.against_alone([1, 4], panels, speedups, "title").axes
    labels = [ax.get_legend_handles_labels()[1] for ax in (forward, step)]
    assert labels == [["the model alone", "DDP"], ["the model alone", "DDP", "star"]]
    slow = [Interval(4e-3, 3e-3, 5e-3)] * 2
    by_formula = [{"tree": 1e-3, "ring": 1e-3}, {"tree": 3e-3, "ring": 2e-3}]
    figure = data_parallel.formula_and_ranks([4, 8], by_formula, {"tree": slow, "ring": seconds})
    formula, measured = figure.axes
    assert formula.lines[1].get_ydata().tolist() == pytest.approx([1, 2])
    assert measured.get_legend_handles_labels()[1] == ["tree", "ring"]
    assert figure.get_suptitle() == "Fastest here: ring with the smallest tensor, ring with the largest"
    predicted = {4: {"ring": 2.0, "tree": 2.1}, 8: {"ring": 1.0, "tree": 3.0}}
    (ax,) = data_parallel.crossover({4: {"ring": 2.0}}, predicted, "").axes
    assert [text.get_text() for text in ax.texts] == ["ring, tree", "ring", "tree"]
    wire = {"slow": seconds}
    figure = data_parallel.overlap_sweep([1, 2], {"slow": [1.0, 2.0]}, wire, {"slow": 2.0}, {"slow": 1.0})
    assert figure.axes[0].get_title() == "slow wire: W = 1.00 B"


def test_groups_are_drawn_by_their_ratios_and_the_fastest_beats_each_other_way():
    found = compared(**{"one rectangle": 4.0, "four groups": 1.0, "flat": 2.0})
    (ax,) = batch_grouping.speedups({16: found, 64: found}, "size").axes
    assert ax.get_title() == "Flat: 2.0 times as fast at size 16, 2.0 at 64"
    times = [Interval(1.0, 0.9, 1.1), Interval(6.0, 5.0, 7.0)]
    panels = batch_grouping.cost_against_length([8, 16], {"maximum": [4, 8]}, {"maximum": times}).axes
    assert [ax.get_title() for ax in panels] == ["2 times the width: bytes × 2.0", "2 times the width: time × 6.0"]
    seconds = {1: Interval(4.0, 3.9, 4.1), 4: Interval(1.0, 0.9, 1.1), 9: Interval(2.0, 1.9, 2.1)}
    (ax,) = batch_grouping.time_against_groups(seconds, {1: 4.0, 4: 0.8, 9: 2.0}, (1, 9)).axes
    assert ax.get_title() == "4 groups took the least time: 4.0 times as fast as one" and (4.0, 1000.0) in dots(ax)
    searches = {"exact": (1.0, [0.0]), "random × 1": (0.1, [0.2, 3.0, 4.0]), "random × 9": (2.0, [0.1, 0.1, 0.2])}
    (ax,) = batch_grouping.search_results(searches).axes
    assert ax.get_title() == "Medians: random × 1 misses by 3.0 %, random × 9 by 0.1 %"
    (ax,) = batch_grouping.waste_against_batch([1, 2], {"a": [1.0, 2.0], "b": [1.0, 2.1], "c": [1.0, 9.0]}).axes
    assert [text.get_text() for text in ax.texts] == ["b 2.1\na 2.0", "c 9.0", "no padding"]
    nbytes = {"one rectangle": 3e6, "four groups": 1e6, "flat": 2e6}
    (ax,) = batch_grouping.time_and_memory({"maxima": (found, nbytes)}).axes
    assert ax.get_title() == "maxima, fastest: four groups" and (1000.0, 1.0) in dots(ax)
    tied = compared(**{"one rectangle": 4.0, "four groups": 1.0, "flat": 1.0})
    (ax,) = batch_grouping.time_and_memory({"maxima": (tied, nbytes)}).axes
    assert ax.get_title() == "maxima, fastest: four groups or flat"


def test_windows_are_compared_with_groups_and_small_waits_are_not_rounded_to_zero():
    levels = {"random batches": 6.0, "four groups in random batches": 1.5, "all sorted": 1.0}
    (ax,) = batch_grouping.waste_of_windows([1, 10, 20], [6.0, 2.0, 1.4], levels).axes
    assert ax.get_title() == "Windows of 20 batches waste less than four groups"
    (ax,) = batch_grouping.waste_of_windows([1, 10], [6.0, 2.0], levels).axes
    assert ax.get_title() == "No window here wastes less than four groups"
    (ax,) = batch_grouping.waiting({"balanced": 0.03}, {"balanced": 1.2}).axes
    assert ax.texts[0].get_text() == "1.20, of which 0.04 waiting (3 %)"


def test_samples_and_intervals_have_the_same_form():
    samples = torch.tensor([[1.0, 2.0, 4.0]])
    for values in (samples, [Interval(2.0, 1.0, 4.0)]):
        middle, reach = middle_and_reach(values)
        assert middle.tolist() == [2.0] and reach.tolist() == [[1.0], [2.0]]
    found = [Interval(10.0, 9.0, 11.0), Interval(40.0, 39.0, 41.0)]
    (ax,) = large_batch.throughput([1, 4], found).axes
    assert ax.get_title() == "4 times the batch has 4 times the samples/s"


def test_two_runs_are_smoothed_alike_where_they_have_made_as_many_updates():
    losses = [1 / (1 + update) for update in range(1000)]
    updates, means = large_batch.smoothed(losses)
    few_updates, few_means = large_batch.smoothed(losses[:100])
    assert few_updates[:-1] == updates[: len(few_updates) - 1] and few_means[:-1] == means[: len(few_means) - 1]
    assert updates[0] == 1 and 900 < updates[-1] <= 1000
    assert large_batch.smoothed([0.5, math.nan, 0.5]) == ([1.0], [0.5])


def test_the_idle_time_of_a_wire_is_what_no_message_takes():
    run = {"hooks": [(0, 0.010), (1, 0.020)], "sent": [[0.012, 0.012, 0.017, 0.02], [0.02, 0.022, 0.032, 0.02]]}
    assert round(data_parallel._end_in_ms(run), 6) == 32
    assert round(data_parallel._idle_in_ms(run), 6) == 32 - 5 - 10
    overlapping = run | {"sent": [[0.01, 0.01, 0.02, 0.02], [0.01, 0.015, 0.032, 0.02]]}
    assert round(data_parallel._idle_in_ms(overlapping), 6) == 32 - 22
    figure = data_parallel.overlap_lanes({"buckets": run}, "title")
    assert any("wire idle for 17 ms" in text.get_text() for text in figure.axes[0].texts)


def test_a_short_message_has_no_number():
    sent = [[0.0, 0.0, 0.001, 0.1], [0.0, 0.001, 0.099, 0.1]]
    figure = data_parallel.overlap_lanes({"buckets": {"hooks": [(0, 0.1)], "sent": sent}}, "title")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "1" in texts and "0" not in texts


def test_checkpoints_are_those_that_were_written():
    lived = [
        Life(2, list(range(14)), was_killed=True),
        Life(2, list(range(10, 25)), was_killed=False),
        Life(1, list(range(25, 30)), was_killed=True),
    ]
    assert data_parallel._checkpoints(lived, 10) == [10, 20, 25]
