"""course progress --class: who is where and what most are stuck at, from notebooks and progress files, nothing run."""

import dataclasses
import json
import os
import re

import nbformat
import pytest
import torch
from click.testing import CliRunner
from conftest import ROOT
from exercises import stub

from course import cli, progress
from course.checks import batch_grouping
from course.engine.known_answers import fault_and_fix
from course.engine.report import NOT_WRITTEN, Said, read
from course.errors import CourseError
from course.learner import answers
from course.learner.kept_predictions import Prediction
from course.notebook import registry as units
from instructor.grading.class_progress import (
    ExerciseState,
    class_text,
    current_exercise,
    failed_at,
    read_class,
    stuck_at,
)

UNIT, PART, OTHER = "05_batch_grouping", "1_what_padding_costs", "03_large_batch"
LOADING = "01_parallel_loading"
REPORT = """pad_batch: not yet (cpu)
 ok  has the right shape
 NO  the mask
This looks like a known mistake:
     The mask is inverted: it is True at the padding.
How to fix it: check.pad_batch.hint()"""
SOLVED = "pad_batch: correct (9 facts, cpu)"
INVERTED = "The mask is inverted: it is True at the padding."


def hand_in(inbox, learner, reports):
    """The first part of unit 05 in the inbox, with {exercise: what its visible check showed}."""
    book = nbformat.read(ROOT / "notebooks" / UNIT / f"{PART}.ipynb", as_version=4)
    for cell in book.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "").removesuffix("-visible")
        if name in reports and "-visible" in cell.metadata.nbgrader.grade_id:
            text = reports[name]
            shown = {"output_type": "stream", "text": text}
            if ": correct" not in text:
                red = [f"\x1b[31m{line}\x1b[0m" for line in text.splitlines()]
                shown = {"output_type": "error", "ename": "CheckFailed", "evalue": text, "traceback": red}
            cell.outputs = [nbformat.v4.new_output(**shown)]
    path = inbox / learner / UNIT / f"{PART}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(book, path)


def send(inbox, learner, unit, exercise, **facts):
    """A progress file, with the fields of course.learner.answers.Kept."""
    record = dict(unit=unit, exercise=exercise, tries=3, passed=None, mistake=None) | facts
    path = inbox / learner / unit / f"{exercise}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


@pytest.fixture
def inbox(tmp_path):
    """Four learners: two with the same mistake, one far, one who sent progress files."""
    for learner in ("ada", "ben"):
        hand_in(tmp_path, learner, {"pad_batch": REPORT})
    hand_in(tmp_path, "cleo", {"pad_batch": SOLVED, "padding_waste": "padding_waste: not yet: x"})
    send(tmp_path, "=dan", OTHER, "linear_warmup", mistake="staircase")
    send(tmp_path, "=dan", OTHER, "scaled_lr", passed="2026-11-22T10:00:00+00:00")
    return tmp_path


def test_states_come_from_outputs_and_from_progress_files(inbox):
    learners, faults = read_class(inbox)
    states = {learner.name: learner.states for learner in learners}
    assert faults == [] and list(states) == ["=dan", "ada", "ben", "cleo"]
    assert states["ada"] == {(UNIT, "pad_batch"): ExerciseState(False, 1, INVERTED)}
    assert states["cleo"] == {(UNIT, "pad_batch"): ExerciseState(True), (UNIT, "padding_waste"): ExerciseState(False)}
    dan = states["=dan"]
    assert dan[OTHER, "scaled_lr"].solved and dan[OTHER, "linear_warmup"].mistake.startswith(
        "The learning rate changes"
    )


def test_most_are_stuck_at_the_exercise_that_most_tried_and_did_not_solve(inbox):
    learners, _ = read_class(inbox)
    first = stuck_at(learners)[0]
    assert (first.exercise.name, first.tried, first.solved, first.mistakes) == ("pad_batch", 3, 1, [(INVERTED, 2)])
    assert [current_exercise(learner).name for learner in learners] == [
        "linear_warmup",
        "pad_batch",
        "pad_batch",
        "padding_waste",
    ]


def test_the_command_says_what_most_are_stuck_at(inbox):
    said = CliRunner().invoke(cli.verbs, ["progress", "--class", str(inbox)]).output
    assert "4 learners. Most are stuck at:\n  pad_batch (05/1): 2 of 3 who tried it\n      2 x The mask is" in said
    assert max(map(len, said.splitlines())) <= 100


def shown(verdict):
    """The text of the cell of a check."""
    return "\n".join(verdict.report)


def test_a_report_reads_back_as_the_verdict_that_wrote_it():
    """Of a right answer, of each known mistake whole or with its fix hidden, of a stub, and of none at all."""
    cpu, name = torch.device("cpu"), "pad_batch"
    check = batch_grouping.pad_batch
    right = check.judge(check.alternatives()[0], device=cpu)
    assert right.correct and read(name, shown(right)) == Said(True, "")
    for mistake in check.mistakes():
        advice = {False: mistake.advice, True: fault_and_fix(mistake.advice)[0]}
        for is_short, said in advice.items():
            verdict = check.judge(mistake.answer, device=cpu, hide_fix=is_short)
            assert verdict.mistake == mistake.name
            assert read(name, shown(verdict)) == Said(False, said)
    untouched = check.judge(stub(check), device=cpu)
    assert not untouched.begun and read(name, shown(untouched)) is None
    assert read("padding_waste", shown(right)) is None and read(name, "") is None


