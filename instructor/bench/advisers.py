"""What three advisers say of a script: the check-up, TraceML, and torch's own anti-patterns.

Each runs in a process of its own with a limit, so that a crash or a hang is a row of the table. The
check-up runs a script as it is. TraceML needs a line in the loop, which `instrumented` adds; torch
looks at six steps under its profiler. All three end after as many steps.
"""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from course.checkup.advice.rule import BOUND, PREDICTED, TRIED
from course.checkup.facts import FUSED, TF32

SECONDS_MAX = 150  # of one run, and of the check-up longer by MINUTES_TIMES its --minutes
MINUTES_TIMES = 6
PEER_STEPS, PEER_SECONDS = 250, 8  # that TraceML sees, whichever is over first
CHECKUP, TRACEML, PATTERNS = "check-up", "TraceML", "torch's patterns"
CRASH, HANG = "crash", "hang"
# what TraceML finds -> the part of a step that it points at
VERDICTS = {
    "INPUT": "data",
    "RESIDUAL": "code",
    "COMPUTE": "compute",
    "H2D": "data",
    "NO CLEAR": "",
    "INSUFFICIENT": "",
    "BALANCED": "",
}
NO_ALARM = ("", "compute")  # most time may go into computing
# a pattern of torch -> the rule of the check-up that finds the same
RULES_OF_PATTERNS = {
    "Synchronized DataLoader Pattern": ("workers",),
    "Optimizer Single Tensor Pattern": (FUSED, "optimizers"),
    "Gradient Set To Zero Instead of None Pattern": ("zeroed",),
    "FP32 MatMul Pattern": (TF32,),
}
WRAPPED = ast.parse("traceml.wrap_dataloader_fetch", mode="eval").body
INSTRUMENTED = """
import time, traceml_ai as traceml
from torch.optim.optimizer import register_optimizer_step_post_hook
traceml.init(mode="auto")
traceml_steps, traceml_leader = [], []
def traceml_count(optimizer, args, kwargs):
    traceml_leader.append(optimizer)
    if optimizer is traceml_leader[0]:
        traceml_steps.append(time.perf_counter())
        if len(traceml_steps) > {steps} or traceml_steps[-1] - traceml_steps[0] > {seconds}:
            raise SystemExit(0)
register_optimizer_step_post_hook(traceml_count)
"""


@dataclass(frozen=True)
class Said:
    """What an adviser said first of a script, and what asking it took.

    Attributes:
        name: of the check-up's rule, of torch's pattern, or TraceML's part of a step; "" if it
            said nothing.
        gain: times as fast, as it was tried or predicted; None if it was not.
        cost: share by which a step got longer; None if it was not measured.
        failed: CRASH or HANG; else "".
        seconds: from start to end.
        bound: times as fast at most, where that alone was said.
    """

    name: str
    text: str
    gain: float | None = None
    cost: float | None = None
    failed: str = ""
    seconds: float = 0.0
    bound: float | None = None


def ask_checkup(path: Path, steps: int, minutes: float, ranks: int = 1) -> Said:
    """What the check-up says."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        call = ["course.checkup", "--steps", str(steps), "--minutes", str(minutes)]
        call += ["--json", str(file), str(path)]
        if ranks > 1:
            local = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks)]
            call = ["torch.distributed.run", *local, "-m", *call]
        ended = _run(["-m", *call], folder, MINUTES_TIMES * 60 * minutes)
        if isinstance(ended, Said):
            return ended
        if not file.exists():
            return _crashed(ended)
        data = json.loads(file.read_text(encoding="utf-8"))
    seconds = ended.seconds
    if not data["advice"]:
        return Said("", "nothing", None, data["own_cost"], seconds=seconds)
    first = data["advice"][0]
    gain = first["gain"] if first["basis"] in (TRIED, PREDICTED) else None
    most = first["bound"] if first["basis"] == BOUND else None
    return Said(first["name"], first["text"], gain, data["own_cost"], "", seconds, most)


def ask_traceml(path: Path, steps: int) -> Said:
    """What TraceML says of a script whose loop has its line."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, path.name)
        source = instrumented(path.read_text(encoding="utf-8"))
        head = INSTRUMENTED.format(steps=PEER_STEPS, seconds=PEER_SECONDS)
        script.write_text(head + source, encoding="utf-8")
        ended = _run(["-m", "traceml_ai.launcher.cli", "run", str(script)], folder)
    if isinstance(ended, Said):
        return ended
    found = re.search(r"Verdict: ([^|]*?)\s*\|", ended.output)
    if found is None:
        return _crashed(ended)
    verdict = found[1].strip()
    name = next((part for word, part in VERDICTS.items() if verdict.startswith(word)), verdict)
    return Said(name, verdict, seconds=ended.seconds)


