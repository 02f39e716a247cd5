"""The race of unit 06: every recipe trains the same network, the clock counts everything, no run is ever lost."""

import dataclasses
import math

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


@pytest.mark.parametrize("name", ["plain", "everything", "without one cycle"])
def test_a_run_ends_with_the_evaluation_that_reaches_the_target(track, name):
    run = speedrun.race(name, speedrun.contestants()[name], track, 0, most_epochs=6)
    *before, last = run.accuracies
    assert last[2] >= track.target and run.seconds == last[1] and run.epochs == last[0]
    assert all(accuracy < track.target for *_, accuracy in before)
    assert 0 <= speedrun.test_accuracy(run, track) <= 1


def test_a_run_that_misses_the_target_is_infinitely_slow(track):
    run = speedrun.race("plain", speedrun.PLAIN, dataclasses.replace(track, target=1.1), 0, most_epochs=1)
    assert math.isinf(run.seconds) and [epoch for epoch, *_ in run.accuracies] == [1.0]


def test_evaluations_are_late_in_each_cycle(track):
    how = dataclasses.replace(speedrun.recipe(*speedrun.ADVICE), batch_size=32, epochs=1.25)  # a cycle of ten steps
    run = speedrun.race("late", how, dataclasses.replace(track, target=1.1), 0, most_epochs=2.5)
    assert [round(8 * epoch) for epoch, *_ in run.accuracies] == [8, 9, 10, 18, 19, 20]


def test_both_data_paths_bring_the_same_pixels(track):
    racers = [speedrun._Racer(how, track, 0, torch.device("cpu"))
              for how in (speedrun.PLAIN, speedrun.recipe("data in memory"))]  # fmt: skip
    for racer in racers:
        racer.prepare()
    one_by_one, at_once = (torch.cat([x for x, _ in racer.held_batches()]) for racer in racers)
    torch.testing.assert_close(one_by_one, at_once)


def test_kept_runs_survive_a_damaged_line(track, tmp_path, capsys):
    file = tmp_path / "folder" / "runs.jsonl"
    (run,) = _runs(track, ("plain", 0, math.inf))
    speedrun.keep(run, file)
    with open(file, "a") as stream:
        stream.write('{"of": "another version"}\n{"name": "cut sh')
    speedrun.keep(run, file)
    first, second = speedrun.kept(file)
    assert first == second and math.isinf(first.seconds) and first.name == "plain"
    assert "leaves out what is not a run, at line 2, 3." in capsys.readouterr().out
    assert len(file.read_text().splitlines()) == 4


def test_a_file_that_cannot_be_written_is_told_in_a_sentence(track, tmp_path, capsys):
    speedrun.keep(*_runs(track, ("plain", 0, 1.0)), tmp_path)
    assert "cannot be written (Is a directory), so this run is not kept." in capsys.readouterr().out


def _runs(track, *entries):
    """Runs without a training: (name, seed, seconds) each."""
    rest = {}, track.name, track.target, speedrun.machine(), ""
    return [speedrun.Run(name, seed, seconds, 1.0, [], *rest) for name, seed, seconds in entries]


def test_worth_pairs_the_latest_runs_by_seed(track):
    runs = _runs(track, ("slow", 0, 9.0), ("all", 0, 1.0), ("all", 1, 2.0), ("slow", 0, 3.0), ("slow", 1, 2.0),
                 ("slow", 2, 7.0), ("alone", 5, 1.0))  # fmt: skip
    (times,) = speedrun.worth(runs, "all").values()
    assert list(speedrun.worth(runs, "all")) == ["slow"] and times.low == 0 and times.high == math.inf, "two seeds"
    assert times.estimate == pytest.approx(3**0.5)  # the middle of 1 and 3 times


def test_standings_are_of_one_track_and_entries_are_numbered(track):
    runs = _runs(track, ("plain", 0, 4.0), ("mine 2", 0, 1.0), ("mine 2", 1, 3.0), ("mine", 0, math.inf))
    elsewhere = dataclasses.replace(runs[0], target=0.9, seconds=0.1)
    found = speedrun.standings([*runs, elsewhere], track)
    assert found == [("mine 2", 2.0, 2), ("plain", 4.0, 1), ("mine", math.inf, 1)]
    assert speedrun.next_name(runs) == "mine 3" and speedrun.next_name([]) == "mine 1"


def test_nothing_is_kept_where_answers_are_off(track, monkeypatch):
    monkeypatch.setenv("COURSE_ANSWERS", "off")
    speedrun.keep(*_runs(track, ("plain", 0, 1.0)))
    assert speedrun.kept() == [] and speedrun.kept_file() is None


def test_benchmark_goes_on_where_it_was(data, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(benchmark.fashion, "load", lambda name: data)
    monkeypatch.setattr(benchmark.speedrun, "warm_up", lambda *_: None)
    made, race = [], speedrun.race
    monkeypatch.setattr(speedrun, "race", lambda name, *rest: made.append(name) or race(name, *rest))
    file, contestants = tmp_path / "runs.jsonl", {"plain": speedrun.PLAIN, "everything": speedrun.recipe()}
    monkeypatch.setattr(speedrun, "contestants", lambda: contestants)
    benchmark.run(1, 0.11, 256, file)
    benchmark.run(2, 0.11, 256, file)
    assert made == ["plain", "everything"] * 2
    assert "| plain  " in capsys.readouterr().out
