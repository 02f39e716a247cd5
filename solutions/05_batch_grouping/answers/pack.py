"""Known mistakes of exercise pack, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "positions_run_on": (
        "The positions run through the whole batch. Each sequence starts again at 0.",
        (" - begins", ""),
    ),
    "positions_from_one": (
        "The positions begin at 1. The first token of a sequence is at position 0.",
        (" - begins", " - begins + 1"),
    ),
    "numbers_of_the_sequences": (
        "These are the numbers of the sequences, not positions. Count the tokens inside each sequence.",
        (
            "torch.arange(len(tokens), device=tokens.device) - begins",
            "torch.arange(len(lengths), device=tokens.device).repeat_interleave(lengths)",
        ),
    ),
    "without_the_first": (
        "`cu_seqlens` lacks the 0 at its beginning. It has n + 1 numbers: where each sequence begins, and the end.",
        ("F.pad(ends, (1, 0))", "ends"),
    ),
    "without_the_end": (
        "`cu_seqlens` lacks the end. It has n + 1 numbers: where each sequence begins, and the end.",
        ("F.pad(ends, (1, 0))", "(ends - lengths)"),
    ),
    "lengths_instead": (
        "These are lengths, not where sequences begin. Add them up.",
        ("F.pad(ends, (1, 0))", "F.pad(lengths, (1, 0))"),
    ),
    "int64_ends": (
        "`cu_seqlens` is int64. Kernels for variable lengths read int32: convert it.",
        (".int()", ""),
    ),
    "sorted_by_length": (
        "The sequences were sorted by length. Keep the order in which they are given.",
        ("    tokens =", "    sequences = sorted(sequences, key=len)\n    tokens ="),
    ),
    "padded": (
        "The batch is padded to its longest sequence. Join the tokens without padding.",
        (
            "return tokens,",
            "return torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True).flatten(),",
        ),
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
def a_range_per_sequence(sequences):
    device = sequences[0].device
    lengths = [len(sequence) for sequence in sequences]
    positions = torch.cat([torch.arange(n, device=device) for n in lengths])
    cu_seqlens = torch.tensor([0, *lengths], device=device).cumsum(0).int()
    return torch.cat(list(sequences)), positions, cu_seqlens
