"""Run everything that needs a GPU, in steps, and write docs/results-gpu.md.

Steps may be interrupted at any time. They run one after the other, each in separate processes with
a limit of seconds. The table says which step failed or ran into its limit, and what it had
measured until then; the next step follows. Finished steps are kept, one line of JSON each, so a
second call runs those that are left or failed; the output of a failed step is in gpu-bench-logs of
the data folder. The claims of the parts go into docs/claims-gpu.json, from which docs/claims.md
gets its GPU column (instructor/authoring/claims.py).

With --dry-run the chain runs at `smoke` size on a CUDA device that is pretended
(tests/pretend_cuda.py): it shows that every step runs, and its numbers mean nothing. There limits
are DRY_RUN_FACTOR times as long, because that device is Python.
"""

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

import torch

from course.datasets import data_folder
from course.device import machine
from course.errors import CourseError
from course.notebook.registry import parts, units
from course.system.files import write_text
from course.system.folders import ROOT
from instructor.bench.places import PRETENDED, TESTS

TABLE = ROOT / "docs" / "results-gpu.md"
DRY_TABLE = ROOT / "build" / "results-gpu-dry.md"
CLAIMS = "claims-gpu.json"  # in the table's folder, as instructor/authoring/claims.py expects it
BEGIN = "<!-- course bench gpu writes what follows -->"
END = "<!-- course bench gpu wrote that -->"
DRY_RUN_FACTOR = 6  # times the seconds of a step that a dry run gives it
GRACE_SECONDS = 15  # that a step gets to say what it has found, once it is asked to end
WORKERS_MAX = 12  # of pytest
FAILED_TESTS_MAX = 20  # named in the table
FAILURE_CHARACTERS = 300  # of a failed step's output in the table
TESTED = [
    str(TESTS / f"test_{name}.py")
    for name in ("engine", "exercises", "measure", "models", "training", "copies", "fashion")
]
MEASURE_SECONDS = {
    "ncf": 180,
    "linear": 400,
    "grouping": 180,
    "copies": 90,
    "race": 400,
    "grading": 300,
    "checkup": 120,
}


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


Results = dict[str, Result]  # by the name of their step


def steps(dry_run: bool) -> list[Step]:
    """All steps in the order of what they are worth."""
    tests = (*TESTED, "-k", "cuda")
    if dry_run:
        tests = (str(TESTS / "test_pretend_cuda.py"), "-k", "05 or 06")
    found = [Step("tests", 420, (*tests, "--tier", "test"))]
    for unit in units():
        found += [Step(f"{unit}/{part}", 300) for part in parts(unit)]
    found += [Step(name, seconds) for name, seconds in MEASURE_SECONDS.items()]
    return found


def run(
    dry_run: bool = False, minutes: float | None = None, only: tuple = (), fresh: bool = False
) -> Path:
    """Run the steps that are not kept yet and return the file with the table.

    The table is renewed after each step.

    Args:
        minutes: when to stop: a step's limit is cut to what is left (default: no such limit).
        only: names of steps, or of units, to leave the others out.
        fresh: forget the kept steps.

    Raises: CourseError where there is no GPU and no dry run, or no such step.
    """
    here = "a CUDA device that is not there" if dry_run else _gpu()
    record = data_folder() / ("gpu-bench-dry.jsonl" if dry_run else "gpu-bench.jsonl")
    if fresh:
        record.unlink(missing_ok=True)
    wanted = _wanted(steps(dry_run), only)
    path = DRY_TABLE if dry_run else TABLE
    for results in _growing(wanted, record, here, dry_run, minutes):
        write_results(path, results, here, dry_run)
    print(f"written: {path}")
    if not dry_run:
        print(_claims_renewed())
    return path


def _growing(
    wanted: list[Step], record: Path, here: str, dry_run: bool, minutes: float | None
) -> Iterator[Results]:
    """Yield the results: those that are kept, then again after each step that has run."""
    end = time.monotonic() + 60 * minutes if minutes else float("inf")
    record.parent.mkdir(parents=True, exist_ok=True)
    results = _read(record, here)
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
            _keep(result, record)  # others are tried again
        print(f"{step.name}: {result.status}, {result.seconds:.0f} s", flush=True)
        yield results


