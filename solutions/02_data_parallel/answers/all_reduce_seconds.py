"""Known mistakes of exercise all_reduce_seconds, and right answers in other styles."""

import math

from course.checks.engine import alternative, mistake


def seconds(n_bytes, world_size, latency, bandwidth, naive=2, tree=2, piece=True, starts=True, rounds=True, half=True):
    """A right prediction, with one idea to get wrong each."""
    whole, depth = latency + n_bytes / bandwidth, math.log2(world_size)
    steps = 2 * (world_size - 1)
    part = n_bytes / world_size if piece else n_bytes
    shares = steps * n_bytes / world_size if half else 2 * depth * n_bytes
    return {
        "naive": naive * (world_size - 1) * whole,
        "tree": tree * depth * whole,
        "ring": (steps if starts else min(steps, 2)) * latency + steps * part / bandwidth,
        "doubling": (2 * depth if rounds else steps) * latency + shares / bandwidth,
    }


@mistake("all_reduce_seconds", "The broadcast is missing in naive: reduce and broadcast take N - 1 messages each.")
def naive_without_broadcast(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, naive=1)


@mistake("all_reduce_seconds", "That is one way through the tree. Sums go to the root, and the result comes back.")
def one_way(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, tree=1)


@mistake("all_reduce_seconds", "Naive and tree are given one way only. Both reduce first, then broadcast the result.")
def one_way_in_both(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, naive=1, tree=1)


@mistake("all_reduce_seconds", "The ring is given whole tensors to send. A message of it is 1/N of the tensor.")
def ring_of_whole_tensors(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, piece=False)


@mistake("all_reduce_seconds", "The ring has one latency per phase here. Each of its 2 (N - 1) messages has its own.")
def latency_once_per_phase(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, starts=False)


@mistake("all_reduce_seconds", "Doubling has the steps of a ring here. It halves log2(N) times and doubles as often.")
def doubling_with_the_steps_of_a_ring(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, rounds=False)


@mistake("all_reduce_seconds", "Doubling sends whole tensors here. Its messages are 1/2, 1/4, ... 1/N of the tensor.")
def doubling_of_whole_tensors(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, half=False)


@mistake(
    "all_reduce_seconds",
    "Each message of doubling is half of the tensor here. Each is half of the one before: 1/2, 1/4, ..., 1/N.",
)
def doubling_of_halves(n_bytes, world_size, latency, bandwidth):
    times = seconds(n_bytes, world_size, latency, bandwidth)
    return times | {"doubling": 2 * math.log2(world_size) * (latency + n_bytes / 2 / bandwidth)}


@mistake("all_reduce_seconds", "The bandwidth is taken for bits per second. It is bytes per second here.")
def bits(n_bytes, world_size, latency, bandwidth):
    return seconds(8 * n_bytes, world_size, latency, bandwidth)


@mistake("all_reduce_seconds", "Bytes are multiplied by the bandwidth. Bytes over bytes per second give seconds.")
def multiplied(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes * bandwidth**2, world_size, latency, bandwidth)


@alternative("all_reduce_seconds")
def messages_in_turn(n_bytes, world_size, latency, bandwidth):
    def in_turn(*lengths):
        return sum((latency + length / bandwidth for length in lengths), 0.0)

    rounds = (world_size - 1).bit_length()
    return dict(
        doubling=2 * in_turn(*(n_bytes / 2**k for k in range(1, rounds + 1))),
        ring=in_turn(*[n_bytes / world_size] * (2 * world_size - 2)),
        tree=in_turn(*[n_bytes] * (2 * rounds)),
        naive=in_turn(*[n_bytes] * (world_size - 1)) * 2,
    )


@alternative("all_reduce_seconds")
def latency_and_bytes_apart(n_bytes, world_size, latency, bandwidth):
    n, depth = world_size, 0
    while 2**depth < n:
        depth += 1
    pieces = 2 - 2 / n
    times = {"naive": (2 * (n - 1), 2 * (n - 1)), "tree": (2 * depth, 2 * depth)}
    times |= {"ring": (2 * (n - 1), pieces), "doubling": (2 * depth, pieces)}
    return {name: math.fsum([a * latency, b * n_bytes / bandwidth]) for name, (a, b) in times.items()}
