"""Known mistakes of exercise zigzag, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "next_chunk": (
        "The rank gets two chunks that follow each other, so the last rank has the most work. Take chunk r and its "
        "mirror, 2 N - 1 - r.",
        ("chunks[rank], chunks[2 * ranks - 1 - rank]", "chunks[2 * rank], chunks[2 * rank + 1]"),
    ),
    "same_distance": (
        "Chunks r and r + N both come later on a higher rank, so work grows with r. Take the mirror, 2 N - 1 - r.",
        ("chunks[2 * ranks - 1 - rank]", "chunks[ranks + rank]"),
    ),
    "mirror_backwards": (
        "The second chunk is turned around. Keep the positions in order.",
        ("chunks[2 * ranks - 1 - rank]]", "chunks[2 * ranks - 1 - rank].flip(0)]"),
    ),
    "late_chunk_first": (
        "The late chunk comes first. Return the positions in order.",
        (
            "chunks[rank], chunks[2 * ranks - 1 - rank]",
            "chunks[2 * ranks - 1 - rank], chunks[rank]",
        ),
    ),
    "mirror_of_the_next": (
        "The mirror is that of chunk r + 1, so ranks share chunks or lack one. The mirror of r is 2 N - 1 - r.",
        ("chunks[2 * ranks - 1 - rank]", "chunks[2 * ranks - 2 - rank]"),
    ),
    "mirror_of_the_one_before": (
        "Chunk -r is the mirror of chunk r - 1, and rank 0 gets chunk 0 twice. The mirror of r is -1 - r, or 2 N - 1 - "
        "r.",
        ("chunks[2 * ranks - 1 - rank]", "chunks[-rank]"),
    ),
    "half_of_the_pair": (
        "The rank gets the early chunk alone, and half of the sequence belongs to nobody. Add its mirror.",
        ("torch.cat([chunks[rank], chunks[2 * ranks - 1 - rank]])", "chunks[rank]"),
    ),
    "too_few_chunks": (
        "There are N chunks, so ranks share them. Cut the sequence into 2 N.",
        ("chunk(2 * ranks)", "chunk(ranks)"),
        ("chunks[2 * ranks - 1 - rank]", "chunks[ranks - 1 - rank]"),
    ),
}


@mistake("These are numbers of chunks. Return the positions of their tokens.")
def numbers_of_chunks(rank, ranks, tokens):
    return torch.tensor([rank, 2 * ranks - 1 - rank])


@mistake(
    "The rank gets every Nth token. That is nearly balanced, but a higher rank sees more keys: take chunk r and its "
    "mirror."
)
def every_nth(rank, ranks, tokens):
    return torch.arange(rank, tokens, ranks)


@mistake(
    "Pairs of single tokens are taken out of each run of 2 N. Cut the sequence into 2 N chunks, of which the rank has "
    "two."
)
def pairs_of_tokens(rank, ranks, tokens):
    return torch.arange(tokens).view(-1, 2 * ranks)[:, [rank, 2 * ranks - 1 - rank]].flatten()


@alternative
def by_division(rank, ranks, tokens):
    positions = torch.arange(tokens)
    chunk = positions // (tokens // (2 * ranks))
    return positions[(chunk == rank) | (chunk == 2 * ranks - 1 - rank)]


@alternative
def two_ranges(rank, ranks, tokens):
    size = tokens // ranks // 2
    early = list(range(rank * size, (rank + 1) * size))
    late = list(range(tokens - (rank + 1) * size, tokens - rank * size))
    return torch.tensor(early + late)
