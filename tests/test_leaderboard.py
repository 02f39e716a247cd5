"""The leaderboard of unit 06: entries are kept, compared with everything, and never lost."""

import dataclasses

import pytest

from course.datasets import fashion
from course.measure.comparison import Interval
from course.training import leaderboard, race, speedrun
from course.training.leaderboard import Entry
from course.training.race import Worth

pytestmark = pytest.mark.check


@pytest.fixture(scope="module")
def track(tmp_path_factory):
    data = fashion.load("tiny", tmp_path_factory.mktemp("data"))
    return speedrun.track(data, target=0.15, images=128, look_every=64)


@pytest.fixture
def file(monkeypatch, tmp_path):
    path = tmp_path / "folder" / "board.jsonl"
    monkeypatch.setattr(leaderboard, "kept_file", lambda: path)
    return path


def _entry(track, name, times, target=None):
    ratio = Interval(times, times / 1.1, times * 1.1)
    worth = Worth(name, ratio, Interval(1.0, 0.9, 1.1), Interval(1.0, 0.98, 1.02))
    return Entry(worth, {}, track.name, target or track.target, leaderboard.machine(), "now")


def test_entries_survive_a_damaged_line(track, file, capsys):
    entry = _entry(track, "mine 1", 1.2)
    leaderboard.keep(entry)
    with open(file, "a") as stream:
        stream.write('{"of": "another version"}\n{"name": "cut sh')
    leaderboard.keep(entry)
    assert leaderboard.kept() == [entry, entry]
    assert "leaves out what is not an entry, at line 2, 3." in capsys.readouterr().out
    assert len(file.read_text().splitlines()) == 4


def test_a_file_that_cannot_be_written_is_told_in_a_sentence(tmp_path, capsys):
    leaderboard.append_line(tmp_path, {})
    assert "cannot be written (Is a directory), so this run is not kept." in capsys.readouterr().out


def test_nothing_is_kept_where_answers_are_off(track, monkeypatch):
    monkeypatch.setenv("COURSE_ANSWERS", "off")
    leaderboard.keep(_entry(track, "mine 1", 1.0))
    assert leaderboard.kept() == [] and leaderboard.kept_file() is None


def test_the_board_is_of_one_track_and_ends_with_the_control(track):
    entries = [_entry(track, "mine 1", 0.8), _entry(track, "mine 2", 1.5), _entry(track, "mine 3", 9.0, target=0.9)]
    *rows, again = leaderboard.board(entries, track)
    assert [row.name for row in rows] == ["mine 2", "mine 1"]
    assert again.total == again.control == rows[0].control
    assert leaderboard.board(entries[2:], track) == []
    assert leaderboard.next_name(entries) == "mine 4" and leaderboard.next_name([]) == "mine 1"


def test_an_entry_is_compared_with_everything_by_the_same_seeds(track, file):
    everything = speedrun.recipe(*speedrun.ADVICE)
    runs = race.race_all({"everything": everything, "plain": speedrun.PLAIN}, track, 2, most_epochs=2)
    same = leaderboard.enter(everything, track, runs, most_epochs=2, seconds=0.0)
    assert same.worth.name == "mine 1" and same.worth.images.estimate == pytest.approx(1)
    other = dataclasses.replace(everything, label_smoothing=0.0)
    assert leaderboard.enter(other, track, runs, most_epochs=2, seconds=0.0).worth.name == "mine 2"
    assert [entry.recipe["label_smoothing"] for entry in leaderboard.kept()] == [0.1, 0.0]
