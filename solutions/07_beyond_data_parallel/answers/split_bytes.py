"""Known mistakes of exercise split_bytes, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "forward_only": (
        "Only the two all-reduces of forward are counted. Backward has two more.",
        ("blocks * 4 * activation", "blocks * 2 * activation"),
        ("3.0 * dim", "6.0 * dim"),
    ),
    "one_per_layer": (
        "An all-reduce per linear layer and direction is counted. Two layers share one: 4 per block.",
        ("blocks * 4 * activation", "blocks * 8 * activation"),
        ("3.0 * dim", "1.5 * dim"),
    ),
    "numbers": (
        "Those are numbers. A float32 number has 4 bytes.",
        ("activation = 4 * tokens", "activation = tokens"),
        ("gradients = 4 * 12", "gradients = 12"),
    ),
    "whole_tensors": (
        "A ring of N ranks sends 2 (N - 1) / N of a tensor, not all of it.",
        ("2 * (world_size - 1) / world_size", "1.0"),
    ),
    "half_a_ring": (
        "An all-reduce has two halves, reduce-scatter and all-gather. Count both.",
        ("2 * (world_size - 1) / world_size", "(world_size - 1) / world_size"),
    ),
    "sent_by_all": (
        "This is what all ranks send together. A rank sends 2 (N - 1) / N of the tensor: divide by the ranks.",
        ("2 * (world_size - 1) / world_size", "2 * (world_size - 1)"),
    ),
    "ratio_for_tokens": (
        '"equal at" is how many times as much data parallel sends. It asks for the number of tokens: 3 · dim.',
        ("3.0 * dim", "ring * blocks * gradients / (ring * blocks * 4 * activation)"),
    ),
    "split_activations": (
        "The activations are divided by the world size. Each sum has all numbers of the activation.",
        ("activation = 4 * tokens * dim", "activation = 4 * tokens * dim / world_size"),
    ),
    "split_gradients": (
        "The gradients are divided by the world size. With data parallel every rank has all weights.",
        ("gradients = 4 * 12 * dim**2", "gradients = 4 * 12 * dim**2 / world_size"),
    ),
    "one_block": (
        "Only one block is counted. Every block sends its own.",
        ('"tensor": ring * blocks', '"tensor": ring'),
        ('"data": ring * blocks', '"data": ring'),
    ),
    "tokens_of_all_blocks": (
        '"equal at" grows with the blocks. Both ways send that many times as much: it is the same for all.',
        ("3.0 * dim", "3.0 * dim * blocks"),
    ),
}


@alternative
def share_of_a_ring(tokens, dim, blocks, world_size):
    share = 2 - 2 / world_size
    return {
        "tensor": share * 16 * tokens * dim * blocks,
        "data": share * 48 * dim * dim * blocks,
        "equal at": 3 * dim,
    }


@alternative
def solved_for_tokens(tokens, dim, blocks, world_size):
    steps = 2 * (world_size - 1)
    of_token = steps * blocks * 4 * (4 * dim) / world_size
    of_weights = steps * blocks * 4 * (12 * dim * dim) / world_size
    return {
        "tensor": tokens * of_token,
        "data": of_weights,
        "equal at": 48 * dim * dim / (16 * dim),
    }
