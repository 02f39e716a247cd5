"""Known mistakes of exercise ring_bytes, and right answers in other styles."""

import numpy
import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "one_phase": (
        "That is one phase. A ring has two, each of N - 1 steps.",
        (" + pieces[(r + 2) % world_size]", ""),
        ("2 * n_elements", "n_elements"),
    ),
    "whole_tensors": (
        "Each of the 2 (N - 1) messages is taken for a whole tensor. It is one piece, 1/N of it.",
        ("(2 * n_elements - n)", "2 * (world_size - 1) * n_elements"),
    ),
    "elements": (
        "Those are elements. Multiply by the bytes of an element.",
        ("element_size * (", "("),
    ),
    "equal_shares": (
        "2 (N - 1) / N of the tensor is right if N divides its length. Else pieces differ: add up those that are sent.",
        ("element_size * (2 * n_elements - n)", "2 * (world_size - 1) * n_elements * element_size // world_size"),
    ),
    "float_shares": (
        "Bytes are whole numbers; a division with / makes floats. Add up the lengths of the pieces.",
        ("element_size * (2 * n_elements - n)", "2 * (world_size - 1) / world_size * n_elements * element_size"),
    ),
    "padded": (
        "All pieces are taken for as long as the longest. The last ones are shorter by one element.",
        ("(2 * n_elements - n)", "2 * (world_size - 1) * math.ceil(n_elements / world_size)"),
    ),
    "same_piece_left_out_twice": (
        "The second phase is taken to leave out the same piece as the first. It begins with r + "
        "1, so it leaves out r + 2.",
        ("r + 2", "r + 1"),
    ),
    "own_piece_left_out": (
        "Piece r is left out, but it is the first that rank r sends. Count which pieces a rank sends in each phase.",
        ("r + 1", "r"),
        ("r + 2", "r + 1"),
    ),
}


@alternative
def followed_step_by_step(n_elements, element_size, world_size):
    pieces = [len(piece) for piece in numpy.array_split(numpy.empty(n_elements, dtype=bool), world_size)]
    sent = [0] * world_size
    for step in range(2 * world_size - 2):
        for rank in range(world_size):
            sent[rank] += pieces[(rank - step) % world_size] * element_size
    return sent


@alternative
def lengths_of_torch(n_elements, element_size, world_size):
    lengths = torch.tensor([p.numel() for p in torch.empty(n_elements, device="meta").tensor_split(world_size)])
    return ((2 * n_elements - lengths.roll(-1) - lengths.roll(-2)) * element_size).tolist()
