"""Ranks that torchrun starts are watched together, and the one that the others wait for is named."""

import json
import os
import subprocess

import forks
import pytest

from course.checkup import advice

SCRIPT = """
import time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(2, (64,))), 8)
for epoch in range(100):
    for x, y in loader:
        if dist.get_rank() == 1:
            time.sleep(0.05)  # late
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


def test_the_line_of_the_rank_that_is_late_is_the_first_advice_and_no_rank_is_left_waiting(tmp_path):
    script, file = tmp_path / "late.py", tmp_path / "report.json"
    script.write_text(SCRIPT)
    command = [*forks.python("torch.distributed.run"), "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", "2", "-m", "course.checkup", "--steps", "20", "--json", file, script.name]
    env = os.environ | {"PYTHON_EXEC": forks.executable()}
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, env=env)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("Check-up of late.py") == 1  # of rank 0 alone
    data = json.loads(file.read_text())
    number = script.read_text().splitlines().index("            time.sleep(0.05)  # late") + 1
    assert data["skew"]["rank"] == 1 and data["skew"]["late"] > 0.04 and data["regime"] == "waiting for a slower rank"
    first = data["advice"][0]
    assert first["name"] == "skew" and f"rank 1: its own code at late.py:{number} " in first["text"]


@pytest.mark.parametrize(("late", "lines"), [(0.02, 1), (0.005, 0)])
def test_a_rank_is_worth_a_line_if_the_others_wait_for_a_tenth_of_a_step(late, lines):
    skew = {"seconds": [0.01, 0.01 + late], "late": late, "rank": 1, "phase": "data", "waits": late, "line": "a.py:3"}
    assert len([*advice.late_rank({"skew": skew, "seconds": {"median": 0.1}})]) == lines
