"""Known mistakes of exercise all_reduce_seconds, and right answers in other styles."""

import math

from course.checks.engine import alternative, mistake


def rounded_up(world_size):
    return math.ceil(math.log2(world_size))


def seconds(n_bytes, world_size, latency, bandwidth, depth=rounded_up, naive=2, tree=2, piece=True, starts=True):
    """A right prediction, with one idea to get wrong each."""
    whole = latency + n_bytes / bandwidth
    steps = 2 * (world_size - 1)
    part = n_bytes / world_size if piece else n_bytes
    return {
        "naive": naive * (world_size - 1) * whole,
        "tree": tree * depth(world_size) * whole,
        "ring": (steps if starts else min(steps, 2)) * latency + steps * part / bandwidth,
    }


@mistake("all_reduce_seconds", "The depth of the tree is not rounded: 1.58 rounds for three ranks. Round log2 up.")
def depth_not_rounded(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, depth=math.log2)


@mistake("all_reduce_seconds", "The depth of the tree is rounded down, and the last ranks get nothing. Round log2 up.")
def depth_rounded_down(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, depth=lambda n: int(math.log2(n)))


@mistake("all_reduce_seconds", "The broadcast is missing in naive: reduce and broadcast take N - 1 messages each.")
def naive_without_broadcast(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, naive=1)


@mistake("all_reduce_seconds", "That is one way through the tree. Sums go to the root, and the result comes back.")
def one_way(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, tree=1)


@mistake("all_reduce_seconds", "The ring is given whole tensors to send. A message of it is 1/N of the tensor.")
def ring_of_whole_tensors(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, piece=False)


@mistake("all_reduce_seconds", "The ring pays its latency once a phase. Each of its 2 (N - 1) messages has its own.")
def latency_once_a_phase(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, starts=False)


@mistake("all_reduce_seconds", "The bandwidth is taken for bits a second. It is bytes a second here.")
def bits(n_bytes, world_size, latency, bandwidth):
    return seconds(8 * n_bytes, world_size, latency, bandwidth)


@mistake("all_reduce_seconds", "Bytes are multiplied by the bandwidth. Bytes over bytes a second give seconds.")
def multiplied(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes * bandwidth**2, world_size, latency, bandwidth)


@alternative("all_reduce_seconds")
def three_sums(n_bytes, world_size, latency, bandwidth):
    def in_turn(count, size):
        return sum((latency + size / bandwidth for _ in range(count)), 0.0)

    rounds = (world_size - 1).bit_length()
    return dict(
        ring=2 * in_turn(world_size - 1, n_bytes / world_size),
        tree=in_turn(2 * rounds, n_bytes),
        naive=in_turn(world_size - 1, n_bytes) + in_turn(world_size - 1, n_bytes),
    )


@alternative("all_reduce_seconds")
def latency_and_bytes_apart(n_bytes, world_size, latency, bandwidth):
    n, depth = world_size, 0
    while 2**depth < n:
        depth += 1
    times = {"naive": (2 * (n - 1), 2 * (n - 1)), "tree": (2 * depth, 2 * depth), "ring": (2 * (n - 1), 2 - 2 / n)}
    return {name: math.fsum([a * latency, b * n_bytes / bandwidth]) for name, (a, b) in times.items()}
