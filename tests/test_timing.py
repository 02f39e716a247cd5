"""Loaders take turns: every pass is measured by the timer that is handed in, in the order that is handed in."""

import math

import torch

from course.measure import timing


def one_by_one(measure, settings, rounds):
    """A `sweep` without shuffling."""
    return torch.tensor([[measure(setting) for _ in range(rounds)] for setting in settings], dtype=torch.float64)


def test_every_loader_has_one_pass_more_than_is_counted(capsys):
    passes = []

    def seconds_per_pass(loader, n_batches, repeats, warmup):
        passes.append((loader, n_batches, repeats, warmup))
        return torch.tensor([float(len(passes))])

    seconds = timing.time_in_turn([range(3), range(5)], 2, seconds_per_pass, one_by_one, progress=False)
    assert seconds.tolist() == [[3.0, 4.0], [5.0, 6.0]]  # passes 1 and 2 warmed up
    assert passes[:3] == [(range(3), 3, 1, 0), (range(5), 5, 1, 0), (range(3), 3, 1, 0)]
    assert capsys.readouterr() == ("", "")
    timing.time_in_turn([range(3)], 1, seconds_per_pass, one_by_one, n_batches=2)
    assert passes[-1] == (range(3), 2, 1, 0)


def test_speedup_pairs_the_rounds():
    seconds = torch.tensor([[2.0, 6.0, 4.0], [1.0, 2.0, 4.0]])
    assert timing.speedup(seconds, 1) == "2.00 (1.00 to 3.00)"
    assert timing.speedup(seconds, 0, base=1) == "0.50 (0.33 to 1.00)"


def test_a_line_gives_mean_sample_deviation_and_images_per_second():
    assert timing.timing_line(torch.tensor([1.0, 3.0]), 10, 200) == "2.000 ± 1.414 s for 10 batches, 1,000 images/s"
    assert timing.timing_line(torch.tensor([2.0]), 1, 3) == "2.000 s for 1 batches, 2 images/s"


def test_microseconds_gives_the_results_in_order():
    us, results = timing.microseconds(str, [1, 2])
    assert us > 0 and results == ["1", "2"]


def test_pairs_take_turns_and_each_way_begins_in_every_other_round(capsys):
    calls = []
    pairs = {name: (lambda n=name: calls.append(n), lambda n=name: calls.append(n.upper())) for name in "ab"}
    found = timing.compare_in_turn(pairs | {"c": "needs CUDA"}, 2, progress=False)
    assert "".join(calls) == "aAbB" + "AaBb" + "aAbB"  # the first four warm up
    assert list(found) == ["a", "b", "c"]
    assert found["a"].seconds.shape == (2, 2) and found["a"].seconds.min() > 0
    assert found["c"].verdict == timing.NOT_MEASURED and str(found["c"]) == "not measured here: needs CUDA"
    assert math.isnan(found["c"].ratio) and capsys.readouterr() == ("", "")


def test_three_quarters_of_the_rounds_must_gain_more_than_the_margin():
    def comparison(*ratios):
        return timing.Comparison(torch.tensor([[ratio, 1.0] for ratio in ratios], dtype=torch.float64))

    assert comparison(1.5, 1.03, 2.0, 1.03, 0.5).verdict == timing.HELPED  # one disturbed round of five
    assert comparison(1.5, 1.01, 2.0, 1.03, 0.5).verdict == timing.NOT_DECIDED
    assert comparison(0.5).verdict == comparison(0.9, 1.01, 1.02).verdict == timing.DID_NOT_HELP
    assert str(comparison(1.5, 1.01, 2.0, 3.0, 0.5)) == " 1.50 (1.01 to 2.00)  not decided here"
    assert [comparison(ratio).helped for ratio in (2.0, 0.5)] == [True, False]
    assert comparison(0.5, 1.5).helped is None and timing.Comparison(torch.zeros(0, 2), "needs CUDA").helped is None


def test_a_gain_within_the_spread_of_the_control_is_not_decided(monkeypatch):
    monkeypatch.setattr(timing, "_seconds", lambda call, device: {0: 1.1, 1: 1.0}[call])
    pairs = {"same": (0, 1), "a": (0, 1)}  # both 1.1 times as fast
    assert timing.compare_in_turn(pairs, 2, progress=False)["a"].verdict == timing.HELPED
    held = timing.compare_in_turn(pairs, 2, progress=False, control="same")
    assert abs(held["a"].noise - 0.1) < 1e-9 and held["a"].verdict == timing.NOT_DECIDED
    slower = {"same": (1, 0), "a": (0, 1)}  # a control that seems slower is noise as well
    assert timing.compare_in_turn(slower, 2, progress=False, control="same")["a"].verdict == timing.NOT_DECIDED


def test_the_clock_stops_when_the_device_is_done(monkeypatch):
    events = []
    monkeypatch.setattr(torch.cpu, "synchronize", lambda device: events.append("wait"))
    timing.compare_in_turn({"a": (lambda: events.append("a"), lambda: events.append("b"))}, 1, progress=False)
    assert events == ["wait", "a", "wait", "wait", "b", "wait"] + ["wait", "b", "wait", "wait", "a", "wait"]
