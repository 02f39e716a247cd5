"""Run everything that needs a GPU, in steps that may be interrupted at any time, and write
docs/results-gpu.md.

Steps run one after the other, each in processes of its own with a limit of seconds. The table says
which step failed or ran into its limit, and what it had measured until then; the next step follows.
Finished steps are kept, one line of JSON each, so a second call runs those that are left or failed;
the output of a failed step is in gpu-bench-logs of the data folder. The claims of the parts go into
docs/claims-gpu.json, from which docs/claims.md gets its GPU column
(instructor/authoring/claims.py).

With --dry-run the chain runs at `smoke` size on a CUDA device that is pretended
(tests/pretend_cuda.py): it shows that every step runs, and its numbers mean nothing. There limits
are DRY times as long, because that device is Python.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from course.datasets import data_folder
from course.device import machine
from course.errors import CourseError
from course.notebook.registry import parts, units
from course.system.files import write_text
from course.system.folders import ROOT

TABLE = ROOT / "docs" / "results-gpu.md"
DRY_TABLE = ROOT / "build" / "results-gpu-dry.md"
CLAIMS = "claims-gpu.json"  # beside the table, as instructor/authoring/claims.py expects it
DRY = 6  # times the seconds of a step that a dry run gives it
BEGIN, END = "<!-- course bench gpu writes what follows -->", "<!-- course bench gpu wrote that -->"
GRACE = 15  # seconds that a step gets to say what it has found, once it is asked to end
TESTED = [
    f"tests/test_{name}.py"
    for name in "engine exercises measure models training copies fashion".split()
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
    rows: list = field(default_factory=list)
    # of a part: the facts of course.learner.claims.Claim
    claims: list = field(default_factory=list)


def steps(dry_run: bool) -> list[Step]:
    """All steps in the order of what they are worth."""
    tests = ("tests/test_pretend_cuda.py", "-k", "05 or 06") if dry_run else (*TESTED, "-k", "cuda")
    all_steps = [Step("tests", 420, (*tests, "--tier", "test"))]
    all_steps += [Step(f"{unit}/{part}", 300) for unit in units() for part in parts(unit)]
    measures = {
        "ncf": 180,
        "linear": 400,
        "grouping": 180,
        "copies": 90,
        "race": 400,
        "grading": 300,
        "checkup": 120,
    }
    return all_steps + [Step(name, seconds) for name, seconds in measures.items()]


def run(
    dry_run: bool = False, minutes: float | None = None, only: tuple = (), fresh: bool = False
) -> Path:
    """Run the steps that are not kept yet and return the file with the table, which is renewed
    after each.

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
    wanted, table = _wanted(steps(dry_run), only), DRY_TABLE if dry_run else TABLE
    for results in _growing(wanted, record, here, dry_run, minutes):
        write_results(table, results, here, dry_run)
    print(f"written: {table}")
    if not dry_run:
        print(_claims_renewed())
    return table


def _growing(wanted, record, here, dry_run, minutes):
    """Yield {step: Result}: what is kept, then again after each step that has run."""
    end = time.monotonic() + 60 * minutes if minutes else float("inf")
    record.parent.mkdir(parents=True, exist_ok=True)
    yield (results := _read(record, here))
    for step in wanted:
        if step.name in results:
            print(f"{step.name}: kept", flush=True)
            continue
        left = end - time.monotonic() - GRACE
        if left < GRACE:
            print(f"{minutes:g} minutes are over; call again to continue with {step.name}.")
            break
        seconds = step.seconds * (DRY if dry_run else 1)
        result = _run(step, here, dry_run, min(seconds, left))
        results[step.name] = result
        if (
            result.status == "done" or result.status != "failed" and seconds <= left
        ):  # others are tried again
            with record.open("a") as file:
                # on a line of its own, whatever is before it
                file.write(f"\n{json.dumps(asdict(result))}\n")
        print(f"{step.name}: {result.status}, {result.seconds:.0f} s", flush=True)
        yield results


def _gpu():
    """The name of the machine with its GPU.  Raises: CourseError where there is none."""
    if not torch.cuda.is_available():
        reason = "course bench gpu needs a CUDA device, and torch finds none here"
        raise CourseError(
            f"{reason}; with --dry-run all of it runs at smoke size on a pretended one."
        )
    return machine()


def _wanted(all_steps, only):
    unknown = [name for name in only if not any(step.name.startswith(name) for step in all_steps)]
    if unknown:
        raise CourseError(
            f"no step is called {unknown[0]!r}; there are {', '.join(step.name for step in all_steps)}."
        )
    return [
        step for step in all_steps if not only or any(step.name.startswith(name) for name in only)
    ]


def _read(record, here):
    """{step: its kept Result on this machine}."""
    if not record.exists():
        return {}
    results = []
    for line in record.read_text().splitlines():
        with contextlib.suppress(
            ValueError, TypeError
        ):  # not written to its end, or by another version
            results.append(Result(**json.loads(line)))
    return {
        result.step: result
        for result in results
        if result.machine == here and result.status != "failed"
    }


