"""course bench gpu goes on behind a step that fails or takes too long, and where it was when it is called again."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from course.errors import CourseError
from course.learner import predictions
from course.measure.comparison import NARROW, Comparison, Interval
from course.training import speedrun as race
from course.training.race import Run
from instructor.authoring.records import Machine
from instructor.bench import cells, gpu, gpu_measures, grouping, speedrun

SAYS = "import json, sys; json.dump([['samples/s', '3 | 4']], open(sys.argv[1], 'w'))"
WAITS = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL)"  # which make in the background ignores
WAYS = {"quick": SAYS, "broken": SAYS + "; raise ValueError('no room')", "slow": f"{WAITS}; {SAYS}; time.sleep(60)"}


@pytest.fixture
def chain(monkeypatch, tmp_path):
    """Three steps that stand for the real ones, and how often each was started."""
    started = []

    def start(step, rows, dry_run, out):
        started.append(step.name)
        call = [sys.executable, "-c", WAYS[step.name], str(rows)]
        process = subprocess.Popen(call, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        while process.poll() is None and not (rows.exists() and rows.stat().st_size):
            time.sleep(0.01)  # its limit counts from here, however busy the machine is
        return process

    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    monkeypatch.setattr(gpu, "DRY_TABLE", tmp_path / "table.md")
    monkeypatch.setattr(gpu, "DRY_FOLDER", tmp_path / "recorded")
    monkeypatch.setattr(gpu, "_start", start)
    limits = {"quick": 60, "broken": 60, "slow": 1}
    monkeypatch.setattr(gpu, "DRY_RUN_FACTOR", 1)
    monkeypatch.setattr(gpu, "step_names", lambda: [*WAYS])
    monkeypatch.setattr(gpu, "steps", lambda *_, **__: [gpu.Step(name, limits[name]) for name in WAYS])
    return started


def test_a_step_that_fails_or_takes_too_long_is_told_and_the_chain_goes_on(chain, tmp_path):
    text = gpu.run(dry_run=True).read_text()
    assert chain == [*WAYS]
    assert "| quick | done |" in text and "| slow | ran into its limit of 1 s |" in text
    assert "| broken | failed |" in text and "no room" in text
    assert text.count("| samples/s | 3 \\| 4 |") == 3, "what a step had found stays"
    logs = {path.stem: path.read_text() for path in (tmp_path / "gpu-bench-logs").iterdir()}
    assert logs.keys() == {"broken", "slow"} and "Traceback" in logs["broken"]
    assert "No number here is a result" in text


CLAIM = dict(sentence="two are faster", held=True, value="1.6 times", machine="H", scale="gpu")
H200 = Machine("H200", "NVIDIA H200, torch 2", is_gpu=True)


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """The folder of records of a machine with a GPU, whose pages are not written."""
    monkeypatch.setattr(gpu, "FOLDER", tmp_path / "recorded")
    monkeypatch.setattr(gpu.documents, "write_documents", lambda: "")
    monkeypatch.delenv("OUT", raising=False)
    return tmp_path / "recorded"


def test_the_record_has_claims_steps_and_rows_and_a_later_call_keeps_them(recorded, tmp_path, monkeypatch):
    values = [{"what": "two over none", "measured": "1.6"}]
    part = gpu.Result("01_a/1_a", "H", "done", 2.0, [["cells that ran", "3 of 3"]], [CLAIM], values)
    gpu.write_results({part.step: part}, H200, dry_run=False)
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    gpu.write_results({"ncf": gpu.Result("ncf", "H", "done", 3.0, [["fp32", "1.0"]])}, H200, dry_run=False)
    record = gpu.records.read_record(H200, recorded)
    assert [facts["sentence"] for facts in record["parts"]["01_a/1_a"]["claims"]] == ["two are faster"]
    assert record["parts"]["01_a/1_a"]["predictions"] == values
    assert record["steps"] == {
        "01_a/1_a": {"status": "done", "seconds": 2.0, "rows": [["cells that ran", "3 of 3"]]},
        "ncf": {"status": "done", "seconds": 3.0, "rows": [["fp32", "1.0"]]},
    }
    there = tmp_path / "out" / "recorded" / H200.file_name
    assert json.loads(there.read_text()) == record, "a lent machine hands back what is in OUT"


def test_a_step_that_runs_again_loses_its_note_and_another_keeps_it(recorded):
    record = gpu.records.read_record(H200, recorded)
    for name in ("ncf", "copies"):
        record["steps"][name] = {"status": "done", "seconds": 1.0, "rows": [], "note": "once"}
    gpu.records.write_record(record, recorded)
    same = gpu.Result("copies", "H", "done", 1.0)
    gpu.write_results({"ncf": gpu.Result("ncf", "H", "done", 2.0), "copies": same}, H200, dry_run=False)
    steps = gpu.records.read_record(H200, recorded)["steps"]
    assert "note" not in steps["ncf"] and steps["copies"]["note"] == "once"


def test_steps_run_in_the_fixed_order_and_parts_without_a_row_first():
    names = gpu.step_names()
    parts = [name for name in names if "/" in name]
    behind = ["linear", "race", "ncf", "grouping", "copies", "checkup"]
    assert names == ["grading", "tests", "smoke", *parts, *behind]
    measured = {parts[0], parts[2], "ncf"}
    in_order = [step.name for step in gpu.steps(False, measured)]
    assert in_order[3 : 3 + len(parts)] == [*(set_without(parts, measured)), parts[0], parts[2]]
    assert in_order[-6:] == behind


def set_without(names, left_out):
    return [name for name in names if name not in left_out]


def test_smoke_has_a_row_for_each_part_and_fails_with_their_names(tmp_path, monkeypatch):
    errors = {"05_batch_grouping/1_a": "", "05_batch_grouping/2_b": "ValueError: no room"}
    places = [("01_other", "1_a"), *(tuple(place.split("/")) for place in errors)]
    monkeypatch.setattr(gpu_measures, "all_parts", lambda: places)
    monkeypatch.setattr(gpu_measures, "_smoke_part", lambda place, file: errors[place])
    monkeypatch.setenv("PRETEND_CUDA", "1")
    rows = gpu_measures.Rows(tmp_path / "rows.json")
    with pytest.raises(CourseError, match="1 of 2 parts: 05_batch_grouping/2_b"):
        gpu_measures.smoke(rows)
    assert sorted(json.loads(rows.path.read_text())) == [
        ["05_batch_grouping/1_a", "done"],
        ["05_batch_grouping/2_b", "ValueError: no room"],
    ]


def test_a_part_of_the_smoke_step_says_its_first_error(tmp_path, monkeypatch):
    def run(call, env, **options):
        assert env["COURSE_SCALE"] == "smoke"
        place, file = call[-2:]
        if place == "u/told":
            Path(file).write_text(json.dumps([["cells that ran", "2 of 3"], ["failed", "ValueError: x"]]))
        return subprocess.CompletedProcess(call, place != "u/good", "", "killed")

    monkeypatch.setattr(gpu_measures.subprocess, "run", run)
    found = [gpu_measures._smoke_part(f"u/{name}", tmp_path / name) for name in ("good", "told", "silent")]
    assert found == ["", "ValueError: x", "killed"]


def test_a_dry_run_has_more_time(monkeypatch, tmp_path):
    given = []
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "no such folder yet"))
    monkeypatch.setattr(gpu, "DRY_TABLE", tmp_path / "table.md")
    monkeypatch.setattr(gpu, "DRY_FOLDER", tmp_path / "recorded")
    monkeypatch.setattr(gpu, "_run", lambda step, *rest: given.append(rest[-1]) or gpu.Result("ncf", "h", "done", 1))
    gpu.run(dry_run=True, only=("ncf",))
    gpu.run(dry_run=True, only=("ncf",), minutes=2, fresh=True)
    assert given[0] == gpu.DRY_RUN_FACTOR * 180 and given[1] <= 120


def test_a_second_call_does_what_is_left(chain):
    gpu.run(dry_run=True, only=("quick",))
    gpu.run(dry_run=True)
    assert chain == ["quick", "broken", "slow"]
    gpu.run(dry_run=True)
    assert chain[3:] == ["broken"], "what failed is tried again"
    gpu.run(dry_run=True, only=("quick",), fresh=True)
    assert chain[4:] == ["quick"]


def test_a_line_that_was_cut_short_is_no_result_and_spoils_none(chain, tmp_path):
    gpu.run(dry_run=True, only=("quick",))
    log = tmp_path / "gpu-bench-dry.jsonl"
    log.write_text(log.read_text() + '{"step": "bro')
    gpu.run(dry_run=True, only=("quick", "slow"))
    gpu.run(dry_run=True, only=("quick", "slow"))
    assert chain == ["quick", "slow"]


def test_a_step_does_not_outlive_a_bench_that_is_interrupted():
    class Interrupted(subprocess.Popen):
        def wait(self, timeout=None):
            if timeout:
                raise KeyboardInterrupt
            return super().wait()

    process = Interrupted(["sleep", "60"], start_new_session=True)
    with pytest.raises(KeyboardInterrupt):
        gpu._ended(process, 1)
    assert process.returncode == -signal.SIGKILL


def test_without_a_gpu_the_refusal_says_what_to_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CourseError, match="needs a CUDA device, and torch finds none here; with --dry-run"):
        gpu.run()


def test_an_unknown_step_is_named():
    with pytest.raises(CourseError, match="no step is called 'speed'; there are grading, tests, smoke, 01_parallel"):
        gpu.run(dry_run=True, only=("speed",))


def test_rows_of_a_test_run_say_what_failed():
    said = "..F\nFAILED tests/test_x.py::test_y[cuda] - boom\n1 failed, 12 passed, 3 skipped in 4 s\n"
    expected = [["tests failed", "1"], ["tests passed", "12"], ["tests skipped", "3"], ["failed", "test_y[cuda]"]]
    assert gpu._test_rows(said) == expected


def test_grouping_writes_a_row_for_each_way(tmp_path, monkeypatch, capsys):
    seconds = {grouping.BASE: torch.full((7,), 0.4).double(), "grouped": torch.full((7,), 0.1).double()}
    compared = Comparison(seconds, Interval(1.0, 0.98, 1.02), NARROW)
    shares = {grouping.BASE: 1.0, "grouped": 0.05}
    monkeypatch.setattr(grouping, "epochs", lambda *_: grouping.Epochs(32, 1024, 90, 40, compared, shares))
    rows = gpu_measures.Rows(tmp_path / "rows.json")
    gpu_measures.grouping(rows)
    assert json.loads(rows.path.read_text()) == [
        [
            "grouping: one rectangle",
            "400.0 ms per epoch, 1.00 (1.00 to 1.00) times as fast, 100.0 % of the saved bytes",
        ],
        ["grouping: grouped", "100.0 ms per epoch, 4.00 (4.00 to 4.00) times as fast, 5.0 % of the saved bytes"],
    ]
    printed = capsys.readouterr().out
    assert "embedding 32: 1,024 sequences, 90 padded tokens, 40 real" in printed
    assert "control, one rectangle against itself: 1.00 (0.98 to 1.02); 7 rounds" in printed


def test_the_race_writes_the_latest_run_of_a_seed_at_once_and_a_row_for_each_contestant(tmp_path, monkeypatch):
    rows, seen = gpu_measures.Rows(tmp_path / "rows.json"), []

    def races(track, seeds, file):
        for name, seconds in (("plain", 3.0), ("everything", 1.5)):
            yield Run(name, 0, 2000.0, seconds, [], {}, "t", 0.3, "m", "now", test_accuracy=0.5)
            seen.append(json.loads(rows.path.read_text())[-1])

    monkeypatch.setattr(gpu_measures.fashion, "load", lambda name: None)
    monkeypatch.setattr(race, "track", lambda *_, **__: None)
    monkeypatch.setattr(speedrun, "races", races)
    gpu_measures.race(rows)
    assert seen == [["race: seed 0", "plain 3.0 s 2,000 images"], ["race: seed 0", "everything 1.5 s 2,000 images"]]
    assert json.loads(rows.path.read_text())[1:] == [
        [f"race: {speedrun.table_head(gpu_measures.at(1, 6))}", "; ".join(speedrun.COLUMNS)],
        ["race: plain", "3.0 (3.0 to 3.0); 2,000; 2.00 (no interval: fewer than 6 runs); 0.5000 (0.5000 to 0.5000)"],
        ["race: everything", "1.5 (1.5 to 1.5); 2,000; 1; 0.5000 (0.5000 to 0.5000)"],
    ]


def test_cells_run_in_order_with_their_claims(tmp_path, monkeypatch, capsys):
    master = '# %% [markdown]\n# text\n\n# %% locked="setup"\nimport course\nx = 2\n\n'
    master += '# %%\ncourse.claim("two", x == 2, x)\n'
    folder = tmp_path / "01_x"
    folder.mkdir()
    (folder / "1_y.py").write_text(master + "# %%\nassert x == 3\n")
    monkeypatch.setattr(cells, "solutions_folder", lambda: tmp_path)
    seen = []
    with pytest.raises(AssertionError) as info:
        cells.run_part("01_x", "1_y", lambda number, total, claims: seen.append((number, total, len(claims))))
    assert seen == [(1, 3, 0), (2, 3, 1)] and info.value.__notes__ == ["in cell 3 of 3"]
    assert "Holds here" in capsys.readouterr().out


def test_values_that_learners_predict_are_collected_and_not_kept(tmp_path, monkeypatch, capsys):
    (tmp_path / "01_x").mkdir()
    (tmp_path / "01_x/1_y.py").write_text(
        '# %%\nimport course\nprint(course.score("01/2", "two over none", None, 1.5))\n'
    )
    monkeypatch.setattr(cells, "solutions_folder", lambda: tmp_path)
    before, found = predictions._keep, []
    cells.run_part("01_x", "1_y", lambda *_: None, found)
    assert found == [{"what": "two over none", "measured": "1.50"}] and predictions._keep is before
    assert "two over none: 1.50" in capsys.readouterr().out


def test_the_files_of_the_test_step_exist():
    assert all((gpu.ROOT / path).is_file() for path in gpu.TESTED)
