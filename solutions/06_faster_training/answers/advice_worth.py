"""Known mistakes of exercise advice_worth, and right answers in other styles."""

import collections
import statistics

from course.checks.known_answers import alternative

TRIPLE = "(statistics.median(own), min(own), max(own))"
PAIRED = ("seconds / latest[base, seed]", "(seconds, latest[base, seed])")
FORGET_SEEDS = (
    ("for (name, seed), seconds in latest.items()", "for name, _, seconds in runs"),
    ("if name != base and (base, seed) in latest", "if True"),
    ("seconds / latest[base, seed]", "seconds"),
    ("in ratios.items()", "in ratios.items() if name != base"),
)
MISTAKES = {
    "ratio_of_medians": (
        "The ratio of medians compares runs of different seeds. Divide seed by seed, then take the median.",
        PAIRED,
        ("statistics.median(own)", "statistics.median(a for a, _ in own) / statistics.median(b for _, b in own)"),
        ("min(own), max(own)", "min(a / b for a, b in own), max(a / b for a, b in own)"),
    ),
    "ratio_of_all_medians": (
        "The ratio of medians, each over all seeds of its name, compares runs of different seeds. Divide seed by seed, "
        "then take the median.",
        (
            "ratios = {}",
            "ratios = {}\n    middle = lambda n: statistics.median(latest[run] for run in latest if run[0] == n)",
        ),
        ("statistics.median(own)", "middle(name) / middle(base)"),
    ),
    "ratios_of_triples": (
        "Medians, lowest and highest times are divided by each other: they come from different seeds. Divide seed by "
        "seed, then take median, lowest and highest of the ratios.",
        PAIRED,
        (TRIPLE, "tuple(f(a for a, _ in own) / f(b for _, b in own) for f in (statistics.median, min, max))"),
    ),
    "over_the_median_of_the_base": (
        "Every run is divided by the median of the base. Divide it by the base's run of the same seed.",
        PAIRED,
        (
            TRIPLE,
            "tuple(f(a for a, _ in own) / statistics.median(b for _, b in own) for f in (statistics.median, min, max))",
        ),
    ),
    "seeds_forgotten": (
        "Seeds are forgotten: medians, lowest and highest times of different seeds are divided by each other. Divide "
        "seed by seed, then take median, lowest and highest of the ratios.",
        *FORGET_SEEDS,
        (TRIPLE, "tuple(f(own) / f(ratios[base]) for f in (statistics.median, min, max))"),
    ),
    "over_one_median": (
        "Seeds are forgotten: every run is divided by the median of the base. Divide it by the base's run of its own "
        "seed.",
        *FORGET_SEEDS,
        (TRIPLE, "tuple(f(own) / statistics.median(ratios[base]) for f in (statistics.median, min, max))"),
    ),
    "upside_down": (
        "The ratio is upside down. Divide the time without the advice by that of the base: above 1, it helps.",
        ("seconds / latest[base, seed]", "latest[base, seed] / seconds"),
    ),
    "mean_ratio": (
        "The mean of the ratios is returned. One run that never ends makes it infinite: use the median.",
        ("statistics.median", "statistics.mean"),
    ),
    "upper_median": (
        "With two seeds the larger ratio is taken for the median. It is the mean of the two in the middle.",
        ("statistics.median", "statistics.median_high"),
    ),
    "first_run": (
        "The first run of a name and seed counts. Runs are in the order of time: the latest replaces it.",
        ("in runs}", "in reversed(runs)}"),
    ),
    "fastest_run": (
        "The fastest run of a name and seed counts, which is the luckiest. Use the latest.",
        ("in runs}", "in sorted(runs, key=lambda run: -run[2])}"),
    ),
    "without_the_unfinished": (
        "Runs that never reached the target are left out, which makes slow advice look fast. Their seconds are "
        "infinite: let them count.",
        ("in runs}", "in runs if seconds < math.inf}"),
    ),
    "over_the_mean_of_the_base": (
        "Every run is divided by the mean of the base. Divide it by the base's run of the same seed.",
        PAIRED,
        (
            TRIPLE,
            "tuple(f(a for a, _ in own) / statistics.mean(b for _, b in own) for f in (statistics.median, min, max))",
        ),
    ),
    "paired_by_place": (
        "Runs are paired by their place in the list. Pair them by their seeds.",
        (
            "### BEGIN SOLUTION",
            "runs = [(n, sum(n == m for m, _, _ in runs[:i]), seconds) for i, (n, _, seconds) in enumerate(runs)]",
        ),
    ),
    "with_the_base": ("The base is compared with itself. Leave it out.", ("name != base and ", "")),
}


@alternative
def by_one_dictionary(runs, base):
    latest = {(name, seed): seconds for name, seed, seconds in runs}
    ratios = collections.defaultdict(list)
    for (name, seed), seconds in latest.items():
        if name != base and (base, seed) in latest:
            ratios[name].append(seconds / latest[base, seed])
    return {name: (statistics.median(own), min(own), max(own)) for name, own in ratios.items()}


@alternative
def sorted_ratios(runs, base):
    table, made = collections.defaultdict(dict), {}
    for name, seed, seconds in runs:
        table[name][seed] = seconds
    for name in list(table):
        r = sorted(table[name][seed] / table[base][seed] for seed in table[name].keys() & table[base].keys())
        if r and name != base:
            made[name] = (r[(len(r) - 1) // 2] + r[len(r) // 2]) / 2, r[0], r[-1]
    return made
