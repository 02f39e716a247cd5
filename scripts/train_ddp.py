"""Train FashionCNN on all processes that torchrun starts: images -> *train_ddp* -> checkpoint.

    torchrun --nproc-per-node 2 scripts/train_ddp.py --dataset tiny --epochs 2 --checkpoint run.pt
    torchrun --nproc-per-node 2 scripts/train_ddp.py --checkpoint run.pt --answers MY_NOTEBOOK.ipynb

Unit 02 as a command. Training is done by the answer to its exercise `train_ddp`: the reference, or
with --answers yours. If the checkpoint exists, training resumes from it. Without torchrun one
process trains alone.
"""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import torch
import torch.distributed as dist
from torch.utils.data import TensorDataset

from course.datasets import fashion
from course.device import device
from course.errors import CourseError, command
from course.notebook.solutions import load_definitions, load_reference
from course.training.models import FashionCNN

UNIT = "02_data_parallel"
ALONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
kept = []  # process groups: torch 2.13 may wait for ever where a gloo group is freed with its model


@command
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line `argv`; what the user can fix is one sentence."""
    args = parse(argv)
    if "RANK" not in os.environ:
        print("not started by torchrun: one process trains alone")
        os.environ |= ALONE
    check(args)
    try:
        _answer(args)(options(args))
    except (NotImplementedError, AttributeError) as error:
        if not args.answers:
            raise
        raise CourseError(
            f"train_ddp in {args.answers} is missing or unfinished ({error!r}); solve it first."
        ) from None


def check(args: argparse.Namespace) -> None:
    """Raise a CourseError if the flags, or how torchrun has started this, cannot work."""
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if again and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise CourseError(
            "torchrun has restarted the ranks with a store that holds addresses of dead ones, and "
            "they would wait for them; set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 before you start "
            "torchrun."
        )
    world_size = int(os.environ["WORLD_SIZE"])
    if args.batch_size % world_size:
        raise CourseError(
            f"--batch-size {args.batch_size} cannot be shared by {world_size} ranks; "
            "take a multiple."
        )
    if args.answers and not args.answers.is_file():
        raise CourseError(
            f"--answers {args.answers}: there is no such file; give the path of your notebook."
        )
    if not args.checkpoint.absolute().parent.is_dir():
        raise CourseError(
            f"--checkpoint {args.checkpoint}: there is no such folder; make it, or name another."
        )


def _answer(args):
    """The function that trains."""
    if args.function:
        return cloudpickle.loads(args.function.read_bytes())
    if args.answers:
        return load_definitions(args.answers).train_ddp
    return load_reference(UNIT, "train_ddp")


def options(args: argparse.Namespace) -> SimpleNamespace:
    """The argument of `train_ddp`: the data, a function that makes the model, and the flags."""
    with contextlib.redirect_stdout(sys.stdout if os.environ["RANK"] == "0" else io.StringIO()):
        data = fashion.load(args.dataset)
    local_ranks = int(os.environ["LOCAL_WORLD_SIZE"])
    gpus = device().type == "cuda" and torch.cuda.device_count() >= local_ranks

    def make_model():
        keep_group()
        model = FashionCNN()
        model.register_forward_pre_hook(keep_group)
        return model

    def report(epoch, loss):
        line = f"epoch {epoch + 1} of {args.epochs}: loss {loss:.4f}"
        print(line, flush=True)
        if args.history:
            with open(args.history, "a") as history:
                history.write(line + "\n")

    return SimpleNamespace(
        dataset=TensorDataset(fashion.floats(data.train_images), data.train_labels),
        make_model=make_model,
        device="cuda" if gpus else "cpu",
        epochs=args.epochs,
        batch_size=args.batch_size,
        lr=args.lr,
        seed=args.seed,
        workers=args.workers,
        checkpoint=str(args.checkpoint),
        save_every=args.save_every,
        report=report,
    )


def keep_group(*_: object) -> None:
    """Keep the process group, if there is one, for as long as this process lives."""
    if dist.is_initialized() and dist.group.WORLD not in kept:
        kept.append(dist.group.WORLD)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The flags as a namespace; a wrong one ends the program with one sentence."""
    parser = argparse.ArgumentParser(
        prog="torchrun scripts/train_ddp.py", description=__doc__.splitlines()[0]
    )

    def number(flag, default, help, type=int):
        parser.add_argument(flag, type=type, default=default, metavar="N", help=help)

    def file(flag, help, metavar="FILE", **options):
        parser.add_argument(flag, type=Path, metavar=metavar, help=help, **options)

    datasets = sorted(fashion.STANDINS)
    rate = "learning rate of SGD (default: 0.05)"
    parser.add_argument("--dataset", choices=datasets, default="fashion", help="(default: fashion)")
    number("--epochs", 2, "in all lives together (default: 2)", positive)
    number("--batch-size", 64, "of all ranks (default: 64)", positive)
    parser.add_argument("--lr", type=float, default=0.05, metavar="X", help=rate)
    number("--seed", 0, "of weights, order, dropout (default: 0)")
    number("--workers", 0, "of each rank's loader (default: 0)")
    file("--checkpoint", "written and gone on from", required=True)
    number("--save-every", 100, "steps (default: 100)", positive)
    file("--history", "append a line for each epoch here too")
    file("--answers", "use train_ddp of this notebook, yours for example", "NOTEBOOK")
    file("--function", "use the function that cloudpickle has saved here")
    return parser.parse_args(argv)


def positive(text: str) -> int:
    """The number that `text` says.  Raises: ArgumentTypeError unless it is 1 or more."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # Not to copy: it skips exit handlers and buffers. Taking the interpreter down with a gloo group
    # in it aborts now and then (torch 2.13).
    os._exit(0)
