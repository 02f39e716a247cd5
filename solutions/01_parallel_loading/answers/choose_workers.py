"""Known mistakes of exercise choose_workers, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def predictions(model, in_main, candidates):
    floor, work, overhead = model
    if not candidates:
        raise ValueError("no candidates")
    return {w: max(floor, work / w + overhead) if w else in_main for w in candidates}


@mistake(
    "choose_workers",
    "This is the fastest candidate. Asked for is the smallest one that is nearly as fast: first the limit, then min.",
)
def the_fastest(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    return min(candidates, key=seconds.get)


@mistake("choose_workers", "Slack is added as seconds. It is a share of the best: multiply by (1 + slack).")
def slack_in_seconds(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    return min(w for w in candidates if seconds[w] <= min(seconds.values()) + slack)


@mistake(
    "choose_workers",
    "The limit comes from 0 workers even where 0 is no candidate. Compare with the candidates only.",
)
def main_process_always_compared(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    limit = (1 + slack) * min(in_main, *seconds.values())
    return min((w for w in candidates if seconds[w] <= limit), default=0)


@mistake("choose_workers", "The first candidate that is good enough is taken, in the order given. Take the smallest.")
def first_of_the_list(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    return next(w for w in candidates if seconds[w] <= (1 + slack) * min(seconds.values()))


@mistake("choose_workers", "A prediction exactly at the limit is refused. At most means <=.")
def below_the_limit_only(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    best = min(seconds.values())
    return min(w for w in candidates if seconds[w] < (1 + slack) * best or seconds[w] == best)


@mistake(
    "choose_workers",
    "0 workers are left out, as if multiprocessing always paid. Their prediction is in_main.",
)
def never_zero(model, in_main, candidates, slack=0.05):
    seconds = predictions(model, in_main, candidates)
    some = [w for w in candidates if w] or [0]
    return min(w for w in some if seconds[w] <= (1 + slack) * min(seconds[v] for v in some))


@mistake(
    "choose_workers",
    "Without candidates the error comes from min(), which does not say what is missing. Raise one of your own.",
)
def error_of_min(model, in_main, candidates, slack=0.05):
    seconds = {w: predictions(model, in_main, [w])[w] for w in candidates}
    return min(w for w in candidates if seconds[w] <= (1 + slack) * min(seconds.values()))


@mistake("choose_workers", "Work and overhead have changed places. The model is (floor, work, overhead).")
def work_and_overhead_swapped(model, in_main, candidates, slack=0.05):
    floor, overhead, work = model
    seconds = predictions((floor, work, overhead), in_main, candidates)
    return min(w for w in candidates if seconds[w] <= (1 + slack) * min(seconds.values()))


@mistake("choose_workers", "The overhead is left out of the prediction. It is max(floor, work / w + overhead).")
def overhead_forgotten(model, in_main, candidates, slack=0.05):
    floor, work, _ = model
    seconds = predictions((floor, work, 0.0), in_main, candidates)
    return min(w for w in candidates if seconds[w] <= (1 + slack) * min(seconds.values()))


@mistake("choose_workers", "The floor is left out, so more workers always look faster. It is a maximum of two terms.")
def floor_forgotten(model, in_main, candidates, slack=0.05):
    _, work, overhead = model
    seconds = predictions((0.0, work, overhead), in_main, candidates)
    return min(w for w in candidates if seconds[w] <= (1 + slack) * min(seconds.values()))


@alternative("choose_workers")
def sorted_and_first(model, in_main, candidates, slack=0.05):
    if len(candidates) == 0:
        raise ValueError("I need some candidates to choose from")

    def seconds(w):
        return in_main if w == 0 else max(model[0], model[1] / w + model[2])

    best = min(map(seconds, candidates))
    for w in sorted(candidates):
        if seconds(w) <= best + slack * best:
            return w


@alternative("choose_workers")
def masked_tensor(model, in_main, candidates, slack=0.05):
    if not list(candidates):
        raise ValueError("candidates is empty")
    floor, work, overhead = model
    w = torch.tensor(candidates)
    times = torch.where(w == 0, in_main, (work / w.clamp(min=1).double() + overhead).clamp(min=floor))
    return int(w[times <= times.min() * (1 + slack)].min())
