"""The types of the engine, of grading and of the jail hold: what pyproject.toml names under [tool.mypy]."""

import subprocess
import sys

from conftest import ROOT


def test_mypy_finds_nothing():
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