def _run(step, here, dry_run, limit):
    """The Result of a step that is given `limit` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        rows, log = Path(folder) / "rows.json", Path(folder) / "log"
        began = time.monotonic()
        with log.open("wb") as out:
            status = _ended(_start(step, rows, dry_run, out), limit)
        said = log.read_text(errors="replace")
        rows_of_step = (
            _test_rows(said)
            if step.tests
            else json.loads(rows.read_text())
            if rows.exists()
            else []
        )
        if status != "done":  # its row holds the end of this; the reason may be before it
            write_text(
                data_folder() / "gpu-bench-logs" / f"{step.name.replace('/', '-')}.log", said
            )
        if status == "failed" and not any(row[0] == "failed" for row in rows_of_step):
            rows_of_step.append(["failed", " ".join(said.split())[-300:]])
        claims = rows.with_name(CLAIMS)
        claims = json.loads(claims.read_text()) if claims.exists() else []
    return Result(step.name, here, status, time.monotonic() - began, rows_of_step, claims)


def _start(step, rows, dry_run, out):
    """The process of a step, first of a group of its own."""
    env = os.environ | {"COURSE_SCALE": "smoke" if dry_run else "gpu", "COURSE_ANSWERS": "off"}
    env.setdefault("PYTHONPATH", str(ROOT))
    if dry_run and not step.tests:
        env |= {"PRETEND_CUDA": "1", "COURSE_DEVICE": "cuda"}
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests" / "pretended"), env["PYTHONPATH"]])
    call = [sys.executable, "-W", "ignore", "-m"]
    if step.tests:
        workers = (
            ["-n", str(min(12, os.cpu_count()))]
            if importlib.util.find_spec("xdist") and not dry_run
            else []
        )
        call += ["pytest", "-q", "-p", "no:cacheprovider", *workers, *step.tests]
    else:
        call += ["instructor.bench.gpu_measures", step.name, str(rows)]
    words = dict(
        stdout=out, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_heed_interrupts
    )
    return subprocess.Popen(call, cwd=ROOT, env=env, **words)


def _heed_interrupts():
    """SIGINT ends this process, as it does not in one that a shell has started in the
    background.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _ended(process, limit):
    """How the process ended; it and its children are gone, also if waiting for it is
    interrupted.
    """
    try:
        process.wait(limit)
        return "failed" if process.returncode else "done"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # pytest then says how far it got
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        return f"ran into its limit of {limit:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _test_rows(said):
    """Rows of pytest's last line and of the tests that failed."""
    counts = re.findall(
        r"(\d+) (passed|failed|skipped|deselected|errors?)\b", "\n".join(said.splitlines()[-3:])
    )
    failed = re.findall(r"^(?:FAILED|ERROR) \S*?::(\S+)", said, re.MULTILINE)
    return [[f"tests {kind}", number] for number, kind in counts] + [
        ["failed", name] for name in failed[:20]
    ]


# ---- the table and the claims


def write_results(path: Path, results: dict[str, Result], here: str, dry_run: bool) -> None:
    """Write the table into `path`, replacing that of an earlier call, and the claims into CLAIMS
    beside it.
    """
    order = [step.name for step in steps(dry_run)]
    results = sorted(
        results.values(),
        key=lambda result: order.index(result.step) if result.step in order else -1,
    )
    text = path.read_text() if path.exists() else f"# Results on a GPU\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    write_text(path, f"{before}{BEGIN}\n{table(results, here, dry_run)}{END}{after}")
    claims = {result.step: result.claims for result in results if result.claims}
    if claims:
        write_text(path.with_name(CLAIMS), json.dumps(claims, indent=1) + "\n")


def _claims_renewed():
    """Write docs/claims.md again where nbformat can read the notebooks; return a line on it."""
    try:
        from instructor.authoring.claims import write_claims
    except ImportError:
        return "docs/claims.md gets its GPU column where Jupyter is installed: python -m instructor.authoring.claims"
    return write_claims()


def table(results: list[Result], here: str, dry_run: bool) -> str:
    """The text of the results: a line per part, then one per measured row."""
    lines = [f"\nMachine: {here}.\n"]
    if dry_run:
        lines += [
            "A dry run: sizes are those of `smoke`, computed on the CPU. No number here is a result.\n"
        ]
    lines += [
        "| step | ended | seconds | cells | claims that held | did not hold, or failed |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        rows = dict(result.rows)
        cells = [result.step, result.status, f"{result.seconds:.0f}", rows.get("cells that ran", ""),
                 rows.get("claims that held", ""), rows.get("failed") or rows.get("did not hold", "")]  # fmt: skip
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    lines += ["\n| step | measured | median (lowest to highest) |", "|---|---|---|"]
    for result in [result for result in results if "/" not in result.step]:
        for what, value in result.rows:
            lines.append("| " + " | ".join(map(_cell, (result.step, what, value))) + " |")
    return "\n".join([*lines, ""])


def _cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")
