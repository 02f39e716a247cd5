"""A batch of hostile submissions, graded by the real command: what each scores, what each is told, what came to harm.

One batch for all of them, since a grader takes seconds to start; the submissions are in hostile/.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ROOT
from hostile.attack import (
    ATTACKS,
    BESIDE,
    EXERCISES,
    FORGED,
    GIB,
    OTHER_PART,
    PART,
    SOLVED,
    THIRD,
    THIRD_PART,
    UNIT,
    by_id,
    hand_in,
    some_of_each_kind,
)
from hostile.lying import KNOWN
from submissions import command, content, orphans_adopted, part_of

from course.checks import large_batch
from course.engine.outcome import Outcome
from course.notebook.cells import read_cells
from instructor.authoring import prose
from instructor.authoring.masters import release_notebook, solved_notebook, source_notebook, text_of
from instructor.grading import gradebook
from instructor.grading.submission import MISSING
from instructor.jail.memory import descendants

FORGES = [name for name, attack in ATTACKS.items() if attack.forges]
# of the shorter tiers, beside some of each kind: those that a grader must wait for, and what only one attack can show
ALWAYS = "says_half", "stops_itself", "loops_in_an_answer", "folder_linked_to_another_learner"
ALWAYS += "replays_shows_frozen_bias", "scaler_by_list", "neumf_through_the_module", "exchanges_the_code_of_the_engine"
ALWAYS += ("takes_memory_under_a_name_that_is_no_text",)
# what docs/jail.md says is not kept away: observations, where a class of tensors, the engine or a probe's function lies
FORGEABLE = {"tensors_that_agree": "sample_negatives", "empties_the_watch_list": "shows_frozen_bias"}
FORGEABLE |= {"exchanges_and_puts_back_what_a_probe_runs": "LossScaler"}
HONEST = "a_honest", "z_honest"
POINTS = dict(zip((*EXERCISES, BESIDE, *THIRD), (2, 2, 2, 2, 6, 4, 4, 3, 4), strict=True))
LIMIT = 2 * GIB  # of the grader, all its processes together
SECRET = "HOSTILE_SECRET"


def cells_of(exercise):
    """The percent cells of the master that asks `exercise`."""
    master = ROOT / "solutions" / UNIT / f"{part_of(exercise)}.py"
    return re.split(r"(?m)^(?=# %%)", master.read_text(encoding="utf-8"))[1:]


def shortened(*exercises):
    """A master with the first cells of the part that asks the first of `exercises`, and with these alone."""
    cells = cells_of(exercises[0])
    chosen = [cells[0], next(c for c in cells if c.startswith('# %% locked="setup"'))]
    for name in exercises:
        cells = cells_of(name)
        at = next(i for i, c in enumerate(cells) if c.startswith(f'# %% solution="{name}"'))
        chosen += cells[at - 1 : at + 3]
    return "".join(chosen)


def masters(folder):
    """Fill `folder` with masters of one unit, which has three short parts."""
    (folder / UNIT).mkdir(parents=True)
    for part, exercises in ((PART, EXERCISES), (OTHER_PART, (BESIDE,)), (THIRD_PART, THIRD)):
        text = re.sub(r", part \d+:", f", part {part[0]}:", shortened(*exercises), count=1)
        path = folder / UNIT / f"{part}.py"
        path.write_text(text, encoding="utf-8")
        minutes = prose.core_minutes(read_cells(path), {})
        text = re.sub(r"\*\*Minutes\*\* .* in all", f"**Minutes** {minutes} core · 150 in all", text, count=1)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "solutions" / UNIT / "answers", folder / UNIT / "answers")


def memory(numbers, file="status", field="VmRSS:"):
    """Bytes of the grader's own processes among these; exact only if the sum with what they share is too large."""
    total = 0
    for number in numbers:
        with contextlib.suppress(OSError, IndexError):  # gone
            if b"course.cli" in Path(f"/proc/{number}/cmdline").read_bytes():
                total += 1024 * int(Path(f"/proc/{number}/{file}").read_text().split(field)[1].split()[0])
    return total if total < LIMIT or file != "status" else memory(numbers, "smaps_rollup", "Pss:")


