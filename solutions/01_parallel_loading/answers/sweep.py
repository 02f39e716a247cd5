"""Known mistakes of exercise sweep, and right answers in other styles."""

import random

import numpy
import numpy as np
import torch

from course.checks.engine import alternative, mistake


def in_rounds(measure, settings, orders):
    """Seconds of `settings` measured in the given orders, one a round: correct if the orders are."""
    seconds = torch.empty(len(settings), len(orders), dtype=torch.float64)
    for column, order in enumerate(orders):
        for place in order:
            seconds[place, column] = measure(settings[place])
    return seconds


@mistake(
    "sweep",
    "All rounds of one setting come before those of the next, so a drift of the machine looks like an effect of the "
    "setting. Make the loop over rounds the outer one.",
)
def setting_by_setting(measure, settings, rounds=5, seed=0):
    places = list(range(len(settings)))
    random.Random(seed).shuffle(places)
    seconds = torch.empty(len(settings), rounds, dtype=torch.float64)
    for place in places:
        for column in range(rounds):
            seconds[place, column] = measure(settings[place])
    return seconds


@mistake("sweep", "The order is never shuffled: whatever comes last is always measured last. Shuffle in every round.")
def always_in_order(measure, settings, rounds=5, seed=0):
    return in_rounds(measure, settings, [range(len(settings))] * rounds)


@mistake(
    "sweep",
    "Every round has the same order: it was shuffled once, or each round starts from the same seed. Make one "
    "random.Random(seed) and shuffle anew in each round.",
)
def one_order_for_all_rounds(measure, settings, rounds=5, seed=0):
    return in_rounds(measure, settings, [random.Random(seed).sample(range(len(settings)), len(settings))] * rounds)


@mistake(
    "sweep",
    "Settings and rounds are shuffled together, so that a setting can have all its turns early. Finish a round first.",
)
def rounds_mixed(measure, settings, rounds=5, seed=0):
    pairs = [(place, column) for place in range(len(settings)) for column in range(rounds)]
    random.Random(seed).shuffle(pairs)
    seconds = torch.empty(len(settings), rounds, dtype=torch.float64)
    for place, column in pairs:
        seconds[place, column] = measure(settings[place])
    return seconds


@mistake(
    "sweep",
    "Rows stand in the order of measuring. Write each value to the row of its setting: seconds[i, r].",
)
def rows_as_measured(measure, settings, rounds=5, seed=0):
    order, columns = random.Random(seed), []
    for _ in range(rounds):
        columns.append([measure(settings[i]) for i in order.sample(range(len(settings)), len(settings))])
    return torch.tensor(columns, dtype=torch.float64).T


@mistake(
    "sweep",
    "The orders do not depend on the seed, so nobody can repeat them. Draw them from random.Random(seed).",
)
def seed_ignored(measure, settings, rounds=5, seed=0):
    own = random.Random()
    return in_rounds(measure, settings, [own.sample(range(len(settings)), len(settings)) for _ in range(rounds)])


@mistake(
    "sweep",
    "random.seed sets the random numbers of the whole program. Use a generator of your own: random.Random(seed).",
)
def global_seed(measure, settings, rounds=5, seed=0):
    random.seed(seed)
    return in_rounds(measure, settings, [random.sample(range(len(settings)), len(settings)) for _ in range(rounds)])


@mistake(
    "sweep",
    "torch.manual_seed sets the random numbers of the whole program. Hand randperm a torch.Generator of your own.",
)
def global_seed_of_torch(measure, settings, rounds=5, seed=0):
    torch.manual_seed(seed)
    return in_rounds(measure, settings, [torch.randperm(len(settings)).tolist() for _ in range(rounds)])


@mistake(
    "sweep",
    "np.random.seed sets the random numbers of the whole program. Use a generator: np.random.default_rng(seed).",
)
def global_seed_of_numpy(measure, settings, rounds=5, seed=0):
    np.random.seed(seed)
    return in_rounds(measure, settings, [np.random.permutation(len(settings)).tolist() for _ in range(rounds)])


@mistake(
    "sweep",
    "The settings are keys of a dictionary, so lists cannot be settings and equal ones share a row. Use their places.",
)
def settings_as_keys(measure, settings, rounds=5, seed=0):
    own, seconds = random.Random(seed), {setting: [] for setting in settings}
    for _ in range(rounds):
        for setting in own.sample(settings, len(settings)):
            seconds[setting].append(measure(setting))
    return torch.tensor([seconds[setting] for setting in settings], dtype=torch.float64)


@mistake(
    "sweep",
    "settings.index finds the first of equal settings, so the others get no row of their own. Shuffle places instead.",
)
def index_of_the_setting(measure, settings, rounds=5, seed=0):
    own, seconds = random.Random(seed), torch.zeros(len(settings), rounds, dtype=torch.float64)
    for column in range(rounds):
        for setting in own.sample(settings, len(settings)):
            seconds[settings.index(setting), column] = measure(setting)
    return seconds


@mistake("sweep", "The list of the caller is shuffled. Shuffle a list of places, or a copy.")
def callers_list_shuffled(measure, settings, rounds=5, seed=0):
    own, known = random.Random(seed), list(settings)
    seconds = torch.zeros(len(known), rounds, dtype=torch.float64)
    for column in range(rounds):
        own.shuffle(settings)
        for setting in settings:
            seconds[next(i for i, s in enumerate(known) if s is setting), column] = measure(setting)
    return seconds


@mistake(
    "sweep",
    "Each order is the one before, rotated by one: a setting still follows the same other one. Shuffle.",
)
def turned_by_one(measure, settings, rounds=5, seed=0):
    n = len(settings)
    return in_rounds(measure, settings, [[(seed + r + i) % n for i in range(n)] for r in range(rounds)])


@alternative("sweep")
def permutations_of_torch(measure, settings, rounds=5, seed=0):
    own = torch.Generator().manual_seed(seed)
    columns = []
    for _ in range(rounds):
        order = torch.randperm(len(settings), generator=own)
        column = torch.tensor([measure(settings[i]) for i in order.tolist()], dtype=torch.float64)
        columns.append(column[order.argsort()])
    return torch.stack(columns, dim=1)


@alternative("sweep")
def permutations_of_numpy(measure, settings, rounds=5, seed=0):
    own = numpy.random.default_rng(seed)
    result = numpy.full((len(settings), rounds), numpy.nan)
    for r in range(rounds):
        for i in own.permutation(len(settings)):
            result[i, r] = measure(settings[i])
    return torch.from_numpy(result)


@alternative("sweep")
def shuffled_pairs(measure, settings, rounds=5, seed=0):
    pairs, own, rows = list(enumerate(settings)), random.Random(str(seed)), [[] for _ in settings]
    for _ in range(rounds):
        for place, setting in own.sample(pairs, k=len(pairs)):
            rows[place].append(measure(setting))
    return torch.tensor(rows, dtype=torch.float64)
