"""Anomaly detection that was left on."""

from course.checkup.advice.rule import Advice
from course.checkup.facts import WITHOUT_ANOMALY, Facts
from course.checkup.predict import bound_of_way

NAME = "anomaly"
PART = "06/1"
PLANTED = ("anomaly_detection",)


def check(facts: Facts) -> Advice | None:
    """Advise to switch it off."""
    if not facts.habits.anomaly:
        return None
    trial = facts.trials.get(WITHOUT_ANOMALY)
    most = bound_of_way(WITHOUT_ANOMALY, facts)
    gain = trial.whole if trial.helped else 1.0
    text = "switch anomaly detection off: it writes a traceback down for each operation"
    return Advice(NAME, text, PART, most, trial.text, gain, fault=True)
