"""`python -m course.checkup`, for torchrun."""

from course.checkup.command import checkup
from course.errors import command

command(checkup.main)(prog_name="course checkup")
