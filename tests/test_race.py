"""The race of unit 06: images and seconds to a target, in two factors, by simulated clocks."""

import dataclasses
import math

import pytest
import torch

from course.datasets import fashion
from course.measure.comparison import FASTER, Comparison, Interval
from course.training import race, speedrun
from course.training.race import Look, Run

pytestmark = pytest.mark.check


@pytest.fixture(scope="module")
def track(tmp_path_factory):
    data = fashion.load("tiny", tmp_path_factory.mktemp("data"))
    return speedrun.track(data, target=0.15, images=256, look_every=64)


class Clock:
    """A second passes per 64 images of training, and 100 per look."""

    def __init__(self, monkeypatch):
        self.seconds = 0.0
        train, accuracy = race.Racer.train, race.Racer.accuracy

        def trained(racer, n_images):
            before = racer.trained
            train(racer, n_images)
            self.seconds += (racer.trained - before) / 64

        def looked(racer):
            self.seconds += 100
            return accuracy(racer)

        monkeypatch.setattr(race.Racer, "train", trained)
        monkeypatch.setattr(race.Racer, "accuracy", looked)

    def __call__(self, device):
        return self.seconds


def test_the_clock_stands_still_during_looks_which_are_the_same_for_all(track, monkeypatch):
    hard = dataclasses.replace(track, target=1.1)
    for name, how in speedrun.contestants(["batch of 128"]).items():
        with monkeypatch.context() as patch:
            run = race.race(name, how, hard, 0, most_epochs=1.5, clock=Clock(patch))
        at = [images for images, *_ in run.looks]
        assert at[0] == 0 and at[-1] == 384 and {128, 256, 384} <= set(at)
        assert run.looks[-1].seconds == pytest.approx(6)  # of 64 images each; a look took 100
        assert math.isinf(run.seconds) and math.isinf(run.images) and run.at_least == 384


@pytest.mark.parametrize("name", ["plain", "everything", "without one cycle"])
def test_a_run_ends_with_the_look_that_reaches_the_target(track, name):
    run = race.race(name, speedrun.contestants()[name], track, 0, most_epochs=6)
    *before, last = run.looks
    assert last.accuracy >= track.target
    assert all(look.accuracy < track.target for look in before)
    assert before[-1].images < run.images <= last.images
    assert before[-1].seconds < run.seconds <= last.seconds
    assert 0 <= run.racer.test_accuracy() <= 1


def test_the_target_is_crossed_between_two_looks():
    looks = [Look(0, 0.0, 0.1), Look(100, 2.0, 0.5), Look(200, 6.0, 0.7), Look(300, 7.0, 0.9)]
    images, seconds = race.crossing(looks, 0.55)
    assert images == pytest.approx(125) and seconds == pytest.approx(3)
    assert race.crossing(looks, 0.95) == (math.inf, math.inf)


def test_a_look_changes_nothing(track):
    looked, alone = (speedrun.Racer(speedrun.recipe(*speedrun.ADVICE), track, 3) for _ in range(2))
    states = []
    for racer, looks in ((looked, True), (alone, False)):
        torch.manual_seed(5)
        racer.prepare()
        for _ in range(2):
            racer.train(128)
            if looks:
                racer.accuracy()
        states.append(racer.model.state_dict())
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


def test_evaluations_of_a_recipe_are_paid_in_proportion(track, monkeypatch):
    for how, expected in ((speedrun.PLAIN, 51), (speedrun.recipe("late evaluation"), 0)):
        racer = speedrun.Racer(dataclasses.replace(how, batch_size=16), track, 0)
        racer.prepare()
        seen = []
        held = racer.held_batches
        racer.held_batches = ((seen.append(len(labels)), (images, labels))[1] for images, labels in held)
        for _ in range(4):
            racer.train(64)
        assert abs(sum(seen) - expected) < 16  # of 51 validation images in an epoch


def _run(name, seed, images, seconds, trained=1000):
    looks = [Look(0, 0.0, 0.1), Look(trained, 1.0, 0.5)]
    return Run(name, seed, images, seconds, looks, {}, "t", 0.9, "m", "now")


def test_ratios_are_paired_by_seed():
    runs = []
    for seed in range(6):
        runs.append(_run("all", seed, 100.0 + seed, 2.0 + seed))
        runs.append(_run("slow", seed, 150.0 + 1.5 * seed, 4.0 + 2 * seed))
    runs.append(_run("slow", 17, 1.0, 1.0))  # a seed of one contestant alone
    fewer = race.times_fewer_images(runs, "all", "slow")
    assert (fewer.estimate, fewer.low, fewer.high) == pytest.approx((1.5, 1.5, 1.5))
    faster = race.times_as_fast(runs, "all", "slow")
    assert (faster.estimate, faster.low, faster.high) == pytest.approx((2, 2, 2))


def test_a_missed_target_counts_with_all_images_that_were_trained():
    runs = [_run("all", seed, 500.0, 1.0) for seed in range(6)]
    runs += [_run("slow", seed, math.inf, math.inf) for seed in range(6)]
    assert race.times_fewer_images(runs, "all", "slow").estimate == pytest.approx(2)
    assert race.times_as_fast(runs, "all", "slow").low == math.inf
    assert math.isnan(race.times_as_fast(runs, "none", "slow").estimate)


def test_five_seeds_decide_nothing():
    runs = [_run(name, seed, 1.0, 1.0) for name in ("a", "b") for seed in range(5)]
    assert race.times_as_fast(runs, "a", "b") == Interval(1.0, 0.0, math.inf)


def test_each_piece_left_out_has_its_two_factors():
    n = 8
    base = torch.full((n,), 1.0, dtype=torch.float64)
    ways = {"everything": base, "plain": 9 * base, "without bfloat16": 3 * base, "without fused Adam": 2 * base}
    compared = Comparison(ways, Interval(1.0, 0.99, 1.01), "narrow enough")
    runs = [_run("everything", seed, 100.0, 1.0) for seed in range(n)]
    runs += [_run("without bfloat16", seed, 80.0, 1.0) for seed in range(n)]
    half, fused = race.left_out(runs, compared)
    assert (half.name, fused.name) == ("bfloat16", "fused Adam")
    assert half.images.estimate == pytest.approx(0.8) and half.cost.estimate == pytest.approx(3)
    assert half.total.estimate == pytest.approx(2.4) and half.verdict == FASTER
    assert fused.by_design and fused.images == Interval(1.0, 1.0, 1.0) and "the same" in str(fused)


def test_costs_compare_training_with_everything_first(track):
    recipes = {"everything": speedrun.recipe(*speedrun.ADVICE), "plain": speedrun.PLAIN}
    compared = race.costs(recipes, track, seconds=0.0, n_images=16)
    assert compared.base == "everything" and compared.rounds == 7


def test_race_all_gives_each_name_every_seed(track):
    runs = race.race_all({"a": speedrun.PLAIN, "b": speedrun.PLAIN}, track, 2, most_epochs=0.5)
    assert sorted((run.name, run.seed) for run in runs) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    by = {(run.name, run.seed): run.looks[-1].accuracy for run in runs}
    assert by["a", 0] == by["b", 0] and all(run.racer is None for run in runs)