@pytest.fixture(scope="module")
def batch(tmp_path_factory, tier):
    """What a batch of all submissions left: scores, notes, notebooks, and the state of the world before and after.

    The shorter tiers try some attacks of each kind.
    """
    attacks = ATTACKS if tier == "all" else some_of_each_kind(5) | {name: ATTACKS[name] for name in ALWAYS}
    base = tmp_path_factory.mktemp("h")
    token = f"hostile-{os.getpid()}-{time.time_ns()}"
    inbox, course, home, solutions = (base / name for name in ("inbox", "course", "home", "solutions"))
    masters(solutions)
    for folder in (inbox, course, home, solutions):
        folder.mkdir(exist_ok=True)
        (folder / "canary").write_text("alive")
    host = {"token": token, "key": time.time_ns() % 2**30, "sleep": "54321", "forged": FORGED, "known": KNOWN,
            "places": [str(place) for place in (inbox, course, home, solutions, base)],
            "secrets": [str(ROOT / name) for name in ("solutions", "tests", ".git", "nbgrader_config.py")]}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_SOLUTIONS", str(solutions))
        source, beside, third = (source_notebook(UNIT, part) for part in (PART, OTHER_PART, THIRD_PART))
    solved, some = solved_notebook(source), release_notebook(source)
    beside, alone = text_of(solved_notebook(beside)), text_of(solved_notebook(third))
    third = json.loads(json.dumps(release_notebook(third)))
    for name in SOLVED:
        by_id(some)[name]["source"] = by_id(solved)[name]["source"]
    for name in HONEST:
        (inbox / name / UNIT).mkdir(parents=True)
        (inbox / name / UNIT / f"{PART}.ipynb").write_text(text_of(solved))
        (inbox / name / UNIT / f"{OTHER_PART}.ipynb").write_text(beside)
        (inbox / name / UNIT / f"{THIRD_PART}.ipynb").write_text(alone)
    (inbox / "linked_learner").symlink_to(inbox / HONEST[0])
    for name in attacks:
        hand_in(name, inbox, json.loads(json.dumps(some)), third, beside, host)

    untouched = inbox, home, solutions
    outcome = SimpleNamespace(
        memory=0, course=course, token=token, before=[content(folder) for folder in untouched], host=host
    )
    outcome.attacks = attacks
    # two checks that are stopped take up to 14 s, which must be less than the 5 cells' seconds of a part
    limits = ("--memory", "0.5", "--cell-seconds", "5", "--answer-seconds", "2", "--patience", "2")
    call = command(inbox, "--course", course, "--unit", UNIT, "--workers", "2", *limits)
    environment = os.environ | {
        "COURSE_SOLUTIONS": str(solutions),
        "HOME": str(home),
        "MPLCONFIGDIR": str(base),
        SECRET: "secret",
    }
    with open(base / "said", "w") as said, orphans_adopted() as remaining:
        process = subprocess.Popen(call, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT)
        while process.poll() is None:
            outcome.memory = max(outcome.memory, memory(descendants([process.pid])))
            time.sleep(0.2)
        outcome.left = remaining()
    outcome.code, outcome.said = process.returncode, (base / "said").read_text(errors="replace")
    for number in outcome.left:
        os.kill(number, signal.SIGKILL)
    outcome.after = [content(folder) for folder in untouched]
    if not outcome.code:
        outcome.scores = {who: points(cells) for who, cells in gradebook.scores(UNIT, course).items()}
        outcome.graded = {graded.learner: graded for graded in gradebook.records(course)}
    return outcome


def points(cells):
    """{exercise: points}, of those that have any."""
    of_exercises = {}
    for cell, (score, _) in cells.items():
        of_exercises[cell.rsplit("-", 1)[0]] = of_exercises.get(cell.rsplit("-", 1)[0], 0) + score
    return {exercise: score for exercise, score in of_exercises.items() if score}


def notebooks(batch):
    """{learner: the text of the attacked part as it was graded}"""
    parts = {name: THIRD_PART if attack.at in THIRD else PART for name, attack in batch.attacks.items()}
    folder = batch.course / "autograded"
    return {who: (folder / who / UNIT / f"{parts.get(who, PART)}.ipynb").read_text() for who in batch.scores}


def outputs(text):
    return [output for cell in json.loads(text)["cells"] for output in cell.get("outputs", [])]


