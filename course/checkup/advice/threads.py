"""Fewer threads than cores, or more."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import THREADS, Facts
from course.checkup.predict import bound_of_way

NAME = "threads"
PART = "01/8"
PLANTED = ("one_thread",)


def check(facts: Facts) -> Advice | None:
    """Advise a thread per core, if it was tried and helped, or fewer for each of several ranks."""
    habits = facts.habits
    most = bound_of_way(THREADS, facts)
    if habits.processes > 1 and habits.threads * habits.processes > habits.cores:
        each = max(1, habits.cores // habits.processes)
        now = f"{habits.processes} processes of {habits.threads} threads"
        text = f"OMP_NUM_THREADS={each}: {now} share {habits.cores} cores"
        return Advice(NAME, text, PART, most, fault=True)
    trial = facts.trials.get(THREADS)
    if not trial.helped:
        return None
    text = f"torch.set_num_threads({habits.cores}) (now {habits.threads})"
    return Advice(NAME, text, PART, most, trial.text, trial.whole)
