"""Pinned memory without a GPU, or a GPU without it."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import Facts
from course.checkup.phases import TRANSFER
from course.checkup.predict import bound

NAME = "pin_memory"
PART = "01/5"
PLANTED = ("pinned",)
PINNED_SAVES = 0.5  # of the time of a transfer, at least about


def check(facts: Facts) -> Advice | None:
    """Advise the other setting of pin_memory, if it fits the machine better."""
    if facts.loader is None:
        return None
    pinned = facts.loader.pin_memory
    if pinned and not facts.cuda:
        text = "pin_memory=False: without a GPU it does nothing, or only copies"
        return Advice(NAME, text, PART, 1.0, fault=True)
    if facts.cuda and not pinned:
        transfer = facts.phases.share(TRANSFER)
        text = "pin_memory=True and .to(device, non_blocking=True)"
        return Advice(NAME, text, PART, bound(transfer), gain=bound(transfer * PINNED_SAVES))
    return None
