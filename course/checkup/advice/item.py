"""A __getitem__ that computes for most of the time of an item, or opens the same file each time."""

import os

from course.checkup.advice.rule import Advice, part_of_item
from course.checkup.facts import Facts
from course.checkup.predict import bound_of_data

NAME = "item"
PART = "01/7"
PLANTED = ("opened_per_item", "slow_line")
BUSY_MIN = 0.6  # share of the time; an item that computes for less waits, which workers can
LINE_MIN = 0.3  # share of the looks; below it, no one line is the one to change


def check(facts: Facts) -> Advice | None:
    """Advise to make the line cheaper, or to open the file once."""
    part = part_of_item(facts, "item") or part_of_item(facts, "read")
    items = facts.trials.items
    if not part or items is None:
        return None
    if items.opened:
        text = f"open {os.path.basename(items.opened)} once, not for each item"
    elif items.line and items.busy > BUSY_MIN and items.line_share > LINE_MIN:
        text = "make it cheaper, or compute it once"
        part *= items.line_share
    else:
        return None
    most = bound_of_data(facts, part)
    takes = f"{items.line or '__getitem__'} takes {part:.0%} of the time of an item"
    return Advice(NAME, f"{takes}: {text}", PART, most, "", most)