def _gpu() -> str:
    """The name of the machine with its GPU.  Raises: CourseError where there is none."""
    if not torch.cuda.is_available():
        raise CourseError(
            "course bench gpu needs a CUDA device, and torch finds none here; "
            "with --dry-run all of it runs at smoke size on a pretended one."
        )
    return machine()


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


def _keep(result: Result, record: Path) -> None:
    with record.open("a") as file:
        # on a new line, even if the last write was cut off
        file.write(f"\n{json.dumps(asdict(result))}\n")


def _read(record: Path, here: str) -> Results:
    """The kept results of this machine."""
    if not record.exists():
        return {}
    results = {}
    for line in record.read_text().splitlines():
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
    if status != "done":  # its row holds the end of this; the reason may be before it
        name = step.name.replace("/", "-")
        write_text(data_folder() / "gpu-bench-logs" / f"{name}.log", output)
    if status == "failed" and not any(what == "failed" for what, _ in rows):
        rows.append(["failed", " ".join(output.split())[-FAILURE_CHARACTERS:]])
    return Result(step.name, here, status, time.monotonic() - began, rows, claims)


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
        workers = ["-n", str(min(WORKERS_MAX, os.cpu_count()))]
    return [*python, "pytest", "-q", "-p", "no:cacheprovider", *workers, *step.tests]


def _environment(step: Step, dry_run: bool) -> dict[str, str]:
    env = os.environ | {"COURSE_SCALE": "smoke" if dry_run else "gpu", "COURSE_ANSWERS": "off"}
    env.setdefault("PYTHONPATH", str(ROOT))
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


# ---- the table and the claims


def write_results(path: Path, results: Results, here: str, dry_run: bool) -> None:
    """Write the table into `path`, over that of an earlier call, and the claims next to it."""
    order = [step.name for step in steps(dry_run)]

    def place(result: Result) -> int:
        return order.index(result.step) if result.step in order else -1

    in_order = sorted(results.values(), key=place)
    text = path.read_text() if path.exists() else f"# Results on a GPU\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    write_text(path, f"{before}{BEGIN}\n{table(in_order, here, dry_run)}{END}{after}")
    claims = {result.step: result.claims for result in in_order if result.claims}
    if claims:
        write_text(path.with_name(CLAIMS), json.dumps(claims, indent=1) + "\n")


def _claims_renewed() -> str:
    """Write docs/claims.md again where nbformat can read the notebooks; return a line on it."""
    try:
        from instructor.authoring.claims import write_claims
    except ImportError:
        return (
            "docs/claims.md gets its GPU column where Jupyter is installed: "
            "python -m instructor.authoring.claims"
        )
    return write_claims()


def table(results: list[Result], here: str, dry_run: bool) -> str:
    """The text of the results: a line per part, then one per measured row."""
    lines = [f"\nMachine: {here}.\n"]
    if dry_run:
        lines.append(
            "A dry run: sizes are those of `smoke`, computed on the CPU. "
            "No number here is a result.\n"
        )
    lines.append("| step | ended | seconds | cells | claims that held | did not hold, or failed |")
    lines.append("|---|---|---|---|---|---|")
    for result in results:
        rows = dict(result.rows)
        lines.append(
            _line(
                result.step,
                result.status,
                f"{result.seconds:.0f}",
                rows.get("cells that ran", ""),
                rows.get("claims that held", ""),
                rows.get("failed") or rows.get("did not hold", ""),
            )
        )
    lines += ["\n| step | measured | median (lowest to highest) |", "|---|---|---|"]
    for result in results:
        if "/" not in result.step:  # a part has its rows above
            lines += [_line(result.step, what, value) for what, value in result.rows]
    return "\n".join([*lines, ""])


def _line(*cells: object) -> str:
    """A line of a table in Markdown."""
    texts = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells]
    return "| " + " | ".join(texts) + " |"
