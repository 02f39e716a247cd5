"""Known mistakes of exercise sweep, and right answers in other styles."""

import numpy
import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "setting_by_setting": (
        "All rounds of one setting come before those of the next, so a drift of the machine looks like an effect of "
        "the setting. Make the loop over rounds the outer one.",
        (
            "    for column in range(rounds):\n        order.shuffle(places)\n        for place in places:\n",
            "    order.shuffle(places)\n    for place in places:\n        for column in range(rounds):\n",
        ),
    ),
    "always_in_order": (
        "The order is never shuffled: whatever comes last is always measured last. Shuffle in every round.",
        ("        order.shuffle(places)\n", ""),
    ),
    "one_order_for_all_rounds": (
        "Every round has the same order: it was shuffled once, or each round starts from the same seed. Make one "
        "random.Random(seed) and shuffle again in each round.",
        (
            "    for column in range(rounds):\n        order.shuffle(places)\n",
            "    order.shuffle(places)\n    for column in range(rounds):\n",
        ),
    ),
    "rounds_mixed": (
        "Settings and rounds are shuffled together, so a setting can have all its turns early. Finish a round first.",
        (
            "    for column in range(rounds):\n        order.shuffle(places)\n        for place in places:\n    ",
            "    pairs = [(place, column) for place in places for column in range(rounds)]\n"
            "    order.shuffle(pairs)\n    for place, column in pairs:\n",
        ),
    ),
    "rows_as_measured": (
        "Rows are in the order of measuring. Write each value to the row of its setting: seconds[i, r].",
        (
            "for place in places:\n            seconds[place",
            "for row, place in enumerate(places):\n            seconds[row",
        ),
    ),
    "seed_ignored": (
        "The orders do not depend on the seed, so nobody can repeat them. Draw them from random.Random(seed).",
        ("random.Random(seed)", "random.Random()"),
    ),
    "global_seed": (
        "random.seed reseeds the whole program. Use your own generator: random.Random(seed).",
        ("order = random.Random(seed)", "random.seed(seed)"),
        ("order.shuffle", "random.shuffle"),
    ),
    "global_seed_of_torch": (
        "torch.manual_seed reseeds the whole program. Pass your own torch.Generator to randperm.",
        ("order = random.Random(seed)", "torch.manual_seed(seed)"),
        ("order.shuffle(places)", "places = torch.randperm(len(settings)).tolist()"),
    ),
    "global_seed_of_numpy": (
        "np.random.seed sets the random numbers of the whole program. Use a generator: np.random.default_rng(seed).",
        ("order = random.Random(seed)", "import numpy as np\n\n    np.random.seed(seed)"),
        ("order.shuffle", "np.random.shuffle"),
    ),
    "settings_as_keys": (
        "Settings are keys of a dictionary, so lists cannot be settings and equal ones share a row. Use their places.",
        ("torch.empty(len(settings), rounds, dtype=torch.float64)", "{setting: [] for setting in settings}"),
        (
            "seconds[place, column] = measure(settings[place])",
            "seconds[settings[place]].append(measure(settings[place]))",
        ),
        ("return seconds", "return torch.tensor([seconds[setting] for setting in settings], dtype=torch.float64)"),
    ),
    "index_of_the_setting": (
        "settings.index finds the first of equal settings, so the others get no row. Shuffle positions instead.",
        ("torch.empty", "torch.zeros"),
        ("seconds[place,", "seconds[settings.index(settings[place]),"),
    ),
    "callers_list_shuffled": (
        "The list of the caller is shuffled. Shuffle a list of places, or a copy.",
        ("    places =", "    known = list(settings)\n    places ="),
        ("shuffle(places)", "shuffle(places)\n        settings[:] = [known[place] for place in places]"),
        ("measure(settings[", "measure(known["),
    ),
    "turned_by_one": (
        "Each order is the one before, rotated by one: a setting still follows the same other one. Shuffle.",
        ("order.shuffle(places)", "places = [(seed + column + i) % len(places) for i in range(len(places))]"),
    ),
}


@alternative
def permutations_of_torch(measure, settings, rounds=5, seed=0):
    own = torch.Generator().manual_seed(seed)
    columns = []
    for _ in range(rounds):
        order = torch.randperm(len(settings), generator=own)
        column = torch.tensor([measure(settings[i]) for i in order.tolist()], dtype=torch.float64)
        columns.append(column[order.argsort()])
    return torch.stack(columns, dim=1)


@alternative
def permutations_of_numpy(measure, settings, rounds=5, seed=0):
    own = numpy.random.default_rng(seed)
    result = numpy.full((len(settings), rounds), numpy.nan)
    for r in range(rounds):
        for i in own.permutation(len(settings)):
            result[i, r] = measure(settings[i])
    return torch.from_numpy(result)
