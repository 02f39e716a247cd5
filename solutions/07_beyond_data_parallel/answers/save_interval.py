"""Known mistakes of exercise save_interval, and right answers in other styles."""

import math

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "youngs_interval": (
        "This is Young's interval. Daly's has two more terms, and subtracts the time of a save.",
        (" * (1 + math.sqrt(share) / 3 + share / 9) - saving", ""),
    ),
    "one_device": (
        "This is the interval of one device. A job on N devices fails N times as often.",
        ("between_failures / devices", "between_failures"),
    ),
    "more_devices_fail_less": (
        "More devices make failures rarer here. Any failed device ends the job: divide by their number.",
        ("between_failures / devices", "between_failures * devices"),
    ),
    "divided_at_the_end": (
        "The interval of one device is divided by the number of devices. Divide the time between failures, whose root "
        "is taken.",
        ("between_failures / devices", "between_failures"),
        ("share / 9) - saving", "share / 9) / devices - saving"),
    ),
    "factor_two_missing": (
        "The 2 under the root is missing. A failure loses half an interval on average, hence 2 · saving · M.",
        ("math.sqrt(2 * saving * between)", "math.sqrt(saving * between)"),
    ),
    "save_not_subtracted": (
        "The time of a save is not subtracted. The interval counts work alone: subtract it.",
        (" - saving", ""),
    ),
    "without_a_limit": (
        "The formula is used where a save takes too long for it. From saving = 2 M on, return M.",
        ("    if saving >= 2 * between:\n        return between\n", ""),
    ),
    "limit_at_m": (
        "M is returned from saving = M on. The second row of the table begins at 2 M.",
        ("saving >= 2 * between", "saving >= between"),
    ),
    "limit_not_included": (
        "At saving = 2 M the formula is still used. That row of the table has 2 M itself: compare with >=.",
        ("saving >= 2 * between", "saving > 2 * between"),
    ),
    "limit_of_one_device": (
        "Where saves are slow, the time between failures of one device is returned. M is that of the job.",
        ("        return between\n", "        return between_failures\n"),
    ),
    "limit_is_the_save": (
        "Where saves are too slow for the formula you return the time of a save. Return M.",
        ("        return between\n", "        return saving\n"),
    ),
    "root_forgotten": (
        "The first correction lacks its root. It is sqrt(s) / 3.",
        ("math.sqrt(share) / 3", "share / 3"),
    ),
    "first_correction_alone": (
        "The second correction is missing. Add s / 9.",
        (" + share / 9", ""),
    ),
}


@mistake(
    "This is the mean time between failures: half of the work would be lost. Save earlier, by Daly's formula."
)
def once_per_failure(saving, between_failures, devices):
    return between_failures / devices


@alternative
def expanded(saving, between_failures, devices):
    m = between_failures / devices
    if saving < 2 * m:
        young = (2 * saving * m) ** 0.5
        return young + saving / 3 + young * saving / (18 * m) - saving
    return m


@alternative
def as_a_polynomial(saving, between_failures, devices):
    per_second = devices / between_failures
    x = math.sqrt(saving * per_second / 2)
    factor = 1 + x * (1 / 3 + x / 9)
    return 1 / per_second if x >= 1 else (2 * x * factor - 2 * x * x) / per_second
