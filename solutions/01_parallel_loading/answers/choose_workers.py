"""Known mistakes of exercise choose_workers, and right answers in other styles."""

from course.checks.engine import alternative, mistake


def limit(seconds, slack):
    if not seconds:
        raise ValueError("no candidates")
    return (1 + slack) * min(seconds.values())


@mistake(
    "choose_workers",
    "This is the fastest candidate. Asked for is the smallest one that is nearly as fast: first the limit, then min.",
)
def the_fastest(seconds, slack=0.05):
    limit(seconds, slack)
    return min(seconds, key=seconds.get)


@mistake("choose_workers", "Slack is added as seconds. It is a share of the best: multiply by (1 + slack).")
def slack_in_seconds(seconds, slack=0.05):
    return min(w for w in seconds if seconds[w] <= limit(seconds, 0) + slack)


@mistake("choose_workers", "The first candidate that is good enough is taken, in the order given. Take the smallest.")
def first_of_all(seconds, slack=0.05):
    return next(w for w in seconds if seconds[w] <= limit(seconds, slack))


@mistake("choose_workers", "A prediction exactly at the limit is refused. At most means <=.")
def below_the_limit_only(seconds, slack=0.05):
    best = limit(seconds, 0)
    return min(w for w in seconds if seconds[w] < limit(seconds, slack) or seconds[w] == best)


@mistake("choose_workers", "0 workers are left out, as if processes always paid. They are a candidate like others.")
def never_zero(seconds, slack=0.05):
    return the_smallest({w: s for w, s in seconds.items() if w}, slack)


@mistake(
    "choose_workers",
    "Without candidates the error comes from min(), which does not say what is missing. Raise one of your own.",
)
def error_of_min(seconds, slack=0.05):
    return min(w for w in seconds if seconds[w] <= (1 + slack) * min(seconds.values()))


def the_smallest(seconds, slack):
    return min(w for w in seconds if seconds[w] <= limit(seconds, slack))


@alternative("choose_workers")
def sorted_and_first(seconds, slack=0.05):
    if len(seconds) == 0:
        raise ValueError("I need some candidates to choose from")
    best = sorted(seconds.values())[0]
    for w in sorted(seconds):
        if seconds[w] <= best + slack * best:
            return w


@alternative("choose_workers")
def filtered(seconds, slack=0.05):
    most = limit(seconds, slack)
    return sorted(filter(lambda w: seconds[w] <= most, seconds))[0]
