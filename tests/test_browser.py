"""A learner in a real browser: wrong answer, diagnosis, progress, restart, the next part, nbgrader's Validate.

tests/browser.py does it, in a process of its own.  A busy machine may be slow beyond all patience, so a walk that ended
for lack of time is walked once more; what is seen wrongly on both walks is a fault.
"""

import importlib.util
import os
import signal
import subprocess
import sys

import browser
import pytest
from conftest import ROOT

STEPS = (
    "a wrong answer is diagnosed",
    "the right one is correct",
    "progress shows it",
    "a new kernel takes the kept answer",
    "part 2 takes the answer over",
    "Validate says failed",
    "Validate says success",
)
SECONDS = 400  # for a walk, which takes 40 on a machine that does nothing else


def walk(folder):
    """(exit code or None if it took too long, what was printed) of one walk; nothing of it is left running."""
    folder.mkdir()
    call = [sys.executable, str(ROOT / "tests" / "browser.py"), str(folder)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with (folder / "said").open("w") as out:
        process = subprocess.Popen(call, cwd=ROOT, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        code = process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        code = None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    return code, (folder / "said").read_text()


@pytest.mark.skipif(not browser.chromium(), reason="no Chromium on this machine: apt install chromium")
@pytest.mark.skipif(not importlib.util.find_spec("playwright"), reason="playwright is not installed")
def test_a_learner_solves_restarts_goes_on_and_validates_in_a_real_browser(tmp_path):
    code, said = walk(tmp_path / "first")
    if code == browser.NO_BROWSER:
        pytest.skip(said.strip())
    if code:
        print(said)
    if code != 0:
        code, said = walk(tmp_path / "second")
    assert code == 0, said
    assert tuple(said.splitlines()) == STEPS
