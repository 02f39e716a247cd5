"""Make or import a set of sequences: name -> *<data>/sequences/* -> course.datasets.sequences.

    python data_scripts/sequences.py lognormal --rows 100000 --seed 1
    python data_scripts/sequences.py mine --from lengths.csv

The course draws its sets by itself; this keeps a larger one, or makes one with the lengths of your
own data, so that every experiment of unit 05 can be run on it. A CSV file holds one length per
line; tokens are drawn.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import torch

from course.datasets import data_folder, sequences
from course.errors import CourseError, command


def lengths_of(path: Path) -> torch.Tensor:
    """int64 tensor of the first column of a CSV file.

    A first line that is no number is its heading.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row[0].strip() for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CourseError(
            f"{path} should be a CSV file with a length per line, but cannot be read ({error})."
        ) from None
    if rows and not rows[0].isdecimal():
        rows = rows[1:]
    wrong = next((row for row in rows if not row.isdecimal() or int(row) < 1), None)
    if wrong is not None or not rows:
        found = wrong or "no line"
        raise CourseError(
            f"{path} should hold whole numbers of 1 or more, one per line; found {found!r}."
        )
    return torch.tensor([int(row) for row in rows])


@command
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line `argv`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    name = f"one of {', '.join(sequences.NAMES)}, or a name of your own with --from"
    lengths = "take the lengths from this file"
    rows = "how many sequences (default: the set's own number)"
    data = "the data folder (default: COURSE_DATA, else data/)"
    parser.add_argument("name", help=name)
    parser.add_argument("--from", dest="source", type=Path, metavar="CSV", help=lengths)
    parser.add_argument("--rows", type=int, help=rows)
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    parser.add_argument("--data", type=Path, help=data)
    args = parser.parse_args(argv)
    file = data_folder(args.data) / "sequences" / f"{args.name}.npz"
    if args.source:
        made = sequences.with_lengths(args.name, lengths_of(args.source), args.seed)
    else:
        made = sequences.draw(args.name, args.rows, args.seed, args.data)
    sequences.save(made, file)
    longest = int(made.lengths.max())
    mean = made.lengths.float().mean()
    size = f"{len(made):,} sequences, {len(made.values):,} tokens"
    print(f"{file}: {size}, longest {longest}, mean {mean:.1f}")


if __name__ == "__main__":
    main()
