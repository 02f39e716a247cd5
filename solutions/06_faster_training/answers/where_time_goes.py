"""Known mistakes of exercise where_time_goes, and right answers in other styles."""

from collections import defaultdict

from course.engine.known_answers import alternative

TOTAL = "max(end for _, _, end in own) - min(start for _, start, _ in own)"
MISTAKES = {
    "sum_of_all_events": (
        "The total is the sum of all events, so operations inside a phase count a second time. Take the time from the "
        "first phase's start to the last one's end.",
        (TOTAL, "sum(end - start for _, start, end in events)"),
    ),
    "sum_of_the_phases": (
        "The total is the sum of the phases, so time between them is lost and 'other' is always 0. Take the time from "
        "the first phase's start to the last one's end.",
        (TOTAL, "sum(end - start for _, start, end in own)"),
    ),
    "last_event_only": (
        "Only the last event of each phase counts. Add up all events with the same name.",
        ("+=", "="),
    ),
    "total_from_zero": (
        "The total begins at time 0. A profile's clock does not: subtract the first phase's start.",
        (" - min(start for _, start, _ in own)", ""),
    ),
    "percent": (
        "The shares are percent. Return fractions, which add up to 1.",
        ("(end - start)", "100 * (end - start)"),
        ("1 - sum", "100 - sum"),
    ),
    "span_of_all_events": (
        "The total covers all events, even those before the first phase and after the last. Take only the phases.",
        (TOTAL, TOTAL.replace("own", "events")),
    ),
    "only_phases_that_ran": (
        "A phase that never ran is missing. Begin with a share of 0 for every phase.",
        ("fromkeys(phases", "fromkeys([event[0] for event in own]"),
    ),
    "first_and_last_of_the_list": (
        "You assume that the events are sorted by time, but they come in any order. Use the smallest start and the "
        "largest end.",
        (TOTAL, "own[-1][2] - own[0][1]"),
    ),
    "calls_instead_of_time": (
        "You count calls, not time. Add up end - start.",
        ("(end - start) / total", "1 / len(own)"),
    ),
}


@alternative
def sums_first(events, phases):
    own = [event for event in events if event[0] in phases]
    total = max(e for _, _, e in own) - min(s for _, s, _ in own)
    shares = {
        phase: sum(end - start for name, start, end in own if name == phase) / total
        for phase in phases
    }
    return shares | {"other": 1 - sum(shares.values())}


@alternative
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
