"""Known mistakes of exercise token_budget_batches, and right answers in other styles."""

from course.checks.engine import alternative, mistake


def _filled(lengths, budget, order, fits):
    """Batches that a sequence joins where `fits(sequences, longest, total)` says so, these counted with it."""
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
    "Real tokens are counted, not those of the rectangle. A batch takes sequences × longest cells.",
)
def real_tokens_counted(lengths, budget, order=None):
    return _filled(lengths, budget, order, lambda sequences, longest, total: total <= budget)


@mistake(
    "token_budget_batches",
    "A budget that is met exactly counts as exceeded. The rectangle may have `budget` cells.",
)
def exact_budget_refused(lengths, budget, order=None):
    return _filled(lengths, budget, order, lambda sequences, longest, total: sequences * longest < budget)


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
    return _filled(lengths, budget, None, lambda sequences, longest, total: sequences * longest <= budget)


@mistake(
    "token_budget_batches",
    "A sequence longer than the budget gets a batch of its own. It does not fit: raise ValueError.",
)
def too_long_alone(lengths, budget, order=None):
    return _filled(
        lengths.clamp(max=budget), budget, order, lambda sequences, longest, total: sequences * longest <= budget
    )


@mistake("token_budget_batches", "The last batch is lost: append it when the sequences have run out.")
def last_batch_lost(lengths, budget, order=None):
    return _filled(lengths, budget, order, lambda sequences, longest, total: sequences * longest <= budget)[:-1]


@mistake("token_budget_batches", "The batches hold lengths. Return the indices of the sequences.")
def lengths_for_indices(lengths, budget, order=None):
    found = _filled(lengths, budget, order, lambda sequences, longest, total: sequences * longest <= budget)
    return [lengths[batch].tolist() for batch in found]


@mistake(
    "token_budget_batches",
    "The batches hold places in `order`. Return the indices of the sequences: what stands at these places.",
)
def places_for_indices(lengths, budget, order=None):
    lengths = lengths if order is None else lengths[order]
    return _filled(lengths, budget, None, lambda sequences, longest, total: sequences * longest <= budget)


@mistake(
    "token_budget_batches",
    "The new sequence is counted, but not its length. If it is longer than the others, all of them grow.",
)
def longest_without_the_new(lengths, budget, order=None):
    if int(lengths.max()) > budget:
        raise ValueError("too long")
    batches, longest = [[]], 0
    for index in range(len(lengths)) if order is None else order.tolist():
        if batches[-1] and (len(batches[-1]) + 1) * longest > budget:
            batches.append([])
            longest = 0
        batches[-1].append(index)
        longest = max(longest, int(lengths[index]))
    return batches


@mistake(
    "token_budget_batches",
    "The length of the new sequence is counted, but not the sequence: there are len(batch) + 1 of them.",
)
def count_without_the_new(lengths, budget, order=None):
    return _filled(lengths, budget, order, lambda sequences, longest, total: (sequences - 1) * longest <= budget)


@mistake(
    "token_budget_batches",
    "Only the length of the new sequence is looked at. A longer one in the batch still sets the width.",
)
def width_of_the_new(lengths, budget, order=None):
    if int(lengths.max()) > budget:
        raise ValueError("too long")
    batches = [[]]
    for index in range(len(lengths)) if order is None else order.tolist():
        if batches[-1] and (len(batches[-1]) + 1) * int(lengths[index]) > budget:
            batches.append([])
        batches[-1].append(index)
    return batches


@mistake(
    "token_budget_batches",
    "The sequence that begins a new batch is not counted in its longest. Set `longest` to its length, not to 0.",
)
def first_one_not_counted(lengths, budget, order=None):
    if int(lengths.max()) > budget:
        raise ValueError("too long")
    batches, longest = [[]], 0
    for index in range(len(lengths)) if order is None else order.tolist():
        length = int(lengths[index])
        if (len(batches[-1]) + 1) * max(longest, length) > budget:
            batches.append([index])
            longest = 0
        else:
            batches[-1].append(index)
            longest = max(longest, length)
    return batches


@mistake("token_budget_batches", "Sorting by length is the caller's choice. Go through the sequences as `order` says.")
def always_sorted(lengths, budget, order=None):
    return _filled(lengths, budget, lengths.argsort(), lambda sequences, longest, total: sequences * longest <= budget)


@alternative("token_budget_batches")
def by_a_condition(lengths, budget, order=None):
    return _filled(lengths, budget, order, lambda sequences, longest, total: sequences * longest <= budget)


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