def test_the_facts_that_are_made_up_are_right():
    """Else an attack would fail for want of them, whatever the grader does."""
    place = {"check": large_batch}
    exec(KNOWN + FORGED, place)
    exercise = large_batch.shows_frozen_bias
    known = place["facts_by"](31, place["facts_of"](exercise.probe))
    assert known == exercise.at("cpu", 31).expected().facts
    assert Outcome(place["forged"](31)).same(large_batch.sample_negatives.at("cpu", 31).expected())


def test_the_batch_ends_and_every_submission_scores_what_it_honestly_earned(batch):
    assert batch.code == 0, batch.said[-3000:]
    due = {name: dict.fromkeys(SOLVED[: attack.earns // 2] + (BESIDE,) * (attack.at not in THIRD), 2)
           for name, attack in batch.attacks.items() if attack.earns is not None}  # fmt: skip
    due |= dict.fromkeys(HONEST, POINTS)
    assert set(batch.scores) == set(due)
    assert not {n: (batch.scores[n], due[n]) for n in due if batch.scores[n] != due[n] and n not in FORGES}


def test_facts_made_up_in_the_learners_process_earn_nothing(batch):
    tried = [name for name in FORGES if name in batch.attacks]
    assert all(BESIDE in batch.scores[name] for name in tried if batch.attacks[name].at not in THIRD)
    made_up = {name: {*batch.scores[name]} - {*SOLVED, BESIDE} for name in tried}
    breached = {name for name in tried if "BREACH" in json.dumps(outputs(notebooks(batch)[name]))}
    assert not breached
    assert {name: points for name, points in made_up.items() if points} == {
        name: {exercise} for name, exercise in FORGEABLE.items() if name in tried
    }


def test_what_was_stopped_or_not_read_has_a_plain_reason(batch):
    parts = {name: [part.note for part in batch.graded[name].parts] for name in batch.scores}
    notes = {name: " ".join(note for note in each if note not in ("", MISSING)) for name, each in parts.items()}
    due = {name: ATTACKS[name].note if name in ATTACKS else "" for name in notes}
    assert not {n: notes[n] for n in notes if bool(due[n]) != bool(notes[n]) or not re.search(due[n], notes[n])}
    assert not [note for note in notes.values() if not note.isprintable() or len(note) > 500]
    assert "folder_linked_to_another_learner" in batch.said, "what is left out is said"


def test_nothing_worked_that_must_not(batch):
    """Code prints BREACH where it got through; the texts of its cells stand in sources, not in outputs."""
    printed = {who: json.dumps(outputs(text)) for who, text in notebooks(batch).items()
            if who not in FORGES and not who.startswith("tells_")}  # fmt: skip
    assert {who: re.findall(r"BREACH[^\\]*", text) for who, text in printed.items() if "BREACH" in text} == {}


def test_nothing_outside_was_touched_and_no_process_is_left(batch):
    assert batch.after == batch.before
    assert (batch.course / "canary").read_text() == "alive"
    places = (Path(place) for place in ("/tmp", "/dev/shm", "/var/tmp", "/run"))
    assert not [place for place in places if (place / batch.token).exists()]
    shared = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    assert str(batch.host["key"]) not in [line.split()[0] for line in shared]
    assert not (Path(ROOT) / batch.token).exists() and not batch.left


def test_the_graders_memory_is_bounded(batch):
    assert 0 < batch.memory < LIMIT, f"{batch.memory / GIB:.2f} GiB"


def test_outputs_are_few_and_show_nothing_that_runs(batch):
    for who, text in notebooks(batch).items():
        assert len(text) < 30_000_000, who
        for output in outputs(text):
            assert set(output.get("data", {})) <= {"text/plain", "image/png", "image/jpeg"}, who
            assert not {"\x1b", "\x9b", "\0"} & set(json.dumps(output, ensure_ascii=False)), who
    assert "\x1b" not in batch.said


def test_the_gradebook_holds_these_submissions_and_all_their_points(batch):
    assert set(batch.graded) == set(batch.scores)
    assert "linked_learner: a link to a folder" in batch.said
    points = [mark.points for mark in batch.graded[HONEST[0]].marks]
    assert points[:8] == [1] * 8 and sum(points) == sum(POINTS.values())
    assert not [who for who, graded in batch.graded.items() if [mark.points for mark in graded.marks] != points]
