"""Known mistakes of exercise sweep, and right answers in other styles."""

import math

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "only_three": (
        "Three learning rates are tried, and the best may be at an edge. Try until both its neighbours are worse.",
        ("while len(scores) < most:", "for _ in range(2):\n        best = 0"),
    ),
    "only_upwards": (
        "It never tries a lower learning rate. The best needs a neighbour on each side.",
        ("for place in (best + 1, best - 1)", "for place in (best + 1,)"),
    ),
    "only_downwards": (
        "It never tries a higher learning rate. The best needs a neighbour on each side.",
        ("for place in (best + 1, best - 1)", "for place in (best - 1,)"),
    ),
    "without_limit": (
        "`most` is not used. Stop when that many runs are made.",
        ("while len(scores) < most:", "while len(scores) < 60:"),
    ),
    "whole_grid": (
        "It trains on until `most` runs are made. Stop when both neighbours of the best were tried.",
        ("            break", "            untried = [max(scores) + 1]"),
    ),
    "last_one": (
        "The last learning rate is returned. Return the best of those that were tried.",
        ("return start * factor**best", "return start * factor ** list(scores)[-1]"),
    ),
    "the_score": (
        "This is the best score. Return its learning rate.",
        ("return start * factor**best", "return scores[best]"),
    ),
    "lowest": (
        "This looks for the lowest score. A larger score is better: max, not min.",
        ("best = max(", "best = min("),
    ),
    "nan_as_zero": (
        "A run that diverged gets the score 0, which beats a score below 0. Give it -math.inf.",
        ("-math.inf if", "0.0 if"),
    ),
}


def _by_place(score, start, factor):
    """Scores by place on the grid, and a function that trains a place once."""
    scores = {}

    def run(place):
        if place not in scores:
            value = score(start * factor**place)
            scores[place] = -math.inf if math.isnan(value) else value

    return scores, run


@mistake(
    "Both neighbours are tried before it compares scores or counts runs. Do both before each run."
)
def one_run_too_many(score, start, factor=4.0, most=9):
    scores, run = _by_place(score, start, factor)
    run(0)
    best = 0
    while len(scores) < most:
        run(best + 1)
        run(best - 1)
        if scores[best] == max(scores.values()):
            break
        best = max(scores, key=scores.get)
    return start * factor**best


@mistake(
    "Both neighbours are tried before it moves. If the first is better, its own neighbour is the next run."
)
def both_neighbours_first(score, start, factor=4.0, most=9):
    scores, run = _by_place(score, start, factor)
    run(0)
    best = 0
    while len(scores) < most:
        for place in (best + 1, best - 1):
            if len(scores) < most:
                run(place)
        if scores[best] == max(scores.values()):
            break
        best = max(scores, key=scores.get)
    return start * factor ** max(scores, key=scores.get)


@mistake(
    "It trains a grid of `most` learning rates, wherever the best lies. Begin at `start`, and try neighbours."
)
def grid_around_the_start(score, start, factor=4.0, most=9):
    scores, run = _by_place(score, start, factor)
    for place in range(-(most // 2), most - most // 2):
        run(place)
    return start * factor ** max(scores, key=scores.get)


@mistake(
    "Learning rates are the keys, but lr * factor / factor need not equal lr. Use places on the grid as keys."
)
def rates_as_keys(score, start, factor=4.0, most=9):
    def value(lr):
        found = score(lr)
        return -math.inf if math.isnan(found) else found

    scores = {start: value(start)}
    while len(scores) < most:
        best = max(scores, key=scores.get)
        untried = [lr for lr in (best * factor, best / factor) if lr not in scores]
        if not untried:
            break
        scores[untried[0]] = value(untried[0])
    return max(scores, key=scores.get)


@mistake(
    "A run that diverged counts as the best, because `<=` with NaN is False. Give NaN the worst score."
)
def nan_wins(score, start, factor=4.0, most=9):
    scores = {0: score(start)}
    best = 0
    while len(scores) < most:
        untried = [place for place in (best + 1, best - 1) if place not in scores]
        if not untried:
            break
        place = untried[0]
        scores[place] = score(start * factor**place)
        if not scores[place] <= scores[best]:
            best = place
    return start * factor**best


@mistake("A neighbour that was tried is trained again. Keep the scores, and look there first.")
def twice(score, start, factor=4.0, most=9):
    def value(lr):
        found = score(lr)
        return -math.inf if math.isnan(found) else found

    best, at_best = start, value(start)
    runs = 1
    while runs < most:
        higher, lower = best * factor, best / factor
        of_higher = value(higher)
        runs += 1
        of_lower = value(lower) if runs < most else -math.inf
        runs += 1
        if max(of_higher, of_lower) <= at_best:
            break
        best, at_best = (higher, of_higher) if of_higher > of_lower else (lower, of_lower)
    return best


@alternative
def downwards_first(score, start, factor=4.0, most=9):
    tried = []  # (score, learning rate), ascending by learning rate
    place = 0

    def run(lr):
        value = score(lr)
        return (value if value == value else -math.inf, lr)

    tried.append(run(start))
    while len(tried) < most:
        place = max(range(len(tried)), key=lambda i: tried[i][0])
        if place == 0:
            tried.insert(0, run(tried[0][1] / factor))
        elif place == len(tried) - 1:
            tried.append(run(tried[-1][1] * factor))
        else:
            break
    return max(tried)[1]


@alternative
def one_direction_then_the_other(score, start, factor=4.0, most=9):
    scores = {}

    def at(place):
        if place not in scores:
            value = score(start * factor**place)
            scores[place] = -math.inf if math.isnan(value) else value
        return scores[place]

    best = 0
    at(0)
    for step in (1, -1):
        while len(scores) < most and at(best + step) > at(best):
            best += step
    return start * factor ** max(scores, key=scores.get)
