"""Other numbers of workers than the loader has."""

from course.checkup.advice.rule import DATA_WAITS_MIN, Advice
from course.checkup.facts import Facts, Trial
from course.checkup.phases import DATA
from course.checkup.predict import WORKERS_GAIN_MIN, bound_of_data, seconds_of_workers

NAME = "workers"
PART = "01/4"
PLANTED = ("starved", "many_workers")
SHARD = "share out its rows by get_worker_info(): else each worker gives all of them"


def is_worth_it(trial: Trial) -> bool:
    """Whether another number of workers was proven to gain enough to be advised."""
    return trial.helped and trial.whole >= WORKERS_GAIN_MIN


def check(facts: Facts) -> Advice | None:
    """Advise the number that is fastest; if none was tried, what the formula predicts of some."""
    if facts.loader is None:
        return None
    now = facts.loader.workers
    waits = facts.phases.share(DATA)
    ways = facts.trials.of_workers()
    helped = [name for name, trial in ways.items() if is_worth_it(trial)]
    if helped:
        best = max(helped, key=lambda name: ways[name].whole)
        text = f"{best} (now {now})"
        most = ways[best].bound or bound_of_data(facts)
        return Advice(NAME, text, PART, most, ways[best].text, ways[best].whole)
    if not ways and waits > DATA_WAITS_MIN and now == 0:
        text = "give the DataLoader workers (now 0)"
        most = bound_of_data(facts)
        if facts.loader.iterable:  # the formula does not know whether workers share out its rows
            text = f"{text}, and let its dataset {SHARD}"
            return Advice(NAME, text, PART, most, gain=most)
        seconds = seconds_of_workers(facts)
        gain = min(most, seconds[0] / min(seconds.values())) if seconds else most
        return Advice(NAME, text, PART, most, gain=gain)
    return None
