"""Known mistakes of exercise halving_doubling, and right answers in other styles."""

import torch.distributed as dist

from course.engine.known_answers import alternative

MISTAKES = {
    "without_halving": (
        "Whole tensors are exchanged: each rank sends log2(N) of them. Give away half of what you have, "
        "and keep the other half.",
        ("(low, middle), (middle, high)", "(low, high), (low, high)"),
        ("steps.append((partner, given))", "pass"),
    ),
    "no_doubling": (
        "The second phase is missing: each rank holds 1/N of the sum. Exchange in reverse order.",
        ("reversed(steps)", "[]"),
    ),
    "halves_of_one_length": (
        "Both halves get the same length, so the last of an odd number of elements is never summed. The upper half "
        "takes the rest: (middle, high).",
        (
            "kept, given = (low, middle), (middle, high)",
            "kept, given = (low, middle), (middle, middle + (high - low) // 2)",
        ),
    ),
    "everybody_keeps_the_lower_half": (
        "What one partner sends does not fit what the other receives: both keep the same half, or the part that "
        "receives is shorter than the kept half of an odd length. One keeps each half, and the part is as long.",
        ("rank > partner", "False"),
    ),
    "nearest_first": (
        "The nearest rank comes first. Begin with the rank N/2 away, and end with it.",
        ("dist.get_world_size() // 2", "1"),
        ("while distance:", "while distance < dist.get_world_size():"),
        ("distance // 2", "distance * 2"),
    ),
    "mean_of_halves": (
        "That is the mean. Give the sum; DDP divides by the world size afterwards.",
        ("max(high, end)", "max(high, end)\n    tensor.copy_(tensor / dist.get_world_size())"),
    ),
    "never_waited_for": (
        "isend is never waited for: its tensor may change while it is sent. Wait for it.",
        (
            "    rank",
            "    def exchange(outgoing, to, incoming, source):\n        dist.isend(outgoing, to)\n"
            "        dist.recv(incoming, source)\n\n    rank",
        ),
    ),
    "nothing_added": (
        "What arrives in the first phase is not added. Add it to the half that you keep.",
        ("tensor[slice(*kept)] += part", "pass"),
    ),
    "kept_half_overwritten": (
        "What arrives in the first phase replaces the half that is kept. Add it to that half.",
        ("+= part", "= part"),
    ),
    "second_phase_adds": (
        "What arrives in the second phase is added. It is finished: it replaces what is there.",
        (
            "tensor[start:end], partner)",
            "part := tensor[start:end].clone(), partner)\n        tensor[start:end] += part",
        ),
    ),
    "both_send_first": (
        "Both partners send first and wait until the other receives: a deadlock. Start both "
        "messages, as `exchange` does.",
        (
            "exchange(tensor[slice(*given)], partner, part, partner)",
            "dist.send(tensor[slice(*given)], partner)\n        dist.recv(part, partner)",
        ),
    ),
    "partner_by_adding": (
        "From 4 ranks on every rank waits: two ranks exchange only if each names the other as its partner. (rank + "
        "distance) % N names 1 in rank 0 and 2 in rank 1; rank ^ distance names the same pair in both.",
        ("rank ^ distance", "(rank + distance) % dist.get_world_size()"),
    ),
}


@alternative
def recursive(tensor):
    rank = dist.get_rank()

    def swap(outgoing, incoming, partner):
        for request in dist.irecv(incoming, partner), dist.isend(outgoing, partner):
            request.wait()

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


@alternative
def blocking_calls_in_turn(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()

    def talk(outgoing, incoming, other):
        calls = [lambda: dist.send(outgoing, other), lambda: dist.irecv(incoming, other).wait()]
        for call in calls if rank < other else reversed(calls):
            call()

    ends = [0, len(tensor)]
    distances = [2**k for k in range(n.bit_length() - 1)]
    undo = []
    for distance in reversed(distances):
        low, high = ends
        middle = low + (high - low) // 2
        is_upper = bool(rank & distance)
        ends = [middle, high] if is_upper else [low, middle]
        given = tensor[low:middle] if is_upper else tensor[middle:high]
        arrived = tensor.new_empty(ends[1] - ends[0])
        talk(given, arrived, rank ^ distance)
        tensor[ends[0] : ends[1]] += arrived
        undo.append((rank ^ distance, tensor[ends[0] : ends[1]], given))
    for other, mine, theirs in reversed(undo):
        talk(mine, theirs, other)
