"""Known mistakes of exercise pieces_to_read, and right answers in other styles."""

import itertools

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "filling_is_read": (
        "The last rank reads the zeros that fill up the last shard. Stop at `numbers`.",
        ("min(begin + new_size, numbers)", "begin + new_size"),
    ),
    "positions_of_the_whole": (
        "Start and end are counted in the whole. Count them in the old rank's shard: subtract its offset.",
        ("first - offset, last - offset", "first, last"),
    ),
    "old_shards_rounded_down": (
        "The size of the old shards is rounded down, so the last numbers belong to nobody. Round up.",
        ("math.ceil(numbers / old)", "numbers // old"),
    ),
    "new_shards_rounded_down": (
        "The size of the new shards is rounded down, so the last numbers are lost. Round up.",
        ("math.ceil(numbers / new)", "numbers // new"),
    ),
    "all_shards_rounded_down": (
        "Old and new shards are rounded down, so the last numbers belong to no rank. Round both up: ceil.",
        ("math.ceil(numbers / old)", "numbers // old"),
        ("math.ceil(numbers / new)", "numbers // new"),
    ),
    "empty_pieces": (
        "Empty pieces are returned, each of which reads nothing. Leave them out.",
        ("first < last", "first <= last"),
    ),
    "sizes_swapped": (
        "The new rank begins where the old one did. Its shard begins at rank · (size of the new shards).",
        ("begin = rank * new_size", "begin = rank * old_size"),
    ),
    "length_for_end": (
        "The third number is the length of the piece. Return its end in the old shard.",
        ("first - offset, last - offset", "first - offset, last - first"),
    ),
    "end_included": (
        "The end is the last number that is read. Return the position after it, as a slice has it.",
        ("last - offset)", "last - offset - 1)"),
    ),
    "whole_shards": (
        "Whole old shards are read where a piece is enough. Return the part that both shards have.",
        ("first - offset, last - offset", "0, old_size"),
    ),
    "last_rank_forgotten": (
        "The last old rank is never asked. There are ranks 0 to N - 1.",
        ("range(old)", "range(old - 1)"),
    ),
    "last_piece_first": (
        "The pieces are in the order from the end. Return them in the order of the numbers.",
        ("return pieces", "return pieces[::-1]"),
    ),
    "first_piece_alone": (
        "Only the first piece is returned. A new shard may lie on several old ones.",
        ("return pieces", "return pieces[:1]"),
    ),
    "rounded_down_to_one_at_least": (
        "Old and new shards are rounded down, so the last numbers belong to no rank. Round both up: ceil.",
        ("math.ceil(numbers / old)", "max(1, numbers // old)"),
        ("math.ceil(numbers / new)", "max(1, numbers // new)"),
    ),
}


@mistake(
    "The ranks' shards are dealt out whole, so new shards have different lengths. Cut all numbers into equal shards."
)
def shards_dealt_out(numbers, old, new, rank):
    size = -(-numbers // old)
    return [
        (owner, 0, min(size, numbers - owner * size))
        for owner in range(rank, old, new)
        if owner * size < numbers
    ]


@alternative
def piece_by_piece(numbers, old, new, rank):
    old_size, new_size = -(-numbers // old), -(-numbers // new)
    position, end = rank * new_size, min(numbers, (rank + 1) * new_size)
    pieces = []
    while position < end:
        owner, start = divmod(position, old_size)
        length = min(old_size - start, end - position)
        pieces.append((owner, start, start + length))
        position += length
    return pieces


@alternative
def number_by_number(numbers, old, new, rank):
    old_size, new_size = -(-numbers // old), -(-numbers // new)
    mine = [number for number in range(numbers) if number // new_size == rank]
    pieces = []
    for owner, group in itertools.groupby(mine, key=lambda number: number // old_size):
        places = [number % old_size for number in group]
        pieces.append((owner, places[0], places[-1] + 1))
    return pieces
