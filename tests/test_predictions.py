"""Predictions: one line whatever is passed, the first one counts, the file is never lost, and what progress shows."""

import ast
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT

import course
from course.learner import answers, calibration, kept_predictions
from course.learner.kept_predictions import FILE, Prediction
from course.measure.comparison import Interval
from course.plots.calibration import predicted_over_measured

PLACE, UNIT, PART = "03/2", "03_large_batch", "2_the_map"
WHAT = "two workers over none"
RATIO = Interval(1.13, 1.05, 1.20)
UNKNOWN = Interval(1.2, -math.inf, math.inf)


class Broken:
    """Refuses everything that may be asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __bool__(self):
        raise SystemExit("no")

    __float__ = __str__ = __repr__ = __format__ = __eq__ = __bool__
    __hash__ = None


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The folder where predictions are kept, as in a notebook."""
    monkeypatch.setenv("COURSE_ANSWERS", str(tmp_path))
    monkeypatch.setattr(answers, "recording", True)
    return tmp_path


def kept(what=WHAT):
    return kept_predictions.read(UNIT)[PART, what]


def say(prediction, measured=RATIO, what=WHAT, **options):
    return course.score(PLACE, what, prediction, measured, **options)


# ---- the line

RIGHT_WAY, WRONG_WAY = "right direction", "wrong direction"
NEAR, FAR = "within a factor of two", "not within a factor of two"
NUMBERS = [
    (2, RATIO, 1, f"{RIGHT_WAY}, {NEAR}"),
    (torch.tensor(2.0), RATIO, 1, f"{RIGHT_WAY}, {NEAR}"),
    (np.float32(9), RATIO, 1, f"{RIGHT_WAY}, but {FAR}"),
    (0.8, RATIO, 1, f"{WRONG_WAY}, but {NEAR}"),
    (0.1, RATIO, 1, f"{WRONG_WAY}, {FAR}"),
    (-1, RATIO, 1, f"{WRONG_WAY}, {FAR}"),
    (1, RATIO, 1, f"no effect, but there is one; {NEAR}"),
    (1.2, RATIO, 1, "inside the interval"),
    (1.9, Interval(1.0, 0.9, 1.1), 1, f"direction not decided here, {NEAR}"),
    (1, Interval(1.0, 0.9, 1.1), 1, "inside the interval"),
    (3, UNKNOWN, 1, f"direction not decided here, {FAR}"),
    (-0.06, Interval(-0.04, -0.05, -0.01), 0, f"{RIGHT_WAY}, {NEAR}"),
    (0.04, Interval(-0.04, -0.05, -0.01), 0, f"{WRONG_WAY}, {FAR}"),
    (0, 0, 0, "right"),
    (3, 0, 0, f"an effect, but there is none; {FAR}"),
    (24, 12, None, NEAR),
    (25, 12, None, FAR),
    (6, 12, None, NEAR),
    (5, 12, None, FAR),
    (12, np.int64(12), None, "right"),
]


@pytest.mark.parametrize("prediction, measured, null, words", NUMBERS)
def test_a_number_is_judged_by_its_direction_and_by_a_factor_of_two(prediction, measured, null, words):
    assert say(prediction, measured, null=null).endswith(f": {words}")


NAMES = [
    ("fork", "fork", "right"),
    (" Fork", "fork", "right"),
    ("spawn", "fork", "wrong"),
    ("a", ["a", "b"], "right"),
    ("c", ["a", "b"], "wrong"),
    (1024, [512, 1024], "right"),
    (["b", "A"], {"a", "b"}, "right"),
    ("a", {"a"}, "right"),
    ("a", {"a", "b"}, "wrong"),
    (set(), set(), "right"),
    ([1], {1, 2}, "wrong"),
    (True, np.bool_(True), "right"),
    (0, torch.tensor(False), "right"),
    (True, False, "wrong"),
]


@pytest.mark.parametrize("prediction, measured, words", NAMES)
def test_a_name_a_set_and_a_bool_are_right_or_wrong(prediction, measured, words):
    assert say(prediction, measured).endswith(f": {words}")


def test_a_line_says_what_was_measured_what_was_said_and_how_they_compare():
    verdict = "right direction, within a factor of two"
    assert say(2) == f"two workers over none: 1.13 (1.05 to 1.20); you said 2: {verdict}"
    assert say(None) == "two workers over none: 1.13 (1.05 to 1.20)"
    assert say(0.5, 0.714, null=None, form="{:.0%}").startswith(f"{WHAT}: 71%; you said 50%: ")
    assert say(1000, 2500, null=None).startswith(f"{WHAT}: 2,500; you said 1,000: ")
    assert say(None, ["a", "b"]) == f"{WHAT}: a or b: too close to call"
    assert say(2, UNKNOWN).startswith(f"{WHAT}: 1.20 (no interval: fewer than 6 runs); ")
    assert say(2, 3.0, form="{:d}").startswith(f"{WHAT}: 3; you said 2: ")


