"""Start the small GPT under torchrun several times, as a scheduler would: starts -> lives.

A *life* is what the ranks do between a start or a restart and their end. scripts/train_gpt.py logs
its steps; nothing is timed here.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import cloudpickle

from course.errors import CourseError
from course.parallel.rank_process import ONE_MACHINE
from course.system.folders import ROOT

SCRIPT = ROOT / "scripts" / "train_gpt.py"
SMALLEST = ROOT / "scripts" / "smallest_ddp.py"
END_OF_SMALLEST = "\n# ---- not printed"
STDERR_CHARACTERS_MAX = 3000  # the last ones, shown with an error
PATIENCE_SECONDS = 300


class Start(NamedTuple):
    """One call of torchrun."""

    ranks: int
    until: int  # the step at which it stops by itself
    kill_at: int | None = None  # in this step the last rank of its first life kills itself
    max_restarts: int = 0
    save_every: int = 10  # steps between two checkpoints


class Life(NamedTuple):
    """What the ranks did between a start or restart and their end."""

    ranks: int
    steps: list[int]  # begun, counted from 0
    was_killed: bool


def smallest_script() -> str:
    """The text of SMALLEST, without what its end is for in this course alone."""
    return SMALLEST.read_text().partition(END_OF_SMALLEST)[0]


def torchrun(script: Path, folder: str | Path, ranks: int) -> str:
    """What a script printed that torchrun has run in `folder`, on `ranks` ranks.

    Raises: CourseError with what it wrote if it fails.
    """
    done = subprocess.run(
        [*_torchrun(ranks), str(script)],
        cwd=folder,
        env=variables(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    if done.returncode:
        raise _failed(done)
    return done.stdout


def live(starts: Sequence[Start], functions: tuple[Callable, type], folder: Path) -> list[Life]:
    """The lives of one training, whose starts share the checkpoint `folder`/gpt.pt.

    Args:
        functions: (rank_loss, Checkpoint).

    Raises: CourseError with what torchrun wrote if it fails and nobody was to be killed, or the
        reverse.
    """
    pickled = folder / "functions"
    pickled.write_bytes(cloudpickle.dumps(functions))
    lives = []
    for number, start in enumerate(starts):
        log = folder / f"log{number}"
        done = subprocess.run(
            command(start, folder / "gpt.pt", log, pickled),
            env=variables(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        must_fail = start.kill_at is not None and start.max_restarts == 0
        if (done.returncode != 0) != must_fail:
            raise _failed(done)
        lives += _lives_of(start, log.read_text())
    return lives


def command(start: Start, checkpoint: Path, log: Path, functions: Path) -> list[str]:
    """The command line of a start."""
    words = [*_torchrun(start.ranks), "--max-restarts", str(start.max_restarts)]
    words += [str(SCRIPT), "--checkpoint", str(checkpoint), "--until", str(start.until)]
    words += ["--save-every", str(start.save_every)]
    words += ["--history", str(log), "--functions", str(functions)]
    if start.kill_at is not None:
        words += ["--kill-at", str(start.kill_at)]
    return words


def _torchrun(ranks):
    """The words that are `torchrun --standalone --nproc-per-node N` in a terminal."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*words, "--nproc-per-node", str(ranks)]


def _failed(done):
    said = done.stderr[-STDERR_CHARACTERS_MAX:]
    return CourseError(f"torchrun ended with exit code {done.returncode}: {said}")


def variables() -> dict[str, str]:
    """The environment of torchrun on one machine."""
    return (
        os.environ
        | ONE_MACHINE
        | {
            "OMP_NUM_THREADS": "1",
            # else the second life may meet at the store of the first
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
    )


def _lives_of(start: Start, log: str) -> list[Life]:
    steps = {}
    for line in log.splitlines():
        life, _, step = map(int, line.split())
        steps.setdefault(life, []).append(step)
    lives = []
    for life, begun in sorted(steps.items()):
        was_killed = life == 0 and start.kill_at is not None
        lives.append(Life(start.ranks, begun, was_killed))
    return lives
