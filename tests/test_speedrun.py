"""The contestants of unit 06's race, and its benchmark."""

import dataclasses

import pytest
import torch

from course.datasets import fashion
from course.errors import CourseError
from course.training import speedrun
from instructor.bench import speedrun as benchmark

pytestmark = pytest.mark.check


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return fashion.load("tiny", tmp_path_factory.mktemp("data"))


@pytest.fixture
def track(data):
    return speedrun.track(data, target=0.15, images=256)


def test_validation_images_are_those_of_with_validation(data):
    track = speedrun.track(data, 0.9)
    images, labels, held, held_labels = fashion.with_validation(data)
    assert torch.equal(fashion.floats(track.images), images) and torch.equal(track.labels, labels)
    assert torch.equal(fashion.floats(track.validation_images), held)
    assert torch.equal(track.validation_labels, held_labels)


@pytest.mark.parametrize("images", [0, 10_000])
def test_more_images_than_there_are_are_refused(data, images):
    with pytest.raises(CourseError, match=f"{images} images were asked for; tiny has 833"):
        speedrun.track(data, 0.9, images)


def test_each_advice_changes_the_recipe_and_one_is_left_out_at_a_time():
    everything, contestants = speedrun.recipe(*speedrun.ADVICE), speedrun.contestants()
    assert len(contestants) == 2 + len(speedrun.ADVICE)
    assert list(speedrun.contestants(["bfloat16"])) == ["plain", "everything", "without bfloat16"]
    assert contestants["plain"] == speedrun.Recipe() and contestants["everything"] == everything
    for name, fields in speedrun.ADVICE.items():
        without = contestants[f"without {name}"]
        differ = {f.name for f in dataclasses.fields(without)
                  if getattr(without, f.name) != getattr(everything, f.name)}  # fmt: skip
        assert differ - {"lr"} == fields.keys()


def test_unknown_advice_is_named_with_the_choices():
    with pytest.raises(CourseError, match="no advice is called 'more cores'; there are data in memory, batch of 128"):
        speedrun.recipe("more cores")


def test_both_data_paths_bring_the_same_pixels(track):
    found = []
    for how in (speedrun.PLAIN, speedrun.recipe("data in memory")):
        racer = speedrun.Racer(how, track, 0)
        racer.prepare()
        found.append(next(racer.held_batches)[0])
    torch.testing.assert_close(*found)


def test_a_cycle_follows_the_last_one(track):
    how = dataclasses.replace(speedrun.recipe(*speedrun.ADVICE), batch_size=32, epochs=1.25)  # a cycle of ten steps
    racer = speedrun.Racer(how, track, 0)
    racer.prepare()
    rates = []
    for _ in range(20):
        racer.train(32)
        rates.append(racer.optimizer.param_groups[0]["lr"])
    assert rates[:10] == pytest.approx(rates[10:]) and rates[9] == min(rates)


def test_benchmark_goes_on_where_it_was(data, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(benchmark.fashion, "load", lambda name: data)
    monkeypatch.setattr(benchmark.race, "warm_up", lambda *_: None)
    made, race = [], benchmark.race.race
    monkeypatch.setattr(benchmark.race, "race", lambda name, *rest: made.append(name) or race(name, *rest))
    contestants = {"plain": speedrun.PLAIN, "everything": speedrun.recipe()}
    monkeypatch.setattr(speedrun, "contestants", lambda: dict(contestants))
    monkeypatch.setattr(benchmark, "LOOK_EVERY", 64)
    file = tmp_path / "runs.jsonl"
    benchmark.run(1, 0.11, 256, file)
    benchmark.run(2, 0.11, 256, file)
    assert made == ["plain", "everything", "everything again"] * 2
    assert "| everything again" in capsys.readouterr().out
