"""Known mistakes of exercise all_reduce_seconds, and right answers in other styles."""

import math

from course.engine.known_answers import alternative

MISTAKES = {
    "naive_without_broadcast": (
        "The broadcast is missing in naive. Count N - 1 messages for the reduce and N - 1 for the broadcast.",
        ('"naive": 2 * ', '"naive": '),
    ),
    "one_way": (
        "That is one way through the tree. Sums go to the root, and the result comes back.",
        ('"tree": 2 * ', '"tree": '),
    ),
    "one_way_in_both": (
        "Naive and tree are given one way only. Both reduce first, then broadcast the result.",
        ('"naive": 2 * ', '"naive": '),
        ('"tree": 2 * ', '"tree": '),
    ),
    "ring_of_whole_tensors": (
        "The ring is given whole tensors to send. A message of it is 1/N of the tensor.",
        ("(world_size - 1) * latency + shares", "(world_size - 1) * (latency + whole)"),
    ),
    "latency_once_per_phase": (
        "The ring has one latency per phase here. Each of its 2 (N - 1) messages has its own.",
        ("(world_size - 1) * latency", "min(world_size - 1, 1) * latency"),
    ),
    "doubling_with_the_steps_of_a_ring": (
        "Doubling has the steps of a ring here. It halves log2(N) times and doubles as often.",
        ("2 * rounds * latency", "2 * (world_size - 1) * latency"),
    ),
    "doubling_of_whole_tensors": (
        "Doubling sends whole tensors here. Its messages are 1/2, 1/4, ... 1/N of the tensor.",
        ("2 * rounds * latency + shares", "2 * rounds * (latency + whole)"),
    ),
    "doubling_of_halves": (
        "Each message of doubling is half of the tensor here. Each is half of the one before: 1/2, 1/4, ..., 1/N.",
        ("2 * rounds * latency + shares", "2 * rounds * (latency + whole / 2)"),
    ),
    "whole_bytes": (
        "Pieces are cut to whole bytes. The model divides exactly: n_bytes / world_size.",
        (
            "(world_size - 1) / world_size * whole",
            "(world_size - 1) * (n_bytes // world_size) / bandwidth",
        ),
    ),
    "bits": (
        "The bandwidth is taken for bits per second. It is bytes per second here.",
        ("n_bytes /", "8 * n_bytes /"),
    ),
    "multiplied": (
        "Bytes are multiplied by the bandwidth. Bytes over bytes per second give seconds.",
        ("n_bytes /", "n_bytes *"),
    ),
}


@alternative
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


@alternative
def latency_and_bytes_apart(n_bytes, world_size, latency, bandwidth):
    n, depth = world_size, 0
    while 2**depth < n:
        depth += 1
    pieces = 2 - 2 / n
    times = {"naive": (2 * (n - 1), 2 * (n - 1)), "tree": (2 * depth, 2 * depth)}
    times |= {"ring": (2 * (n - 1), pieces), "doubling": (2 * depth, pieces)}
    return {
        name: math.fsum([a * latency, b * n_bytes / bandwidth]) for name, (a, b) in times.items()
    }
