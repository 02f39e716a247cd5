"""Known mistakes of exercise where_time_goes, and right answers in other styles."""

from collections import defaultdict

from course.checks.engine import alternative, mistake


def _of(events, phases):
    return [event for event in events if event[0] in phases]


def _sums(events, phases):
    return {phase: float(sum(end - start for name, start, end in events if name == phase)) for phase in phases}


def _shares(sums, total):
    shares = {phase: taken / total for phase, taken in sums.items()}
    return shares | {"other": 1 - sum(shares.values())}


@mistake(
    "where_time_goes",
    "The total is the sum of all events, so operations inside a phase count a second time. Take the time from the "
    "first phase's start to the last one's end.",
)
def sum_of_all_events(events, phases):
    return _shares(_sums(events, phases), sum(end - start for _, start, end in events))


@mistake(
    "where_time_goes",
    "The total is the sum of the phases, so time between them is lost and 'other' is always 0. Take the time from the "
    "first phase's start to the last one's end.",
)
def sum_of_the_phases(events, phases):
    sums = _sums(events, phases)
    return _shares(sums, sum(sums.values()))


@mistake("where_time_goes", "Only the last event of each phase counts. Add up all events with the same name.")
def last_event_only(events, phases):
    own = _of(events, phases)
    total = max(e for _, _, e in own) - min(s for _, s, _ in own)
    sums = dict.fromkeys(phases, 0.0) | {name: end - start for name, start, end in own}
    return _shares(sums, total)


@mistake("where_time_goes", "The total begins at time 0. A profile's clock does not: subtract the first phase's start.")
def total_from_zero(events, phases):
    return _shares(_sums(events, phases), max(end for _, _, end in _of(events, phases)))


@mistake("where_time_goes", "The shares are percent. Return fractions, which add up to 1.")
def percent(events, phases):
    own = _of(events, phases)
    total = max(e for _, _, e in own) - min(s for _, s, _ in own)
    return {phase: 100 * share for phase, share in _shares(_sums(events, phases), total).items()}


@mistake(
    "where_time_goes",
    "The total reaches over all events, also those before the first phase and after the last. Take phases alone.",
)
def span_of_all_events(events, phases):
    return _shares(_sums(events, phases), max(e for _, _, e in events) - min(s for _, s, _ in events))


@mistake("where_time_goes", "A phase that never ran is missing. Begin with a share of 0 for every phase.")
def only_phases_that_ran(events, phases):
    own = _of(events, phases)
    total = max(e for _, _, e in own) - min(s for _, s, _ in own)
    return _shares({p: taken for p, taken in _sums(events, phases).items() if taken}, total)


@mistake(
    "where_time_goes",
    "The events are taken to be in the order of time. They come in any order: use the smallest start, the largest end.",
)
def first_and_last_of_the_list(events, phases):
    own = _of(events, phases)
    return _shares(_sums(events, phases), own[-1][2] - own[0][1])


@mistake("where_time_goes", "Calls are counted, not time. Add up end - start.")
def calls_instead_of_time(events, phases):
    own = _of(events, phases)
    return _shares({phase: float(sum(name == phase for name, _, _ in own)) for phase in phases}, len(own))


@alternative("where_time_goes")
def sums_first(events, phases):
    own = _of(events, phases)
    total = max(e for _, _, e in own) - min(s for _, s, _ in own)
    return _shares(_sums(events, phases), total)


@alternative("where_time_goes")
def with_a_default(events, phases):
    sums, starts, ends = defaultdict(float), [], []
    for name, start, end in sorted(events, key=lambda event: event[1]):
        if name in phases:
            sums[name] += end - start
            starts.append(start)
            ends.append(end)
    whole = max(ends) - starts[0]
    found = {phase: sums[phase] / whole for phase in phases}
    found["other"] = (whole - sum(sums[phase] for phase in phases)) / whole
    return found
