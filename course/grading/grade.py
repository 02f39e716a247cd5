"""Grade a class: INBOX/<learner>/<unit>/<unit>.ipynb -> nbgrader's gradebook, a table, an item analysis.

    python -m course.grading.grade INBOX [--unit 03_large_batch] [--workers 4 | --cluster slurm --jobs 20]

The command line alone; batch.py does the work.  The process that runs learners' code starts before all other imports.
"""

import argparse
import contextlib
import gc
import sys

from course.device import cores
from course.errors import command, positive
from course.grading.sandbox.zygote import ROOT, Room, Zygote


def setting(text):
    """("partition", "cpu") of "partition=cpu"; a whole number becomes one."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"NAME=VALUE, as in partition=cpu, was expected; found {text}")
    return name, int(value) if value.isdecimal() else value


@command
def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m course.grading.grade", description="Grade a class.")
    parser.add_argument("inbox", help="folder with one folder a learner, as nbgrader's submitted/")
    parser.add_argument("--unit", action="append", help="only this one (may be repeated)")
    parser.add_argument("--workers", type=positive, default=cores(), help="submissions graded at the same time")
    parser.add_argument(
        "--cluster", choices=("slurm", "local"), help="grade by tasks of a scheduler (local: processes)"
    )
    parser.add_argument("--jobs", type=positive, default=8, help="tasks on the cluster (default: 8)")
    parser.add_argument(
        "--slurm", action="append", type=setting, default=[], metavar="NAME=VALUE", help="partition=cpu, time=60, ..."
    )
    parser.add_argument("--course", default=ROOT, help="where gradebook.db, autograded/ and feedback/ lie")
    parser.add_argument("--again", action="store_true", help="also what was graded before and has not changed")
    parser.add_argument("--feedback", action="store_true", help="also make the pages that learners get")
    parser.add_argument("--memory", type=float, default=4, help="GiB that one submission may take")
    for name, default, text in (
        ("cell", Room.cell_seconds, "seconds that a cell of the learner's may take"),
        ("answer", Room.answer_seconds, "seconds that an answer may take, where its exercise does not allow less"),
    ):
        parser.add_argument(f"--{name}-seconds", type=float, default=default, help=text)
    parser.add_argument(
        "--patience", type=float, default=Room.patience, help="seconds beyond either limit, on a busy machine"
    )
    parser.add_argument("--cuda", action="store_true", help="check on the GPU, which submissions then see")
    parser.add_argument("--unsafe", action="store_true", help="without bubblewrap: learners' code gets your rights")
    args = parser.parse_args(argv)
    with contextlib.nullcontext() if args.cluster else Zygote(args.unsafe, args.cuda) as zygote:
        sys.modules["rfc3987_syntax"] = None  # jsonschema's, for addresses, which notebooks have none of: a second
        gc.disable()  # or Python looks through all that it imports, again and again
        from course.grading.batch import run  # seconds, while the zygote imports what it needs

        gc.freeze()
        gc.enable()
        run(args, zygote)
    gc.freeze()  # or Python looks through everything once more at its end, for a second


if __name__ == "__main__":
    main()
