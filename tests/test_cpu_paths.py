"""What a release records on its machine is right on a learner's: with other vectors, and on one thread."""

import os
import subprocess
import sys

import pytest
import torch
from conftest import ROOT
from exercises import EXERCISES

from course.engine.outcome import Comparison, Outcome
from course.engine.wire import unpack

CPU = torch.device("cpu")
OTHER_CPU = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default"}

# run in a process of its own: torch reads these variables once, when it is imported
RECORD = """
import sys, torch
from exercises import EXERCISES
from course.engine.wire import pack
names = sys.argv[1].split()
asked = {f"{e.unit}/{e.name}": e for e in EXERCISES}
facts = {name: asked[name].at("cpu").expected().facts for name in names}
sys.stdout.buffer.write(pack([torch.backends.cpu.get_cpu_capability(), facts]))
"""
with_processes = [e for e in EXERCISES if e.starts_processes]
without = [e for e in EXERCISES if not e.starts_processes]


def facts_on_another_cpu(exercises):
    """{unit/name: facts of the reference} as a CPU without wide vectors computes them on one thread."""
    environment = os.environ | OTHER_CPU | {"PYTHONPATH": str(ROOT / "tests")}
    names = " ".join(f"{exercise.unit}/{exercise.name}" for exercise in exercises)
    command = [sys.executable, "-c", RECORD, names]
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    capability, facts = unpack(done.stdout)
    assert capability == "DEFAULT"
    return facts


@pytest.mark.parametrize("exercises", [without, pytest.param(with_processes, marks=pytest.mark.all)])
def test_the_reference_passes_recorded_facts_of_another_cpu(exercises):
    theirs = facts_on_another_cpu(exercises)
    refused = []
    for exercise in exercises:
        ours = exercise.at(CPU).expected()
        name = f"{exercise.unit}/{exercise.name}"
        assert list(theirs[name]) == list(ours.facts), name
        compared = Comparison(Outcome(theirs[name]), ours)
        refused += [f"{name}: {fact}" for fact in compared.wrong_facts()]
    assert refused == []
