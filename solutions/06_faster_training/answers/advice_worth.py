"""Known mistakes of exercise advice_worth, and right answers in other styles."""

import collections
import statistics

from course.checks.engine import alternative, mistake


def _table(runs):
    """{name: {seed: seconds}}, the latest run of each."""
    found = collections.defaultdict(dict)
    for name, seed, seconds in runs:
        found[name][seed] = seconds
    return found


def _worth(table, base, of):
    """{name: of(seconds without, seconds of the base)} for names with a seed in common, both in the order of seeds."""
    made = {}
    for name, times in table.items():
        both = sorted(times.keys() & table[base].keys())
        if name != base and both:
            made[name] = of([times[s] for s in both], [table[base][s] for s in both])
    return made


def _triple(ratios):
    return statistics.median(ratios), min(ratios), max(ratios)


def _ratios(without, everything):
    return [a / b for a, b in zip(without, everything, strict=True)]


@mistake(
    "advice_worth",
    "The ratio of medians compares runs of different seeds. Divide seed by seed, then take the median.",
)
def ratio_of_medians(runs, base):
    def of(without, everything):
        ratios = _ratios(without, everything)
        return statistics.median(without) / statistics.median(everything), min(ratios), max(ratios)

    return _worth(_table(runs), base, of)


@mistake(
    "advice_worth",
    "The ratio of medians, each over all seeds of its name, compares runs of different seeds. Divide seed by seed, "
    "then take the median.",
)
def ratio_of_all_medians(runs, base):
    table = _table(runs)
    found = _worth(table, base, lambda *times: _triple(_ratios(*times)))
    middle = {name: statistics.median(times.values()) for name, times in table.items()}
    return {name: (middle[name] / middle[base], *others) for name, (_, *others) in found.items()}


@mistake(
    "advice_worth",
    "Medians, lowest and highest times are divided by each other: they come from different seeds. Divide seed by seed, "
    "then take median, lowest and highest of the ratios.",
)
def ratios_of_triples(runs, base):
    def of(without, everything):
        return tuple(a / b for a, b in zip(_triple(without), _triple(everything), strict=True))

    return _worth(_table(runs), base, of)


@mistake(
    "advice_worth", "Every run is divided by the median of the base. Divide it by the base's run of the same seed."
)
def over_the_median_of_the_base(runs, base):
    def of(without, everything):
        return _triple([seconds / statistics.median(everything) for seconds in without])

    return _worth(_table(runs), base, of)


def _lists(runs):
    """{name: seconds of all its runs}: seeds are forgotten."""
    found = collections.defaultdict(list)
    for name, _, seconds in runs:
        found[name].append(seconds)
    return found


@mistake(
    "advice_worth",
    "Seeds are forgotten: medians, lowest and highest times of different seeds are divided by each other. Divide seed "
    "by seed, then take median, lowest and highest of the ratios.",
)
def seeds_forgotten(runs, base):
    times = _lists(runs)
    found = {
        name: [a / b for a, b in zip(_triple(own), _triple(times[base]), strict=True)] for name, own in times.items()
    }
    return {name: tuple(ratios) for name, ratios in found.items() if name != base}


@mistake(
    "advice_worth",
    "Seeds are forgotten: every run is divided by the median of the base. Divide it by the base's run of its own seed.",
)
def over_one_median(runs, base):
    times = _lists(runs)
    middle = statistics.median(times[base])
    return {name: _triple([seconds / middle for seconds in own]) for name, own in times.items() if name != base}


@mistake(
    "advice_worth",
    "The ratio is upside down. Divide the time without the advice by that of the base: above 1, it helps.",
)
def upside_down(runs, base):
    return _worth(_table(runs), base, lambda without, everything: _triple(_ratios(everything, without)))


@mistake(
    "advice_worth", "The mean of the ratios is returned. One run that never ends makes it infinite: use the median."
)
def mean_ratio(runs, base):
    def of(without, everything):
        ratios = _ratios(without, everything)
        return statistics.mean(ratios), min(ratios), max(ratios)

    return _worth(_table(runs), base, of)


@mistake(
    "advice_worth", "The first run of a name and seed counts. Runs stand in the order of time: the latest replaces it."
)
def first_run(runs, base):
    return _worth(_table(runs[::-1]), base, lambda *times: _triple(_ratios(*times)))


@mistake("advice_worth", "The fastest run of a name and seed counts, which is the luckiest. The latest is asked for.")
def fastest_run(runs, base):
    best = {}
    for name, seed, seconds in runs:
        best[name, seed] = min(seconds, best.get((name, seed), seconds))
    fastest = [(name, seed, seconds) for (name, seed), seconds in best.items()]
    return _worth(_table(fastest), base, lambda *times: _triple(_ratios(*times)))


@mistake(
    "advice_worth",
    "Runs that never reached the target are left out, which makes slow advice look fast. Their seconds are infinite: "
    "let them count.",
)
def without_the_unfinished(runs, base):
    finished = [run for run in runs if run[2] < float("inf")]
    return _worth(_table(finished), base, lambda *times: _triple(_ratios(*times)))


@mistake("advice_worth", "Every run is divided by the mean of the base. Divide it by the base's run of the same seed.")
def over_the_mean_of_the_base(runs, base):
    def of(without, everything):
        return _triple([seconds / statistics.mean(everything) for seconds in without])

    return _worth(_table(runs), base, of)


@mistake("advice_worth", "Runs are paired by their place in the list. Pair them by their seeds.")
def paired_by_place(runs, base):
    times = collections.defaultdict(list)
    for name, _, seconds in runs:
        times[name].append(seconds)
    pairs = {name: list(zip(own, times[base], strict=False)) for name, own in times.items() if name != base}
    return {name: _triple([a / b for a, b in both]) for name, both in pairs.items()}


@mistake("advice_worth", "The base is compared with itself. Leave it out.")
def with_the_base(runs, base):
    table = _table(runs)
    ones = {base: (1.0, 1.0, 1.0)} if table[base] else {}
    return ones | _worth(table, base, lambda *times: _triple(_ratios(*times)))


@alternative("advice_worth")
def by_one_dictionary(runs, base):
    latest = {(name, seed): seconds for name, seed, seconds in runs}
    ratios = {}
    for (name, seed), seconds in latest.items():
        if name != base and (base, seed) in latest:
            ratios.setdefault(name, []).append(seconds / latest[base, seed])
    return {name: _triple(values) for name, values in ratios.items()}


@alternative("advice_worth")
def sorted_ratios(runs, base):
    def of(without, everything):
        r = sorted(_ratios(without, everything))
        return (r[(len(r) - 1) // 2] + r[len(r) // 2]) / 2, r[0], r[-1]

    return _worth(_table(runs), base, of)
