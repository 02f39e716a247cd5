"""Make data for a linear regression: size and seed -> *<data>/regression/...* -> course.datasets.regression.

    python data_scripts/regression.py --rows 200000 --columns 1000 [--seed 0]

The course makes the data that it needs itself; this script makes any other size, such as the 40 GB of FFCV's guide
(--rows 1000000 --columns 10000).  Memory stays at about 60 MB.  X, y and w are written to .npy files, beside a
header.json with shape, dtype, seed, noise and intercept.
"""

import argparse
from pathlib import Path

from course.datasets import regression
from course.errors import command


@command
def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="default: 200,000")
    parser.add_argument("--columns", type=int, default=1000, help="default: 1,000")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    parser.add_argument("--data", type=Path, help="the data folder (default: COURSE_DATA, else data/)")
    args = parser.parse_args(argv)
    made = regression.load(args.rows, args.columns, args.seed, args.data)
    print(f"{made.folder}: {made.rows:,} rows of {made.columns:,}, {made.nbytes / 1e9:.2f} GB, intercept {made.b:.4f}")


if __name__ == "__main__":
    main()
