"""Known mistakes of exercise token_budget_batches, and right answers in other styles."""

from course.checks.engine import alternative, mistake


def _filled(lengths, budget, order, fits):
    """Batches that a sequence joins where `fits(rows, longest, total)` says so, these counted with it."""
    if int(lengths.max()) > budget:
        raise ValueError("too long")
    batches, longest, total = [[]], 0, 0
    for index in range(len(lengths)) if order is None else order.tolist():
        length = int(lengths[index])
        if batches[-1] and not fits(len(batches[-1]) + 1, max(longest, length), total + length):
            batches.append([])
            longest = total = 0
        batches[-1].append(index)
        longest, total = max(longest, length), total + length
    return batches


@mistake(
    "token_budget_batches",
    "Real tokens are counted, not those of the rectangle. A batch takes rows × longest cells.",
)
def real_tokens_counted(lengths, budget, order=None):
    return _filled(lengths, budget, order, lambda rows, longest, total: total <= budget)


@mistake(
    "token_budget_batches",
    "A budget that is met exactly counts as exceeded. The rectangle may have `budget` cells.",
)
def exact_budget_refused(lengths, budget, order=None):
    return _filled(lengths, budget, order, lambda rows, longest, total: rows * longest < budget)


@mistake(
    "token_budget_batches",
    "The check looks at the batch without the new sequence, so the batch may grow over the budget.",
)
def checked_before_joining(lengths, budget, order=None):
    if int(lengths.max()) > budget:
        raise ValueError("too long")
    batches, longest = [[]], 0
    for index in range(len(lengths)) if order is None else order.tolist():
        if len(batches[-1]) * longest >= budget:
            batches.append([])
            longest = 0
        batches[-1].append(index)
        longest = max(longest, int(lengths[index]))
    return batches


@mistake(
    "token_budget_batches",
    "The longest sequence is remembered from the batches before. It begins anew with each batch.",
)
def longest_never_forgotten(lengths, budget, order=None):
    if int(lengths.max()) > budget:
        raise ValueError("too long")
    batches, longest = [[]], 0
    for index in range(len(lengths)) if order is None else order.tolist():
        longest = max(longest, int(lengths[index]))
        if batches[-1] and (len(batches[-1]) + 1) * longest > budget:
            batches.append([])
        batches[-1].append(index)
    return batches


@mistake("token_budget_batches", "The order is ignored. Go through the sequences as `order` says.")
def order_ignored(lengths, budget, order=None):
    return _filled(lengths, budget, None, lambda rows, longest, total: rows * longest <= budget)


@mistake(
    "token_budget_batches",
    "A sequence longer than the budget gets a batch of its own. It does not fit: raise ValueError.",
)
def too_long_alone(lengths, budget, order=None):
    return _filled(lengths.clamp(max=budget), budget, order, lambda rows, longest, total: rows * longest <= budget)


@alternative("token_budget_batches")
def by_a_condition(lengths, budget, order=None):
    return _filled(lengths, budget, order, lambda rows, longest, total: rows * longest <= budget)


@alternative("token_budget_batches")
def current_batch_apart(lengths, budget, order=None):
    lengths = lengths.tolist()
    if max(lengths) > budget:
        raise ValueError(max(lengths))
    found, current = [], []
    for i in order.tolist() if order is not None else range(len(lengths)):
        if (
            current
            and len(current) * max(lengths[j] for j in [*current, i]) + max(lengths[j] for j in [*current, i]) > budget
        ):
            found.append(current)
            current = []
        current.append(i)
    return [*found, current]