UNDECIDED = [None, math.nan, math.inf, Interval(math.nan, math.nan, math.nan), Broken()]


@pytest.mark.parametrize("measured", UNDECIDED, ids=range(len(UNDECIDED)))
def test_what_is_not_decided_is_not_judged(measured, store):
    assert say(2, measured) == f"{WHAT}: not decided here; you said 2"
    assert kept_predictions.read(UNIT) == {}


ODD = ["2x", "2", [2, 3], {2}, torch.ones(3), np.ones(2), math.nan, math.inf, 10**400, True, int, Broken(), "x" * 999]


@pytest.mark.parametrize("odd", ODD, ids=[f"{type(odd).__name__}-{k}" for k, odd in enumerate(ODD)])
def test_an_odd_prediction_is_told_what_was_expected_and_not_kept(odd, store, capfd):
    line = say(odd)
    assert re.search(r"; a number such as 2 was expected as prediction, found .{1,60}\.$", line), line
    for measured, expected in [(False, "True or False"), ("fork", "an answer such as 'fork'"), ({1}, "a set of")]:
        if not isinstance(odd, bool | str | list | set | float | int):
            assert f"; {expected}" in say(odd, measured)
    assert kept_predictions.read(UNIT) == {} and capfd.readouterr() == ("", "")


# ---- what is kept


def test_the_first_prediction_counts_against_the_latest_measurement(store):
    say(2)
    line = say(1.3, Interval(1.25, 1.2, 1.3))
    assert line.endswith("you said 1.3: inside the interval (your first prediction, 2, counts)")
    one = kept()
    assert (one.first, one.said, one.latest, one.estimate, one.near) == (2, "2", "1.3", 1.25, True)
    assert one.verdict == "right direction, within a factor of two" and one.measured.startswith("1.25")
    say(None)
    assert (kept().said, kept().latest, kept().estimate) == ("2", "1.3", 1.13)


def test_a_prediction_made_after_the_measurement_was_shown_does_not_count(store):
    assert say(None) == f"{WHAT}: 1.13 (1.05 to 1.20)" and not kept().counts
    assert say(1.13).endswith("(it was made after the measurement was shown, so it does not count)")
    assert not kept().counts and kept().latest == "1.13" and calibration.summary(UNIT, [PART]) == []
    assert "you said 1.13 after it was shown: not counted" in calibration.text("03", calibration.of_place("03"))


def test_predictions_are_kept_per_part_and_words(store):
    say(2)
    say(3, what="another")
    course.score("03/1", WHAT, 4, RATIO)
    assert [one.first for one in kept_predictions.read(UNIT).values()] == [2, 3, 4]
    assert len(calibration.of_place("03")) == 3 and len(calibration.of_place("03/2")) == 2


def test_another_kind_of_measurement_begins_anew(store):
    say({"a", "b"}, {"a"})
    assert kept().first == ["a", "b"] and kept().right is False
    say("b", {"a", "b"})
    assert kept().first == ["a", "b"] and kept().right is True
    say(2, 4, null=None)
    assert kept().first == 2 and kept().right is None


def test_nothing_is_kept_outside_a_notebook_or_if_answers_are_off(store, monkeypatch):
    monkeypatch.setattr(answers, "recording", False)
    say(2)
    monkeypatch.setattr(answers, "recording", True)
    monkeypatch.setenv("COURSE_ANSWERS", "off")
    assert say(2).endswith(NEAR) and not list(store.iterdir())
    assert "COURSE_ANSWERS is off" in calibration.text("03", [])


GOOD = dict(part=PART, what=WHAT, measured="1", first=2, said="2", latest="2", verdict="v", direction=True, near=True,
            right=None, estimate=1.0, low=None, high=None)  # fmt: skip
DAMAGED = ["", "{", "[1]", "{}x", "null", '[{"part": 1}]', "[" * 100_000, b"\xff\xfe"]
DAMAGED += [json.dumps([GOOD | wrong]) for wrong in ({"first": "2"}, {"estimate": "1"}, {"near": 3}, {"what": None})]


