"""Known mistakes of exercise choose_workers, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "the_fastest": (
        "This is the fastest candidate. Return the smallest that is nearly as fast: first the limit, then min.",
        ("min(w for w in seconds if seconds[w] <= limit)", "min(seconds, key=seconds.get)"),
    ),
    "slack_in_seconds": (
        "Slack is added as seconds. It is a share of the best: multiply by (1 + slack).",
        ("(1 + slack) *", "slack +"),
    ),
    "first_of_all": (
        "The first candidate that is good enough is taken, in the order given. Take the smallest.",
        ("min(w", "next(w"),
    ),
    "below_the_limit_only": (
        "A number exactly at the limit is left out. 'At most' means <=.",
        ("<= limit", "< limit or seconds[w] == min(seconds.values())"),
    ),
    "never_zero": (
        "0 workers are left out, as if processes always paid. They are a candidate like others.",
        ("    limit =", "    seconds = {w: s for w, s in seconds.items() if w}\n    limit ="),
    ),
}


@alternative
def sorted_and_first(seconds, slack=0.05):
    best = sorted(seconds.values())[0]
    for w in sorted(seconds):
        if seconds[w] <= best + slack * best:
            return w


@alternative
def filtered(seconds, slack=0.05):
    most = (1 + slack) * min(seconds.values())
    return sorted(filter(lambda w: seconds[w] <= most, seconds))[0]
