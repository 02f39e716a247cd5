"""Known mistakes of exercise ring_bytes, and right answers in other styles."""

import math

import numpy
import torch

from course.checks.engine import alternative, mistake


def lengths(n, world_size):
    return [n // world_size + (i < n % world_size) for i in range(world_size)]


@mistake("ring_bytes", "That is one phase. A ring has two, each of N - 1 steps.")
def one_phase(n_elements, element_size, world_size):
    pieces = lengths(n_elements, world_size)
    return [element_size * (n_elements - pieces[(r + 1) % world_size]) for r in range(world_size)]


@mistake("ring_bytes", "Each of the 2 (N - 1) messages is taken for a whole tensor. It is one piece, 1/N of it.")
def whole_tensors(n_elements, element_size, world_size):
    return [2 * (world_size - 1) * n_elements * element_size] * world_size


@mistake("ring_bytes", "Those are elements. Multiply by the bytes of an element.")
def elements(n_elements, element_size, world_size):
    return both_phases(n_elements, 1, world_size)


def both_phases(n_elements, element_size, world_size, first=1, second=2):
    pieces = lengths(n_elements, world_size)
    return [
        element_size * (2 * n_elements - pieces[(r + first) % world_size] - pieces[(r + second) % world_size])
        for r in range(world_size)
    ]


@mistake(
    "ring_bytes",
    "2 (N - 1) / N of the tensor is right if N divides its length. Else pieces differ: add up those that are sent.",
)
def equal_shares(n_elements, element_size, world_size):
    return [2 * (world_size - 1) * n_elements * element_size // world_size] * world_size


@mistake("ring_bytes", "Bytes are whole numbers; a division with / makes floats. Add up the lengths of the pieces.")
def float_shares(n_elements, element_size, world_size):
    return [2 * (world_size - 1) / world_size * n_elements * element_size] * world_size


@mistake("ring_bytes", "All pieces are taken for as long as the longest. The last ones are shorter by one element.")
def padded(n_elements, element_size, world_size):
    return [2 * (world_size - 1) * math.ceil(n_elements / world_size) * element_size] * world_size


@mistake(
    "ring_bytes",
    "The second phase is taken to leave out the same piece as the first. It begins with r + 1, so it leaves out r + 2.",
)
def same_piece_left_out_twice(n_elements, element_size, world_size):
    return both_phases(n_elements, element_size, world_size, second=1)


@mistake(
    "ring_bytes",
    "Piece r is left out, but it is the first that rank r sends. Count which pieces a rank sends in each phase.",
)
def own_piece_left_out(n_elements, element_size, world_size):
    return both_phases(n_elements, element_size, world_size, first=0, second=1)


@alternative("ring_bytes")
def followed_step_by_step(n_elements, element_size, world_size):
    pieces = [len(piece) for piece in numpy.array_split(numpy.empty(n_elements, dtype=bool), world_size)]
    sent = [0] * world_size
    for step in range(2 * world_size - 2):
        for rank in range(world_size):
            sent[rank] += pieces[(rank - step) % world_size] * element_size
    return sent


@alternative("ring_bytes")
def lengths_of_torch(n_elements, element_size, world_size):
    lengths = torch.tensor([p.numel() for p in torch.empty(n_elements, device="meta").tensor_split(world_size)])
    return ((2 * n_elements - lengths.roll(-1) - lengths.roll(-2)) * element_size).tolist()
