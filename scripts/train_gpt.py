"""Train the small GPT of unit 02 on all processes that torchrun starts: the capstone as a command.

    torchrun --nproc-per-node 2 scripts/train_gpt.py --checkpoint gpt.pt
    torchrun --nproc-per-node 1 scripts/train_gpt.py --checkpoint gpt.pt --answers MY_NOTEBOOK.ipynb

If the checkpoint exists, training resumes from it, on as many ranks as there are now. With
--answers your `rank_loss` and `Checkpoint` train, else the reference.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import cloudpickle
import torch
import torch.distributed as dist

from course.errors import CourseError, command
from course.notebook.solutions import load_definitions, load_reference
from course.training.gpt_on_ranks import train_on_ranks
from course.training.gpt_run import STEPS

UNIT = "02_data_parallel"


@command
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line `argv`; what the user can fix is one sentence."""
    args = parse(argv)
    if "RANK" not in os.environ:
        raise CourseError("there is no RANK: start this with torchrun --nproc-per-node 1, or more.")
    rank_loss, checkpoint = answers(args)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # reads what torchrun wrote into the environment
    life = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    path = args.checkpoint
    run = train_on_ranks(
        rank_loss, checkpoint(), path, args.until, args.save_every, log_or_die(args, life)
    )
    if dist.get_rank() == 0:
        print(f"step {run.step}: loss {run.losses[-1]:.4f}", flush=True)
    dist.destroy_process_group()


def answers(args: argparse.Namespace) -> tuple[Callable, type]:
    """(rank_loss, Checkpoint) of a notebook or a file of cloudpickle, else the reference."""
    if args.functions:
        return cloudpickle.loads(args.functions.read_bytes())
    if args.answers:
        found = load_definitions(args.answers)
        return found.rank_loss, found.Checkpoint
    return load_reference(UNIT, "rank_loss"), load_reference(UNIT, "Checkpoint")


def log_or_die(args: argparse.Namespace, life: int) -> Callable[[int], None]:
    """The function to call before each step: rank 0 logs it, and the last rank may kill itself."""
    rank, world_size = dist.get_rank(), dist.get_world_size()

    def before_step(step: int) -> None:
        if args.history and rank == 0:
            with open(args.history, "a") as history:
                history.write(f"{life} {world_size} {step}\n")
        if step == args.kill_at and life == 0 and rank == world_size - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    return before_step


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The flags as a namespace; a wrong one ends the program with one sentence."""
    parser = argparse.ArgumentParser(
        prog="torchrun scripts/train_gpt.py", description=__doc__.splitlines()[0]
    )

    def number(flag, default, text):
        parser.add_argument(flag, type=int, default=default, metavar="N", help=text)

    def file(flag, text, **options):
        parser.add_argument(flag, type=Path, metavar="FILE", help=text, **options)

    file("--checkpoint", "written, and resumed from", required=True)
    number("--until", STEPS, f"stop after this step (default: {STEPS})")
    number("--save-every", 10, "steps (default: 10)")
    number("--kill-at", None, "let the last rank of the first life kill itself in this step")
    file("--history", "append a line per step: life, ranks, updates that are done")
    file("--answers", "use rank_loss and Checkpoint of this notebook")
    file("--functions", "use the pair that cloudpickle has saved here")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # Not to copy: Python's own exit aborts now and then with a gloo group in it (torch 2.13). It
    # skips exit handlers and buffers, so nothing that must still be written may be left here.
    os._exit(0)
