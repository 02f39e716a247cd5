"""Loaders take turns: every pass is measured by the timer that is handed in, in the order that is handed in."""

import torch

from course import timing


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


def test_microseconds_gives_the_results_in_order():
    us, results = timing.microseconds(str, [1, 2])
    assert us > 0 and results == ["1", "2"]
