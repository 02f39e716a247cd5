"""Programs that go through what people do, step by step (browser.py, hub.py, slurm.py), in a process of their own.

So what hangs can be killed, and nothing of it stays in the process of the tests.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOT_HERE = 3  # the exit code of a walk that cannot begin on this machine; it has said why
SECONDS = 600  # for a walk, which takes 30 to 60 on a machine that does nothing else


def walk(call, folder):
    """(exit code or None if it took too long, lines printed, what was written on stderr) of the program `call`.

    `call(FOLDER)` gives its words; nothing of it is left running.
    """
    folder.mkdir()
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with (folder / "said").open("w") as out, (folder / "errors").open("w") as errors:
        process = subprocess.Popen(call(folder), cwd=ROOT, env=env, stdout=out, stderr=errors, start_new_session=True)
    try:
        code = process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        code = None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    return code, tuple((folder / "said").read_text().splitlines()), (folder / "errors").read_text()


def assert_all_steps(call, tmp_path, steps):
    """Walk, and once more if that fails: a busy machine may be slow beyond all patience, a fault is seen twice."""
    code, said, errors = walk(call, tmp_path / "first")
    if code == NOT_HERE:
        pytest.skip(" ".join(said))
    if code != 0:
        print(said, errors)
        code, said, errors = walk(call, tmp_path / "second")
    assert code == 0, f"{said}\n{errors[-5000:]}"
    assert said == tuple(steps)
