"""Known mistakes of exercise pack, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "positions_run_on": (
        "The positions run through the whole batch. Each sequence starts again at 0.",
        ("[torch.arange(n, device=device) for n in lengths]", "[torch.arange(sum(lengths), device=device)]"),
    ),
    "positions_from_one": (
        "The positions begin at 1. The first token of a sequence is at position 0.",
        ("torch.arange(n, device=device)", "torch.arange(1, n + 1, device=device)"),
    ),
    "numbers_of_the_sequences": (
        "These are the numbers of the sequences, not positions. Count the tokens inside each sequence.",
        (
            "[torch.arange(n, device=device) for n in lengths]",
            "[torch.full((n,), i, device=device) for i, n in enumerate(lengths)]",
        ),
    ),
    "without_the_first": (
        "`cu_seqlens` lacks the 0 at its beginning. It has n + 1 numbers: where each sequence begins, and the end.",
        ("[0, *lengths]", "lengths"),
    ),
    "without_the_end": (
        "`cu_seqlens` lacks the end. It has n + 1 numbers: where each sequence begins, and the end.",
        ("[0, *lengths]", "[0, *lengths[:-1]]"),
    ),
    "lengths_instead": (
        "These are lengths, not where sequences begin. Add them up.",
        (".cumsum(0)", ""),
    ),
    "int64_ends": (
        "`cu_seqlens` is int64. Kernels for variable lengths read int32: convert it.",
        (".int()", ""),
    ),
    "sorted_by_length": (
        "The sequences were sorted by length. Keep the order in which they are given.",
        ("    lengths =", "    sequences = sorted(sequences, key=len)\n    lengths ="),
    ),
    "padded": (
        "The batch is padded to its longest sequence. Join the tokens without padding.",
        ("torch.cat(list(sequences))", "torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True).flatten()"),
    ),
}


@alternative
def token_by_token(sequences):
    tokens = []
    positions = []
    ends = [0]
    for sequence in sequences:
        for position, token in enumerate(sequence.tolist()):
            tokens.append(token)
            positions.append(position)
        ends.append(len(tokens))
    device = sequences[0].device
    ends = torch.tensor(ends, dtype=torch.int32, device=device)
    return torch.tensor(tokens, device=device), torch.tensor(positions, device=device), ends


@alternative
def minus_the_beginnings(sequences):
    tokens = torch.cat(tuple(sequences))
    lengths = torch.tensor([len(sequence) for sequence in sequences], device=tokens.device)
    ends = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=tokens.device)
    ends[1:] = lengths.cumsum(0)
    begins = ends[:-1].long().repeat_interleave(lengths)
    return tokens, torch.arange(len(tokens), device=tokens.device) - begins, ends