def ask_patterns(path: Path, steps: int) -> Said:
    """The first anti-pattern that torch.profiler reports."""
    with tempfile.TemporaryDirectory() as folder:
        call = ["-m", "instructor.bench.anti_patterns", str(path), f"{folder}/found.json"]
        ended = _run(call, folder)
        if isinstance(ended, Said):
            return ended
        file = Path(folder, "found.json")
        if not file.exists():
            return _crashed(ended)
        found = json.loads(file.read_text(encoding="utf-8"))
    names = found["patterns"]
    first = names[0] if names else ""
    return Said(first, first or "nothing", None, found["cost"], seconds=ended.seconds)


PEERS = {TRACEML: ask_traceml, PATTERNS: ask_patterns}


def peers() -> list[str]:
    """The other advisers that this machine has."""
    has_traceml = importlib.util.find_spec("traceml_ai") is not None
    return [name for name in PEERS if name != TRACEML or has_traceml]


def names_cause(adviser: str, said: Said, rule: str, part: str) -> bool:
    """Whether the first thing said is the fault.

    For TraceML, which names no causes, that is the part of a step.
    """
    if adviser == TRACEML:
        return said.name == part
    if adviser == PATTERNS:
        return rule in RULES_OF_PATTERNS.get(said.name, ())
    return said.name == rule


def is_alarm(adviser: str, said: Said) -> bool:
    """Whether a healthy script was said to have a fault."""
    return said.name not in NO_ALARM if adviser == TRACEML else said.name != ""


@dataclass(frozen=True)
class Ended:
    """A process that ended in time."""

    code: int
    output: str
    seconds: float


def _run(arguments: list[str], folder: str, seconds_more: float = 0.0) -> Ended | Said:
    """Run Python in `folder`; Said of a HANG where it takes `seconds_more` than SECONDS_MAX."""
    seconds_max = SECONDS_MAX + seconds_more
    begin = time.perf_counter()
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "COLUMNS": "200"}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # with its workers
        process.communicate()
        return Said("", f"no answer in {seconds_max:.0f} s", failed=HANG)
    return Ended(process.returncode, output, time.perf_counter() - begin)


def _crashed(ended: Ended) -> Said:
    lines = ended.output.strip().splitlines() or [f"exit code {ended.code}"]
    return Said("", lines[-1], failed=CRASH, seconds=ended.seconds)


def instrumented(source: str) -> str:
    """A script whose innermost loop with a step of an optimizer has TraceML's line around its body.

    That line takes a model; in the scripts of tests/planted it is called model. Without a
    DataLoader TraceML asks for what the loop iterates over to be wrapped.
    """
    has_loader = "DataLoader" in source
    tree = ast.parse(source)
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))]
    stepping = [loop for loop in loops if _steps(loop)]
    innermost = [loop for loop in stepping if not any(_holds(loop, one) for one in stepping)]
    for loop in innermost:
        line = ast.parse("with traceml.trace_step(model):\n    pass").body[0]
        assert isinstance(line, ast.With)
        line.body = loop.body
        loop.body = [line]
        if isinstance(loop, ast.For) and not has_loader:
            loop.iter = ast.Call(WRAPPED, [loop.iter], [])
    return ast.unparse(ast.fix_missing_locations(tree))


def _steps(loop: ast.For | ast.While) -> bool:
    calls = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return any(isinstance(call, ast.Attribute) and call.attr == "step" for call in calls)


def _holds(loop: ast.For | ast.While, other: ast.For | ast.While) -> bool:
    return other is not loop and any(node is other for node in ast.walk(loop))