def test_an_exercise_that_was_solved_once_stays_solved(inbox):
    hand = inbox / "cleo" / "later" / UNIT
    hand.mkdir(parents=True)
    send(inbox, "cleo/later", UNIT, "pad_batch")
    (learner,) = [one for one in read_class(inbox)[0] if one.name == "cleo"]
    assert learner.states[UNIT, "pad_batch"].solved


def test_broken_files_are_named_and_links_are_not_followed(inbox, tmp_path_factory):
    (inbox / "ada" / "broken.ipynb").write_text("{")
    (inbox / "ben" / "deep.json").write_text("[" * 100_000)
    (inbox / "ben" / "other.json").write_text("[]")
    os.mkfifo(inbox / "ben" / "pipe.json")
    send(inbox, "ben", OTHER, "scaled_lr", tries=float("inf"))
    secret = tmp_path_factory.mktemp("elsewhere")
    send(secret, "eve", OTHER, "LARS")
    os.symlink(secret / "eve", inbox / "eve")
    os.symlink(secret / "eve" / OTHER / "LARS.json", inbox / "ben" / "LARS.json")
    learners, faults = read_class(inbox)
    mine = ["deep.json", "other.json", "pipe.json"]
    places = ["ada/broken.ipynb", f"ben/{OTHER}/scaled_lr.json", *(f"ben/{name}" for name in mine)]
    assert faults == [f"{place} cannot be read; it is left out." for place in places]
    assert "eve" not in {one.name for one in learners} and all(
        "LARS" not in name for one in learners for _, name in one.states
    )


def predicted(inbox, learner, what, said, verdict, **facts):
    """Add a prediction to those of a learner, with the fields of course.learner.kept_predictions.Prediction."""
    one = dict.fromkeys(field.name for field in dataclasses.fields(Prediction))
    one |= dict(part="2_workers", what=what, measured="1.13", first=said, said=str(said), verdict=verdict) | facts
    path = inbox / learner / LOADING / "predictions.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps([*kept, one]))


def test_it_says_where_the_intuition_of_the_class_failed(inbox):
    """Worst first; a prediction that was made after the measurement says nothing about intuition."""
    workers = "two workers over none"
    predicted(inbox, "ada", workers, 0.5, "wrong direction", direction=False, near=False)
    predicted(inbox, "ben", workers, 4, "more than a factor of two off", direction=True, near=False)
    predicted(inbox, "cleo", workers, 1.2, "right", direction=True, near=True)
    predicted(inbox, "cleo", "what is slowest", "decode", "right", right=True)
    predicted(inbox, "ben", "what is slowest", "read", "wrong", right=False)
    predicted(inbox, "eve", workers, None, "")
    state = read_class(inbox)
    assert state.faults == []
    rows = failed_at(state.learners)
    assert [(row.measured[2], row.off, row.wrong_way, len(row.predictions)) for row in rows] == [
        (workers, 2, 1, 3),
        ("what is slowest", 1, 1, 2),
    ]
    said = class_text(state)
    assert "Where intuition failed, before the measurement was shown:\n  two workers over none (01/2): 2 of 3" in said
    assert "they said 0.5 (measured 1.13); 4 (measured 1.13)" in said and max(map(len, said.splitlines())) <= 100
    assert re.search(r"eve +0 +0 +predictions alone", said)


def test_predictions_that_cannot_be_read_are_a_fault(inbox):
    (inbox / "=dan" / OTHER / "predictions.json").write_text("[]")
    assert read_class(inbox).faults == []
    (inbox / "=dan" / OTHER / "predictions.json").write_text('[{"part": 1}]')
    assert read_class(inbox).faults == [f"=dan/{OTHER}/predictions.json cannot be read; it is left out."]


def test_an_inbox_without_anything_is_one_sentence(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CourseError, match="found none|no folder"):
            read_class(folder)


def test_an_untouched_notebook_is_not_tried(tmp_path):
    untouched = f"pad_batch: not yet (cpu)\n     {NOT_WRITTEN}"
    hand_in(tmp_path, "ada", {"pad_batch": untouched})
    hand_in(tmp_path, "ben", {"pad_batch": SOLVED})
    assert [learner.name for learner in read_class(tmp_path)[0]] == ["ben"]


def test_colours_are_for_a_terminal_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_ANSWERS", str(tmp_path))
    for exercise in units.load_unit(OTHER).parts[0].exercises:
        answers.record(OTHER, exercise.name, True, script="", name=exercise.name)
    shown = progress("03")
    coloured = shown.text(coloured=True)
    assert "\n\x1b[33m03 " in coloured and "\x1b[32m  1 " in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == str(shown)
    assert "\x1b" not in CliRunner().invoke(cli.verbs, ["progress", "03"]).output
