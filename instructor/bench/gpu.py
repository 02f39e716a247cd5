"""Run everything that needs a GPU, in steps, and write recorded/<gpu>.json.

Steps may be interrupted at any time. They run one after the other, each in separate processes with
a limit of seconds. The record says which step failed or ran into its limit, and what it had
measured until then; the next step follows. Finished steps are kept, one line of JSON each, in
gpu-bench.jsonl of the data folder, so a second call runs those that are left or failed; the output
of a failed step is in gpu-bench-logs there.

After each step the record of this GPU is renewed (instructor/authoring/records.py), and
docs/results-gpu.md and the other pages made from records with it. If the environment names a folder
OUT, recorded/ is copied there: a lent machine hands back what is in that folder.

With --dry-run the chain runs at `smoke` size on a CUDA device that is pretended
(tests/pretend_cuda.py), and writes below build/: it shows that every step runs, and its numbers
mean nothing. There limits are DRY_RUN_FACTOR times as long, because that device is Python.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

import torch

from course.datasets import data_folder
from course.device import cores
from course.errors import CourseError
from course.learner.recorded import FOLDER
from course.notebook.registry import all_parts
from course.system.files import write_text
from course.system.folders import ROOT
from instructor.authoring import documents, records
from instructor.authoring.gpu_steps import (
    PART_SECONDS,
    SECONDS_BEFORE_PARTS,
    SECONDS_BEHIND_PARTS,
    step_names,
)
from instructor.authoring.records import Machine
from instructor.bench.places import PRETENDED, TESTS

DRY_FOLDER = ROOT / "build" / "recorded-dry"
DRY_TABLE = ROOT / "build" / "results-gpu-dry.md"
DRY_MACHINE = Machine("pretended", "a CUDA device that is not there", is_gpu=True)
CLAIMS = "claims.json"  # of a part, next to its rows
PREDICTIONS = "predictions.json"
DRY_RUN_FACTOR = 6  # times the seconds of a step that a dry run gives it
GRACE_SECONDS = 15  # that a step gets to say what it has found, once it is asked to end
WORKERS_MAX = 12  # of pytest
FAILED_TESTS_MAX = 20  # named in the table
FAILURE_CHARACTERS = 300  # of a failed step's output in the table
TESTED = [
    str(TESTS / f"test_{name}.py")
    for name in ("engine", "exercises", "measure", "models", "training", "copies", "fashion")
]


@dataclass(frozen=True)
class Step:
    """One step: how it is called, and how long it may take."""

    name: str
    seconds: int
    tests: tuple = ()  # arguments of pytest; else gpu_measures runs the step of this name


@dataclass
class Result:
    """What a step has shown."""

    step: str
    machine: str
    status: str  # "done", "failed" or "ran into its limit of N s"
    seconds: float
    rows: list = field(default_factory=list)  # (what, value)
    claims: list = field(default_factory=list)  # of a part: the fields of claims.Claim
    predictions: list = field(default_factory=list)  # of a part: {"what": ..., "measured": ...}


Results = dict[str, Result]  # by the name of their step


def steps(dry_run: bool, measured: Collection[str] = ()) -> list[Step]:
    """All steps in the order in which they run, what finds most first.

    Args:
        measured: steps that have a row already; parts among them come behind the others.
    """
    tests = (*TESTED, "-k", "cuda")
    if dry_run:
        tests = (str(TESTS / "test_pretend_cuda.py"), "-k", "05 or 06")
    found = []
    for name, seconds in SECONDS_BEFORE_PARTS.items():
        found.append(Step(name, seconds, (*tests, "--tier", "test") if name == "tests" else ()))
    places = [f"{unit}/{part}" for unit, part in all_parts()]
    places.sort(key=lambda place: place in measured)  # stable
    found += [Step(place, PART_SECONDS) for place in places]
    found += [Step(name, seconds) for name, seconds in SECONDS_BEHIND_PARTS.items()]
    return found


def run(
    dry_run: bool = False, minutes: float | None = None, only: tuple = (), fresh: bool = False
) -> Path:
    """Run the steps that are not kept yet and return the page with their table.

    Record and page are renewed after each step.

    Args:
        minutes: when to stop: a step's limit is cut to what is left (default: no such limit).
        only: names of steps, or of units, to leave the others out.
        fresh: forget the kept steps.

    Raises: CourseError where there is no GPU and no dry run, or no such step.
    """
    machine = DRY_MACHINE if dry_run else _gpu()
    log = data_folder() / ("gpu-bench-dry.jsonl" if dry_run else "gpu-bench.jsonl")
    if fresh:
        log.unlink(missing_ok=True)
    folder = DRY_FOLDER if dry_run else FOLDER
    measured = records.read_record(machine, folder)["steps"]
    wanted = _wanted(steps(dry_run, measured), only)
    path = DRY_TABLE if dry_run else documents.DOCS / "results-gpu.md"
    for results in _growing(wanted, log, machine.details, dry_run, minutes):
        write_results(results, machine, dry_run)
    print(f"written: {path}")
    return path


def _growing(
    wanted: list[Step], log: Path, here: str, dry_run: bool, minutes: float | None
) -> Iterator[Results]:
    """Yield the results: those that are kept, then again after each step that has run."""
    end = time.monotonic() + 60 * minutes if minutes else float("inf")
    log.parent.mkdir(parents=True, exist_ok=True)
    results = _read(log, here)
    yield results
    for step in wanted:
        if step.name in results:
            print(f"{step.name}: kept", flush=True)
            continue
        left = end - time.monotonic() - GRACE_SECONDS
        if left < GRACE_SECONDS:
            print(f"{minutes:g} minutes are over; call again to continue with {step.name}.")
            break
        seconds = step.seconds * (DRY_RUN_FACTOR if dry_run else 1)
        result = _run(step, here, dry_run, min(seconds, left))
        results[step.name] = result
        had_all_its_time = seconds <= left
        if result.status == "done" or (result.status != "failed" and had_all_its_time):
            _keep(result, log)  # others are tried again
        print(f"{step.name}: {result.status}, {result.seconds:.0f} s", flush=True)
        yield results


def _gpu() -> Machine:
    """The machine with its GPU.  Raises: CourseError where there is none."""
    if not torch.cuda.is_available():
        raise CourseError(
            "course bench gpu needs a CUDA device, and torch finds none here; "
            "with --dry-run all of it runs at smoke size on a pretended one."
        )
    return records.this_machine()


def _wanted(all_steps: list[Step], only: tuple[str, ...]) -> list[Step]:
    """The steps whose names begin with one of `only`; all if there is none."""
    names = [step.name for step in all_steps]
    for beginning in only:
        if not any(name.startswith(beginning) for name in names):
            known = ", ".join(names)
            raise CourseError(f"no step is called {beginning!r}; there are {known}.")
    if not only:
        return all_steps
    return [step for step in all_steps if step.name.startswith(tuple(only))]


# ---- kept results


def _keep(result: Result, log: Path) -> None:
    with log.open("a") as file:
        # on a new line, even if the last write was cut off
        file.write(f"\n{json.dumps(asdict(result))}\n")


def _read(log: Path, here: str) -> Results:
    """The kept results of this machine."""
    if not log.exists():
        return {}
    results = {}
    for line in log.read_text().splitlines():
        # a line may be not written to its end, or by another version
        with contextlib.suppress(ValueError, TypeError):
            result = Result(**json.loads(line))
            if result.machine == here and result.status != "failed":
                results[result.step] = result
    return results


# ---- one step


def _run(step: Step, here: str, dry_run: bool, limit: float) -> Result:
    """The Result of a step that is given `limit` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        rows_file = Path(folder, "rows.json")
        log = Path(folder, "log")
        began = time.monotonic()
        with log.open("wb") as out:
            status = _ended(_start(step, rows_file, dry_run, out), limit)
        output = log.read_text(errors="replace")
        rows = _test_rows(output) if step.tests else _json_in(rows_file)
        claims = _json_in(rows_file.with_name(CLAIMS))
        predictions = _json_in(rows_file.with_name(PREDICTIONS))
    if status != "done":  # its row holds the end of this; the reason may be before it
        name = step.name.replace("/", "-")
        write_text(data_folder() / "gpu-bench-logs" / f"{name}.log", output)
    if status == "failed" and not any(what == "failed" for what, _ in rows):
        rows.append(["failed", " ".join(output.split())[-FAILURE_CHARACTERS:]])
    seconds = time.monotonic() - began
    return Result(step.name, here, status, seconds, rows, claims, predictions)


