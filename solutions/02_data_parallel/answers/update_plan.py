"""Known mistakes of exercise update_plan, and right answers in other styles."""

from course.checks.engine import alternative, mistake


@mistake(
    "update_plan",
    "`i % every == 0` holds for i = 0: an update follows the first micro-batch. Count those that are through, i + 1.",
)
def after_the_first(n_batches, every):
    return [i % every == 0 or i == n_batches - 1 for i in range(n_batches)]


@mistake(
    "update_plan",
    "The gradients of a short last group are never used. The last micro-batch of the epoch has an update too.",
)
def tail_dropped(n_batches, every):
    return [(i + 1) % every == 0 for i in range(n_batches)]


@mistake(
    "update_plan",
    "The numbers of the micro-batches with an update are listed. Say True or False for every micro-batch.",
)
def numbers_of_updates(n_batches, every):
    return [i for i in range(n_batches) if (i + 1) % every == 0 or i + 1 == n_batches]


@mistake("update_plan", "An update follows every micro-batch but each `every`-th: the condition is turned round.")
def turned_round(n_batches, every):
    return [not ((i + 1) % every == 0 or i + 1 == n_batches) for i in range(n_batches)]


@mistake("update_plan", "An epoch without micro-batches gets an update. Its plan is an empty list.")
def one_for_nothing(n_batches, every):
    return [(i + 1) % every == 0 for i in range(n_batches - 1)] + [True]


@alternative("update_plan")
def group_by_group(n_batches, every):
    plan = []
    while len(plan) < n_batches:
        size = min(every, n_batches - len(plan))
        plan += [False] * (size - 1) + [True]
    return plan


@alternative("update_plan")
def set_afterwards(n_batches, every):
    plan = [False] * n_batches
    plan[every - 1 :: every] = [True] * len(plan[every - 1 :: every])
    plan[-1:] = [True] * min(1, n_batches)
    return plan
