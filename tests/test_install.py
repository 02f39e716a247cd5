"""scripts/install.py: which commands install which torch.  What they fetch is not tried here: that takes a network."""

import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

pytestmark = pytest.mark.check


@pytest.fixture
def installed_by(tmp_path):
    """A function: words -> the process of the script in a folder without .venv; it prints the commands, runs none."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/install.py", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    script = [sys.executable, tmp_path / "scripts/install.py", "--dry-run"]
    return lambda *words: subprocess.run([*script, *words], capture_output=True, text=True)


def test_the_default_is_the_lock_with_hashes(installed_by):
    _, everything, course = installed_by().stdout.splitlines()
    assert everything.endswith("--require-hashes -r requirements.txt") and course.endswith(
        "--no-deps --no-build-isolation -e ."
    )


def test_another_build_is_the_locked_pair_and_all_else_with_hashes(installed_by):
    locked = dict(re.findall(r"^(torch\w*)==(\S+)", (ROOT / "requirements.txt").read_text(), re.M))
    _, pair, rest, _ = installed_by("cu126").stdout.splitlines()
    assert pair.endswith(f"--torch-backend cu126 torch=={locked['torch']} torchvision=={locked['torchvision']}")
    assert "--require-hashes --no-deps" in rest


def test_the_rest_of_the_lock_is_all_but_torch_and_what_comes_with_it():
    sys.path.insert(0, str(ROOT / "scripts"))
    from install import split

    lock = (ROOT / "requirements.txt").read_text()
    theirs, rest = split(lock)
    assert len("".join(theirs)) + len(rest) == len(lock)
    names = [
        {re.match(r"[\w.-]+", text)[0] for text in re.findall(r"^\S.*", part, re.M)} for part in ("".join(theirs), rest)
    ]
    assert {"torch", "torchvision", "triton"} <= names[0] and {"numpy", "torchmetrics"} <= names[1]
    assert not any(name.startswith(("nvidia-", "cuda-")) for name in names[1])


def test_the_torch_of_the_interpreter_is_kept(installed_by):
    """The environment of the tests plays the interpreter that has a torch."""
    first, last = installed_by("system").stdout.splitlines()
    assert "--constraint .venv/kept.txt" in last and "uv" not in first + last


@pytest.mark.parametrize(("asked", "why"), [("cu999x", "no build of torch"), ("gpu", "no build of torch")])
def test_a_build_that_does_not_exist_is_refused_in_a_sentence(asked, why, installed_by):
    done = installed_by(asked)
    assert done.returncode == 1 and why in done.stderr and "Traceback" not in done.stderr
