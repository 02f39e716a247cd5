"""`python -m course.checkup`, for torchrun."""

import sys

from course.cli import main

main(["checkup", *sys.argv[1:]])
