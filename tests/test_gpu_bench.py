"""course bench gpu goes on behind a step that fails or takes too long, and where it was when it is called again."""

import json
import signal
import subprocess
import sys
import time

import pytest
import torch

from course.errors import CourseError
from course.measure.comparison import NARROW, Comparison, Interval
from course.training import speedrun as race
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
    monkeypatch.setattr(gpu, "_start", start)
    limits = {"quick": 60, "broken": 60, "slow": 1}
    monkeypatch.setattr(gpu, "DRY_RUN_FACTOR", 1)
    monkeypatch.setattr(gpu, "steps", lambda dry_run: [gpu.Step(name, limits[name]) for name in WAYS])
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


def test_claims_are_written_beside_the_table(chain, monkeypatch, tmp_path):
    facts = dict(sentence="two are faster", held=True, value="1.6 times", machine="H", scale="gpu")
    says = f"import json, sys; json.dump([{facts}], open(sys.argv[1].replace('rows.json', {gpu.CLAIMS!r}), 'w'))"
    monkeypatch.setitem(WAYS, "quick", says)
    gpu.run(dry_run=True, only=("quick", "broken"))
    gpu.run(dry_run=True, only=("slow",))  # a later call keeps them
    assert json.loads((tmp_path / gpu.CLAIMS).read_text()) == {"quick": [facts]}


def test_a_dry_run_has_more_time(monkeypatch, tmp_path):
    given = []
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "no such folder yet"))
    monkeypatch.setattr(gpu, "DRY_TABLE", tmp_path / "table.md")
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


def test_what_is_around_the_results_stays(tmp_path):
    path = tmp_path / "results.md"
    path.write_text(f"above\n{gpu.BEGIN}\nearlier\n{gpu.END}\nbelow\n")
    gpu.write_results(path, {"ncf": gpu.Result("ncf", "H", "done", 3.0, [["fp32", "1.0"]])}, "H", False)
    text = path.read_text()
    assert text.startswith("above\n") and text.endswith("\nbelow\n")
    assert "earlier" not in text and "| ncf | fp32 |" in text


def test_without_a_gpu_the_refusal_says_what_to_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CourseError, match="needs a CUDA device, and torch finds none here; with --dry-run"):
        gpu.run()


def test_an_unknown_step_is_named():
    with pytest.raises(CourseError, match="no step is called 'speed'; there are tests, 01_parallel_loading/1_inside"):
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
            yield race.Run(name, 0, seconds, 2.0, [], {}, "t", 0.3, "m", "now", test_accuracy=0.5)
            seen.append(json.loads(rows.path.read_text())[-1])

    monkeypatch.setattr(gpu_measures.fashion, "load", lambda name: None)
    monkeypatch.setattr(race, "track", lambda *_, **__: None)
    monkeypatch.setattr(speedrun, "races", races)
    gpu_measures.race(rows)
    assert seen == [["race: seed 0", "plain 3.0 s 2.00 epochs"], ["race: seed 0", "everything 1.5 s 2.00 epochs"]]
    assert json.loads(rows.path.read_text())[1:] == [
        [f"race: {speedrun.table_head(gpu_measures.at(1, 3))}", "seconds; epochs; over everything; test accuracy"],
        ["race: plain", "3.0 (3.0 to 3.0); 2.00; 2.00 (interval unknown); 0.5000 (0.5000 to 0.5000)"],
        ["race: everything", "1.5 (1.5 to 1.5); 2.00; 1; 0.5000 (0.5000 to 0.5000)"],
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


def test_the_files_of_the_test_step_exist():
    assert all((gpu.ROOT / path).is_file() for path in gpu.TESTED)
