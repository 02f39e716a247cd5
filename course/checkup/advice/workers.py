"""Other numbers of workers than the loader has."""

from course.checkup.advice.rule import DATA_WAITS_MIN, Advice
from course.checkup.facts import Facts
from course.checkup.phases import DATA
from course.checkup.predict import bound

NAME = "workers"
PART = "01/4"
PLANTED = ("starved", "many_workers")
SHARD = "share out its rows by get_worker_info(): else each worker gives all of them"


def check(facts: Facts) -> Advice | None:
    """Advise the number that is fastest; if none was tried, workers where there are none."""
    if facts.loader is None:
        return None
    now = facts.loader.workers
    waits = facts.phases.share(DATA)
    ways = facts.trials.of_workers()
    helped = [name for name, trial in ways.items() if trial.helped]
    if helped:
        best = max(helped, key=lambda name: ways[name].whole)
        text = f"{best} (now {now})"
        most = ways[best].bound or bound(waits)
        return Advice(NAME, text, PART, most, ways[best].text, ways[best].whole)
    if not ways and waits > DATA_WAITS_MIN and now == 0:
        text = "give the DataLoader workers (now 0)"
        if facts.loader.iterable:
            text = f"{text}, and let its dataset {SHARD}"
        return Advice(NAME, text, PART, bound(waits), gain=bound(waits))
    return None
