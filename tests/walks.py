"""Programs that go through what people do, step by step (browser.py, hub.py, slurm.py), in a process of their own.

So what hangs can be killed, and nothing of it stays in the process of the tests.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_HERE = 3  # the exit code of a walk that cannot begin on this machine; it has said why
AROUND = ("JUPYTER", "JPY_", "SLURM_", "SBATCH_")  # what programs read that the walks start
PATIENCE = 200  # seconds for one step on a busy machine
SECONDS = 600  # for a walk, which takes 30 to 60 on a machine that does nothing else
REPOSITORY = ("course", "data_scripts", "docs", "instructor", "learners", "notebooks", "recorded", "scripts",
              "solutions", "LICENSE", "environment.yml", "nbgrader_config.py", "pyproject.toml",
              "requirements.txt")  # fmt: skip


class NotHere(Exception):
    """A walk cannot begin on this machine; the message says why."""


def main(walk):
    """Do `walk(FOLDER)` for the FOLDER of the command line; NotHere is said and becomes NOT_HERE."""
    try:
        walk(Path(sys.argv[1]).resolve())
    except NotHere as reason:
        print(reason)
        sys.exit(NOT_HERE)


def lacking(programs, command):
    """Why a walk as root, in namespaces of its own, cannot begin on this machine; None if it can.

    Args:
        programs: {name: its Debian package}.
        command: the words that make those namespaces and do something in them.
    """
    if os.geteuid() != 0:
        return "needs root: several users of the system take part"
    for program, package in programs.items():
        if not shutil.which(program):
            return f"needs the command `{program}` (Debian package {package})"
    tried = subprocess.run(command, capture_output=True, text=True)
    return f"this machine allows no namespaces: {tried.stderr.strip()}" if tried.returncode else None


def clone(folder):
    """Make `folder` what an instructor has after a clone: nothing that was built or graded is in it."""
    folder.mkdir()
    for name in REPOSITORY:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)


def do(steps, *given):
    """Call each step with as many of `given` as it takes; print its name when it is done, its seconds on stderr."""
    for step in steps:
        start = time.monotonic()
        step(*given[: step.__code__.co_argcount])
        print(step.__name__, flush=True)
        print(f"{step.__name__}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def wait_until(true, what, process=None, every=0.1):
    """Wait until `true()`, and return it; a `process` (Popen) that ends before that fails at once."""
    end = time.monotonic() + PATIENCE
    while not (value := true()):
        assert process is None or process.poll() is None, f"{what}: it ended"
        assert time.monotonic() < end, f"{what}: it did not come in time"
        time.sleep(every)
    return value


def free_port():
    """A port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def walk(call, folder):
    """(exit code or None if it took too long, lines printed, what was written on stderr) of the program `call`.

    `call(FOLDER)` gives its words; nothing of it is left running, also if the tests are stopped meanwhile.
    """
    folder.mkdir()
    with (folder / "said").open("w") as out, (folder / "errors").open("w") as errors:
        process = subprocess.Popen(call(folder), cwd=ROOT, env=environment(), stdout=out, stderr=errors,
                                   stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code, tuple((folder / "said").read_text().splitlines()), (folder / "errors").read_text()


def environment():
    """That of this process, without what a Jupyter or a Slurm around it says, or a proxy that is to carry loopback."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(AROUND)}
    return env | {"PYTHONPATH": str(ROOT), "NO_PROXY": "localhost,127.0.0.1", "no_proxy": "localhost,127.0.0.1"}


def assert_all_steps(program, tmp_path, steps):
    """Walk, and once more if that fails: a busy machine may be slow beyond all patience, a fault is seen twice.

    Args:
        program: a module with missing() and call(folder).
        steps: the lines that it prints.
    """
    import pytest

    if reason := program.missing():
        pytest.skip(reason)
    code, said, errors = walk(program.call, tmp_path / "first")
    if code == NOT_HERE:
        pytest.skip(" ".join(said))
    if code != 0:
        print(said, errors)
        code, said, errors = walk(program.call, tmp_path / "second")
    assert code == 0, f"{said}\n{errors[-5000:]}"
    assert said == tuple(steps)
