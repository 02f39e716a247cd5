"""The steps of `course bench gpu` and their seconds, in the order in which they run.

instructor/bench/gpu.py runs them; documents.py lists them, also those that are not measured yet.
"""

from course.notebook.registry import all_parts

PART_SECONDS = 300  # of every part of the course
SECONDS_BEFORE_PARTS = {"grading": 300, "tests": 420, "smoke": 300}
SECONDS_BEHIND_PARTS = {
    "linear": 400,
    "race": 400,
    "ncf": 180,
    "grouping": 180,
    "copies": 90,
    "checkup": 120,
}


def step_names() -> list[str]:
    """The names of all steps, parts in the order of the course."""
    places = [f"{unit}/{part}" for unit, part in all_parts()]
    return [*SECONDS_BEFORE_PARTS, *places, *SECONDS_BEHIND_PARTS]
