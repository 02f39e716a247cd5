"""A loop that waits for data, and no number of workers that would change it."""

from course.checkup.advice import collate, item, read, transform, workers
from course.checkup.advice.rule import DATA_WAITS_MIN, Advice
from course.checkup.facts import Facts
from course.checkup.phases import DATA
from course.checkup.predict import WORKERS_GAIN_MIN, bound_of_data

NAME = "data-bound"
PART = "01/7"
PLANTED = ("shared_disk",)
NEXT = "make less of each item: fewer pixels, fewer bytes, or keep decoded items"


def check(facts: Facts) -> Advice | None:
    """Say what is left where the loop waits: try loaders, or if none helped, make items cheaper."""
    waits = facts.phases.share(DATA)
    if facts.loader is None or waits <= DATA_WAITS_MIN:
        return None
    if any(rule.check(facts) for rule in (item, transform, read, collate)):
        return None  # they name the function, or its line
    tried = [trial for trial in facts.trials.of_workers().values() if trial.was_measured]
    if any(workers.is_worth_it(trial) for trial in tried):
        return None  # that rule names it
    if tried:
        numbers = f"none of {len(tried)} other numbers of workers"
        text = f"{numbers} is proven to gain {WORKERS_GAIN_MIN - 1:.0%}; {NEXT}"
    elif facts.loader.workers:
        text = f"no other number of workers was tried; {NEXT}"
    else:
        return None  # the rule on workers asks for some
    most = bound_of_data(facts)
    return Advice(NAME, f"{waits:.0%} of a step waits for data: {text}", PART, most, "", most)