def _json_in(path: Path) -> list:
    return json.loads(path.read_text()) if path.exists() else []


def _start(step: Step, rows_file: Path, dry_run: bool, out: IO[bytes]) -> subprocess.Popen:
    """Start the process of a step as the leader of a new process group."""
    return subprocess.Popen(
        _command(step, rows_file, dry_run),
        cwd=ROOT,
        env=_environment(step, dry_run),
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_heed_interrupts,
    )


def _command(step: Step, rows_file: Path, dry_run: bool) -> list[str]:
    python = [sys.executable, "-W", "ignore", "-m"]
    if not step.tests:
        return [*python, "instructor.bench.gpu_measures", step.name, str(rows_file)]
    workers = []
    if importlib.util.find_spec("xdist") and not dry_run:
        workers = ["-n", str(min(WORKERS_MAX, cores()))]
    # pytest-benchmark, where it is installed, warns of xdist, and warnings are errors
    plugins = ["-p", "no:cacheprovider", "-p", "no:benchmark"]
    return [*python, "pytest", "-q", *plugins, *workers, *step.tests]


def _environment(step: Step, dry_run: bool) -> dict[str, str]:
    env = os.environ | {"COURSE_SCALE": "smoke" if dry_run else "gpu", "COURSE_ANSWERS": "off"}
    env.setdefault("PYTHONPATH", str(ROOT))
    if step.tests:
        env["OMP_NUM_THREADS"] = "1"  # as many run as there are cores
    if dry_run and not step.tests:
        env |= {"PRETEND_CUDA": "1", "COURSE_DEVICE": "cuda"}
        env["PYTHONPATH"] = os.pathsep.join([str(PRETENDED), env["PYTHONPATH"]])
    return env


