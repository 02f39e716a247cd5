"""Known mistakes of exercise halving_doubling, and right answers in other styles."""

import operator

import torch
import torch.distributed as dist

from course.checks.engine import alternative, mistake


def swap(outgoing, incoming, partner, wait=True):
    requests = [dist.irecv(incoming, partner), dist.isend(outgoing, partner)]
    requests[0].wait()
    if wait:
        requests[1].wait()


def halve(
    tensor,
    keeps_low=lambda rank, partner: rank < partner,
    near_first=False,
    wait=True,
    add=1,
    keeps=1,
    partner_of=operator.xor,
):
    """A right first phase, with one idea to get wrong each: (low, high, steps)."""
    rank, n = dist.get_rank(), dist.get_world_size()
    low, high, steps = 0, len(tensor), []
    distances = [n >> k for k in range(1, n.bit_length())]
    for distance in reversed(distances) if near_first else distances:
        partner, middle = partner_of(rank, distance), (low + high) // 2
        given = (middle, high) if keeps_low(rank, partner) else (low, middle)
        low, high = (low, middle) if keeps_low(rank, partner) else (middle, high)
        part = torch.empty_like(tensor[low:high])
        swap(tensor[given[0] : given[1]], part, partner, wait)
        tensor[low:high] = keeps * tensor[low:high] + add * part
        steps.append((partner, given))
    return low, high, steps


def double(tensor, low, high, steps, wait=True):
    for partner, (start, end) in steps:
        swap(tensor[low:high], tensor[start:end], partner, wait)
        low, high = min(low, start), max(high, end)


@mistake(
    "halving_doubling",
    "Whole tensors are exchanged: log2(N) times the bytes. Give away half of what you have, and keep the other half.",
)
def without_halving(tensor):
    rank, distance = dist.get_rank(), dist.get_world_size() // 2
    while distance:
        part = torch.empty_like(tensor)
        swap(tensor.clone(), part, rank ^ distance)
        tensor += part
        distance //= 2


@mistake("halving_doubling", "The second phase is missing: each rank holds 1/N of the sum. Exchange in reverse order.")
def no_doubling(tensor):
    halve(tensor)


@mistake("halving_doubling", "Both partners keep the lower half, so the upper one is never summed. One keeps each.")
def everybody_keeps_the_lower_half(tensor):
    low, high, steps = halve(tensor, keeps_low=lambda rank, partner: True)
    double(tensor, low, high, reversed(steps))


@mistake("halving_doubling", "The nearest rank comes first. Begin with the rank N/2 away, and end with it.")
def nearest_first(tensor):
    low, high, steps = halve(tensor, near_first=True)
    double(tensor, low, high, reversed(steps))


@mistake("halving_doubling", "That is the mean. Give the sum; DDP divides by the world size afterwards.")
def mean_of_halves(tensor):
    low, high, steps = halve(tensor)
    double(tensor, low, high, reversed(steps))
    tensor.copy_(tensor / dist.get_world_size())


@mistake("halving_doubling", "isend is never waited for: its tensor may change while it is sent. Wait for it.")
def never_waited_for(tensor):
    low, high, steps = halve(tensor, wait=False)
    double(tensor, low, high, reversed(steps), wait=False)


@mistake("halving_doubling", "What arrives in the first phase is not added. Add it to the half that you keep.")
def nothing_added(tensor):
    low, high, steps = halve(tensor, add=0)
    double(tensor, low, high, reversed(steps))


@mistake("halving_doubling", "What arrives in the first phase replaces the half that is kept. Add it to that half.")
def kept_half_overwritten(tensor):
    low, high, steps = halve(tensor, keeps=0)
    double(tensor, low, high, reversed(steps))


@mistake("halving_doubling", "What arrives in the second phase is added. It is finished: it replaces what lies there.")
def second_phase_adds(tensor):
    low, high, steps = halve(tensor)
    for partner, (start, end) in reversed(steps):
        part = torch.empty_like(tensor[start:end])
        swap(tensor[low:high], part, partner)
        tensor[start:end] += part
        low, high = min(low, start), max(high, end)


@mistake(
    "halving_doubling",
    "Both partners send first and wait until the other receives: a deadlock. Start both messages, as `exchange` does.",
)
def both_send_first(tensor):
    partner, half = dist.get_rank() ^ dist.get_world_size() // 2, len(tensor) // 2
    if partner != dist.get_rank():
        dist.send(tensor[:half], partner)


@mistake(
    "halving_doubling",
    "From 4 ranks on every rank waits: two ranks exchange only if each names the other as its partner. (rank + "
    "distance) % N names 1 in rank 0 and 2 in rank 1; rank ^ distance names the same pair in both.",
)
def partner_by_adding(tensor):
    n = dist.get_world_size()
    low, high, steps = halve(tensor, partner_of=lambda rank, distance: (rank + distance) % n)
    double(tensor, low, high, reversed(steps))


@alternative("halving_doubling")
def recursive(tensor):
    rank = dist.get_rank()

    def reduce_within(part, distance):
        if not distance:
            return
        lower, upper = part.tensor_split(2)
        kept, given = (upper, lower) if rank & distance else (lower, upper)
        arrived = kept.clone()
        swap(given, arrived, rank ^ distance)
        kept.add_(arrived)
        reduce_within(kept, distance // 2)
        swap(kept, given, rank ^ distance)

    reduce_within(tensor, dist.get_world_size() // 2)


@alternative("halving_doubling")
def blocking_calls_in_turn(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()

    def talk(outgoing, incoming, other):
        calls = [lambda: dist.send(outgoing, other), lambda: dist.irecv(incoming, other).wait()]
        for call in calls if rank < other else reversed(calls):
            call()

    low, size = 0, len(tensor)
    distances = [2**k for k in range(n.bit_length() - 1)]
    for distance in reversed(distances):
        size //= 2
        mine, theirs = (low, low + size) if rank < rank ^ distance else (low + size, low)
        arrived = tensor.new_empty(size)
        talk(tensor[theirs : theirs + size], arrived, rank ^ distance)
        tensor[mine : mine + size] += arrived
        low = mine
    for distance in distances:
        theirs = low + size if rank < rank ^ distance else low - size
        talk(tensor[low : low + size], tensor[theirs : theirs + size], rank ^ distance)
        low, size = min(low, theirs), 2 * size
