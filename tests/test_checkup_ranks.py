"""Ranks that torchrun starts are watched together, and the one that the others wait for is named."""

import json
import os
import subprocess

import forks

from instructor.bench import checkup as bench

SCRIPT = bench.PLANTED / "late_rank.py"


def test_the_line_of_the_rank_that_is_late_is_the_first_advice_and_no_rank_is_left_waiting(tmp_path):
    file = tmp_path / "report.json"
    command = [*forks.python("torch.distributed.run"), "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", "2", "-m", "course.checkup", "--steps", "20", "--json", file, SCRIPT]
    env = os.environ | {"PYTHON_EXEC": forks.executable()}
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, env=env)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("Check-up of late_rank.py") == 1  # of rank 0 alone
    data = json.loads(file.read_text())
    number = SCRIPT.read_text().splitlines().index("            time.sleep(0.05)  # late") + 1
    assert data["skew"]["rank"] == 1 and data["skew"]["late"] > 0.04 and data["regime"] == "waiting for a slower rank"
    first = data["advice"][0]
    assert first["name"] == "skew" and f"rank 1: its own code at late_rank.py:{number} " in first["text"]
