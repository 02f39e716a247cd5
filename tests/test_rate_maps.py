"""The maps of batch size and learning rate, several seeds in one model, and what a record says about the data."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

import course
from course import datasets, figures
from course.datasets import movielens
from course.figures import batch_rate_map
from course.figures.batch_rate_map import LINEAR, SQUARE_ROOT, RateMap
from course.learner import claims
from course.training import rate_maps, recommender
from course.training.rate_maps import adam, sgd
from course.training.recommender import Experiment, final_scores, print_log, silent_last_layer
from course.training.recommender_loop import History
from course.training.seeds_at_once import SAMPLES_MAX, each_seed
from instructor.authoring import records
from instructor.bench import rate_maps as bench

SIZES = SimpleNamespace(dataset="tiny", base_batch=64, epochs=1)
RATES = [0.1, 0.4, 1.6]
RIDGE = [[0.6, 0.5, None], [0.4, 0.6, 0.1], [0.1, 0.3, 0.6]]  # moves up one square per column


def a_map(scores, batches=(16, 64, 256)):
    return RateMap("NCF", "SGD", "HR@10", "tiny", 1, 1, list(batches), RATES, scores)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_DATA", str(tmp_path_factory.mktemp("data")))
        patch.setenv("COURSE_DEVICE", "cpu")
        yield Experiment(SIZES)


@pytest.mark.parametrize("make_optimizer", [sgd(0.5), adam(0.005)])
def test_several_seeds_in_one_model_train_as_they_would_alone(experiment, make_optimizer):
    together = each_seed(experiment, make_optimizer, 64, 0.05, 3)
    for seed, history in enumerate(together):
        alone = experiment.train_fresh(make_optimizer, 64, seed=seed, epochs=0.05)
        assert history.updates == alone.updates == len(history.losses)
        assert history.losses == pytest.approx(alone.losses, abs=1e-4)
        assert history.hit_rate == pytest.approx(alone.hit_rate, abs=0.02)
        assert history.silent == pytest.approx(alone.silent, abs=0.07)
        assert (history.steps_per_epoch, history.epoch) == (alone.steps_per_epoch, alone.epoch)
    assert together[0].losses != together[1].losses


def test_a_seed_that_diverges_leaves_the_others_alone(experiment, monkeypatch):
    fresh = experiment.fresh_model

    def broken(seed=0, **options):
        model = fresh(seed=seed, **options)
        if seed == 1:
            torch.nn.init.constant_(model.output.bias, math.nan)
        return model

    monkeypatch.setattr(experiment, "fresh_model", broken)
    histories = each_seed(experiment, sgd(0.1), 64, 0.02, 3)
    assert [history.diverged for history in histories] == [False, True, False]
    scores = final_scores(histories)
    assert scores[1] == 0 and min(scores[0], scores[2]) > 0
    assert silent_last_layer(histories)[1] == 1


def test_large_batches_train_one_seed_after_the_other(experiment, monkeypatch):
    monkeypatch.setitem(SAMPLES_MAX, "cpu", 100)
    (first, _) = each_seed(experiment, sgd(0.5), 4096, 1, 2)
    assert first.losses == experiment.train_fresh(sgd(0.5), 4096, epochs=1).losses


def test_a_log_has_a_line_per_epoch_and_a_star_for_each_new_best(capsys):
    history = History(
        epoch=[1, 2, 3], hit_rate=[0.4, 0.6, 0.5], ndcg=[0.2, 0.3, 0.3], loss=[0.5, 0.4, 0.3],
        samples=[1000, 1000, 1000], seconds_train=[2.0, 1.0, 1.0], seconds_eval=[0.1, 0.1, 0.1],
    )  # fmt: skip
    print_log(history)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and ["*" in line for line in lines] == [False, True, True, False]
    assert "500" in lines[1] and "1,000" in lines[2]


def test_a_rule_reaches_as_far_as_it_stays_near_the_best_of_each_column():
    assert a_map(RIDGE).reach(LINEAR) == 16
    assert a_map(RIDGE).reach(0.0) == 1
    flat = [[0.6, 0.5, 0.1], [0.58, 0.6, 0.1], [0.2, 0.59, 0.6]]
    assert a_map(flat).reach(0.0) == 4
    assert a_map(flat).reach(SQUARE_ROOT) == 16


def test_a_map_finds_its_best_square_where_some_were_not_run():
    assert a_map(RIDGE).best(16) == (0.1, 0.6) and a_map(RIDGE).best(256) == (1.6, 0.6)


def test_the_recorded_maps_are_whole_maps_of_three_models():
    maps = figures.recorded_maps()
    assert {one.model for one in maps.values()} == {"NCF", "transformer", "CNN"}
    for label, one in maps.items():
        assert label == one.label and len(one.scores) == len(one.batches)
        assert {len(row) for row in one.scores} == {len(one.rates)}
        factors = {round(b / a, 6) for a, b in zip(one.rates, one.rates[1:], strict=False)}
        assert len(factors) == 1, "evenly spaced logarithms"
        for batch in one.batches:
            one.best(batch)  # at least one square of each column was run


def test_a_switch_shows_several_maps_and_frames_only_what_the_map_has():
    maps = {"a": a_map(RIDGE), "b": a_map(RIDGE[::-1])}
    shown = figures.rate_maps(maps, "b", power=0.0, rate=0.4, here=[(64, 0.4, 0.5), (999, 0.4, 0.5)])
    assert [one["label"] for one in shown.data["maps"]] == ["a", "b"] and shown.data["shown"] == 1
    assert shown.data["here"] == [[64, 0.4, 0.5]]
    assert shown.caption == "HR@10 along your rule (power 0), batch by batch: 0.30, 0.60, 0.50."


def test_the_maps_are_recorded_square_by_square_and_continue(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    monkeypatch.setattr(bench, "RECORDED", tmp_path / "maps.json")
    monkeypatch.setattr(bench, "FACTORS", (1, 4))
    monkeypatch.setattr(bench, "MAPS", {("NCF", "SGD"): ([8, 32], 0.1), ("CNN", "Adam"): ([4, 16], 0.1)})
    made = []

    class Squares:
        sizes = SimpleNamespace(long_epochs=2)

        def score(self, key, batch, lr, seed):
            made.append((*key, batch, lr, seed))
            if len(made) == 15:
                raise KeyboardInterrupt
            return 0.5 + 0.1 * seed

        def data(self, model):
            return "tiny"

    monkeypatch.setattr(bench, "_Squares", Squares)
    with pytest.raises(KeyboardInterrupt):
        bench.run(1)
    assert json.loads((tmp_path / "maps.json").read_text()) == [], "each map lacks a whole column"
    assert made[0][2] == 32, "the largest batch is the quickest"
    first = len(made)
    bench.run(1)
    assert len(made) == first + 10, "what was kept is not run again"
    bench.run(2)
    (ncf, cnn) = json.loads((tmp_path / "maps.json").read_text())
    assert ncf["scores"] == [[0.55] * 6] * 2 and ncf["epochs"] == 2 and cnn["epochs"] == 1 and cnn["seeds"] == 2


def test_small_trainings_of_the_map_learn_and_diverge_to_0(monkeypatch):
    monkeypatch.setattr(rate_maps, "SEQUENCES", {"train": 1024, "test": 64})
    assert rate_maps.transformer_score(adam(0.01), 8) > 2 / rate_maps.VOCABULARY
    assert rate_maps.transformer_score(sgd(math.inf), 512) == 0


def test_claims_and_records_say_which_data_were_used(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    monkeypatch.setattr(datasets, "_LOADED", {})
    assert datasets.loaded() == ""
    movielens.load("tiny")
    datasets.note_loaded("ml-100k", real=True)
    assert datasets.loaded() == "tiny (stand-in), ml-100k (real)"
    course.claim("of this test alone", True)
    facts = claims.claimed()["of this test alone"]
    assert facts["data"] == "tiny (stand-in), ml-100k (real)"
    record = {"parts": {}, "details": "a machine"}
    records.record_part(record, "03_large_batch/9_part", [facts | {"scale": "laptop"}])
    assert record["parts"]["03_large_batch/9_part"]["data"] == "tiny (stand-in), ml-100k (real)"


def test_an_experiment_knows_whether_its_ratings_are_real(experiment):
    assert "stand-in" in experiment.about and recommender.listed([0.5, 1]) == "0.500, 1.000"
    assert batch_rate_map.RULES["linear"] == 1
