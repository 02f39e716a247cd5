"""Make data for a linear regression: size -> *<data>/regression/* -> course.datasets.regression.

    python data_scripts/regression.py --rows 200000 --columns 1000 [--seed 0]

The course makes the data that it needs itself; this script makes any other size, such as the 40 GB
of FFCV's guide (--rows 1000000 --columns 10000). Only y is stored;
`course.datasets.regression.prepare` with the same numbers returns all of it, with X drawn where it
is sliced.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from course.datasets import regression
from course.errors import command


@command
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line `argv`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="default: 200,000")
    parser.add_argument("--columns", type=int, default=1000, help="default: 1,000")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    data = "the data folder (default: COURSE_DATA, else data/)"
    parser.add_argument("--data", type=Path, help=data)
    args = parser.parse_args(argv)
    made = regression.prepare(args.rows, args.columns, args.seed, args.data)
    size = f"{made.rows:,} rows of {made.columns:,}"
    gigabytes = 4 * made.rows * (made.columns + 1) / 1e9
    print(f"{made.folder}: {size}, {gigabytes:.2f} GB when drawn, intercept {made.b:.4f}")


if __name__ == "__main__":
    main()
