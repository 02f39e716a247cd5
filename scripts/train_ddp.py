"""Train FashionCNN on all processes that torchrun starts: images -> *train_ddp* -> checkpoint, a
line per epoch.

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
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
         "MASTER_PORT": "0"}  # fmt: skip
kept = []  # process groups: torch 2.13 may wait for ever where a gloo group is freed with its model


@command
def main(argv=None):
    args = parse(argv)
    if "RANK" not in os.environ:
        print("not started by torchrun: one process trains alone")
        os.environ |= ALONE
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if again and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise CourseError(
            "torchrun has restarted the ranks with a store that holds addresses of dead ones, and they would wait for "
            "them; set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 before you start torchrun."
        )
    world_size = int(os.environ["WORLD_SIZE"])
    if args.batch_size % world_size:
        raise CourseError(
            f"--batch-size {args.batch_size} cannot be shared by {world_size} ranks; take a multiple."
        )
    if args.answers and not args.answers.is_file():
        raise CourseError(
            f"--answers {args.answers}: there is no such file; give the path of your notebook."
        )
    if not args.checkpoint.absolute().parent.is_dir():
        raise CourseError(
            f"--checkpoint {args.checkpoint}: there is no such folder; make it, or name another."
        )
    try:
        _answer(args)(options(args))
    except (NotImplementedError, AttributeError) as error:
        if not args.answers:
            raise
        raise CourseError(
            f"train_ddp in {args.answers} is missing or unfinished ({error!r}); solve it first."
        ) from None


def _answer(args):
    """The function that trains; of the reference, the part that asks it is loaded alone, without
    plots.
    """
    if args.function:
        return cloudpickle.loads(args.function.read_bytes())
    return (
        load_definitions(args.answers).train_ddp
        if args.answers
        else load_reference(UNIT, "train_ddp")
    )


def options(args):
    """The argument of `train_ddp`: the data, a function that makes the model, and the flags."""
    with contextlib.redirect_stdout(sys.stdout if os.environ["RANK"] == "0" else io.StringIO()):
        data = fashion.load(args.dataset)
    gpus = device().type == "cuda" and torch.cuda.device_count() >= int(
        os.environ["LOCAL_WORLD_SIZE"]
    )

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
        dataset=TensorDataset(fashion.floats(data.train_images), data.train_labels), make_model=make_model,
        device="cuda" if gpus else "cpu", epochs=args.epochs, batch_size=args.batch_size, lr=args.lr, seed=args.seed,
        workers=args.workers, checkpoint=str(args.checkpoint), save_every=args.save_every, report=report,
    )  # fmt: skip


def keep_group(*_):
    if dist.is_initialized() and dist.group.WORLD not in kept:
        kept.append(dist.group.WORLD)


def parse(argv):
    """The flags as a namespace; a wrong one ends the program with one sentence."""
    parser = argparse.ArgumentParser(
        prog="torchrun scripts/train_ddp.py", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--dataset", choices=sorted(fashion.STANDINS), default="fashion", help="(default: fashion)"
    )
    parser.add_argument(
        "--epochs", type=positive, default=2, metavar="N", help="in all lives together (default: 2)"
    )
    parser.add_argument(
        "--batch-size", type=positive, default=64, metavar="N", help="of all ranks (default: 64)"
    )
    parser.add_argument(
        "--lr", type=float, default=0.05, metavar="X", help="learning rate of SGD (default: 0.05)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of weights, order, dropout (default: 0)"
    )
    parser.add_argument(
        "--workers", type=int, default=0, metavar="N", help="of each rank's loader (default: 0)"
    )
    parser.add_argument(
        "--checkpoint", type=Path, required=True, metavar="FILE", help="written and gone on from"
    )
    parser.add_argument(
        "--save-every", type=positive, default=100, metavar="N", help="steps (default: 100)"
    )
    parser.add_argument(
        "--history", type=Path, metavar="FILE", help="append a line for each epoch here too"
    )
    parser.add_argument(
        "--answers",
        type=Path,
        metavar="NOTEBOOK",
        help="use train_ddp of this notebook, yours for example",
    )
    parser.add_argument(
        "--function",
        type=Path,
        metavar="FILE",
        help="use the function that cloudpickle has saved here",
    )
    return parser.parse_args(argv)


def positive(text):
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # taking the interpreter down with a gloo group in it aborts now and then (torch 2.13)
    os._exit(0)