@pytest.mark.parametrize("damaged", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_told_and_kept_next_to_the_new_one(damaged, store, capfd):
    path = store / UNIT / FILE
    path.parent.mkdir()
    content = damaged if isinstance(damaged, bytes) else damaged.encode()
    path.write_bytes(content)
    (told,) = calibration.summary(UNIT, [PART])
    assert f"{path} cannot be read" in told and "cannot be read" in str(course.progress("03")).replace("\n", "")
    assert say(2).endswith(f"({path} was damaged; it is kept as {FILE}.damaged-1.)")
    assert path.with_name(f"{FILE}.damaged-1").read_bytes() == content and kept().first == 2
    path.write_bytes(content)
    assert f"{FILE}.damaged-2" in say(2)
    assert path.with_name(f"{FILE}.damaged-1").read_bytes() == content
    assert capfd.readouterr() == ("", "")


def test_a_good_entry_is_read_back(store):
    path = store / UNIT / FILE
    path.parent.mkdir()
    path.write_text(json.dumps([GOOD]))
    assert kept() == Prediction(**GOOD)


def test_a_folder_that_cannot_be_written_is_told_in_the_line(store, monkeypatch):
    (store / "file").write_text("")
    monkeypatch.setenv("COURSE_ANSWERS", str(store / "file"))
    assert re.search(rf"{NEAR} \(not kept: .*cannot be written.*\)$", say(2))
    assert "(not kept: " in course.score("99/1", WHAT, 2, RATIO)


# ---- calibration


def fill():
    """Seven predictions: three right in size, three in direction, one name right of two, one that does not count."""
    say(2, what="near")
    say(9, what="far")
    say(0.6, what="wrong way")
    say(1.1, what="inside")
    say("a", "a", what="name")
    say("b", "a", what="other name")
    say(None, what="late")
    say(2, what="late")


SUMMARY = ["3 of 4 in the right direction, 3 within a factor of two", "1 of 2 other answers right"]


def test_calibration_lists_all_worst_first_and_draws_the_numbers(store, capsys):
    fill()
    figure = course.calibration("03")
    shown = capsys.readouterr().out
    order = re.findall(r"^ *\d+  part 2, (.*)$", shown, re.M)
    assert order == ["wrong way", "other name", "far", "near", "inside", "name", "late"]
    assert shown.splitlines()[1:3] == [f"  {line}" for line in SUMMARY] and max(map(len, shown.splitlines())) <= 80
    (ax,) = figure.axes
    points = {(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_marker() == "o"}
    assert points == {(1.13, said) for said in (2, 9, 0.6, 1.1)}
    assert ax.get_title() == "3 of the 4 points within a factor of two"
    assert ax.get_xlim() == ax.get_ylim() and ax.get_xscale() == ax.get_yscale() == "log"
    assert {text.get_text() for text in ax.texts if text.get_text().isdigit()} == {"1", "3"}


def test_predictions_without_a_ratio_are_listed_and_not_drawn(store):
    say(-1, Interval(-1.5, -2, -1.2), null=0)
    say(0, 3, what="zero")
    assert predicted_over_measured(calibration.of_place("03")) is None
    assert calibration.distance(kept("zero")) == math.inf
    say(1, 2_000_000, what="far", null=None)
    assert predicted_over_measured(calibration.of_place("03")).axes[0].get_title().startswith("0 of the 1 point ")


def test_without_predictions_there_is_one_sentence(store, capsys):
    assert course.calibration("03/2") is None
    assert re.fullmatch(r"No prediction of 03/2 is kept yet\. .*\n", capsys.readouterr().out)


def test_progress_shows_the_summary_below_its_unit_and_part(store):
    fill()
    text = str(course.progress())
    assert text.count("predictions:") == 1 and f"  predictions: {SUMMARY[0]}\n               {SUMMARY[1]}\n" in text
    assert "predictions:" not in str(course.progress("03/1")) and "; ".join(SUMMARY) in course.progress()._repr_html_()
    assert max(map(len, text.splitlines())) <= 80
    course.score("03/1", "a count", 3, 4, null=None)
    assert "3 of 4 in the right direction, 4 of 5 within a factor of two" in str(course.progress("03"))
    assert "predictions: 1 of 1 within a factor of two" in str(course.progress("03/1"))


def test_the_command_lists_the_predictions_of_one_unit(store):
    fill()

    def printed(*asked):
        command = [sys.executable, "-m", "course.cli", "progress", *asked]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert "Your predictions in 03, the worst first" in printed("03")
    assert "the worst first" not in printed("03/1") and "the worst first" not in printed("03", "04")
    (store / UNIT / FILE).write_text("damaged")
    assert "cannot be read" in " ".join(printed("03").split())


def test_the_command_loads_no_torch_for_them():
    code = "import sys, course.cli, course.learner.calibration; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\n"


# ---- the masters


def scores(path):
    """The calls of course.score in a master."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "course.score":
            yield node


def what_is_predicted(path, call):
    """The sentence of a call of `course.score`: its second argument, or what that name was given last before."""
    what = call.args[1]
    if isinstance(what, ast.Name):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            is_before = statement.lineno < call.lineno
            if is_before and isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == call.args[1].id:
                what = statement.value
    return ast.unparse(what)


def test_masters_name_their_own_part_and_say_each_prediction_once():
    for path in sorted((ROOT / "solutions").glob("[0-9]*/[0-9]_*.py")):
        place = f"{path.parent.name[:2]}/{path.stem[0]}"
        calls = list(scores(path))
        assert all(ast.literal_eval(call.args[0]) == place for call in calls), path
        whats = [what_is_predicted(path, call) for call in calls]
        assert len(set(whats)) == len(whats), path