def _heed_interrupts() -> None:
    """Let SIGINT end this process; in one that a shell started in the background it would not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _ended(process: subprocess.Popen, limit: float) -> str:
    """How the process ended, for Result.status.

    It and its children are gone then, also if waiting for it is interrupted.
    """
    try:
        process.wait(limit)
        return "failed" if process.returncode else "done"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # pytest then says how far it got
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
        return f"ran into its limit of {limit:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _test_rows(output: str) -> list[list[str]]:
    """Rows of pytest's last line and of the tests that failed."""
    last_lines = "\n".join(output.splitlines()[-3:])
    counts = re.findall(r"(\d+) (passed|failed|skipped|deselected|errors?)\b", last_lines)
    failed = re.findall(r"^(?:FAILED|ERROR) \S*?::(\S+)", output, re.MULTILINE)
    rows = [[f"tests {kind}", number] for number, kind in counts]
    rows += [["failed", name] for name in failed[:FAILED_TESTS_MAX]]
    return rows


# ---- the record and its page


def write_results(results: Results, machine: Machine, dry_run: bool) -> None:
    """Put `results` into the record of `machine`, and renew the pages made from it."""
    folder = DRY_FOLDER if dry_run else FOLDER
    record = records.read_record(machine, folder)
    for result in results.values():
        step = {"status": result.status, "seconds": result.seconds, "rows": result.rows}
        earlier = record["steps"].get(result.step, {})
        if {name: earlier.get(name) for name in step} == json.loads(json.dumps(step)):
            continue
        record["steps"][result.step] = step
        if "/" in result.step:
            is_whole = result.status == "done"
            records.record_part(record, result.step, result.claims, result.predictions, is_whole)
    records.write_record(record, folder)
    if dry_run:
        write_text(DRY_TABLE, documents.gpu_text([record], step_names(), is_dry=True))
        return
    documents.write_documents()
    if os.environ.get("OUT"):
        shutil.copytree(folder, Path(os.environ["OUT"]) / folder.name, dirs_exist_ok=True)
