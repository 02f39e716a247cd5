"""Known mistakes of exercise padding_waste, and right answers in other styles."""

import math

from course.engine.known_answers import alternative

MISTAKES = {
    "share_of_real_tokens": (
        "The ratio is upside down: tokens over cells. 1.0 means no padding, 3.0 three cells per token.",
        ("cells / int(lengths.sum())", "int(lengths.sum()) / cells"),
    ),
    "padding_alone": (
        "Only the padding is counted. Count all cells of the rectangles, those with tokens included.",
        ("lengths.sum())", "lengths.sum()) - 1"),
    ),
    "padded_to_the_longest_of_all": (
        "Every batch is padded to the longest sequence of the set. Each needs only its own longest.",
        ("batch.max()", "lengths.max()"),
    ),
    "mean_of_ratios": (
        "The mean of the batches' ratios counts a small batch as much as a large one. Divide the sums.",
        ("int(batch.max())", "int(batch.max()) / int(batch.sum())"),
        ("int(lengths.sum())", "len(ordered.split(batch_size))"),
    ),
    "last_batch_as_if_full": (
        "The last batch counts as if it were full. It has fewer rows: use its own number of rows.",
        ("len(batch) *", "batch_size *"),
    ),
    "last_batch_dropped": (
        "The last, smaller batch is left out of the cells, but not of the tokens. Count it.",
        ("split(batch_size)", "split(batch_size) if len(batch) == batch_size"),
    ),
    "order_ignored": (
        "The order is ignored: the batches are always cut in the order of the set.",
        (" if order is None else lengths[order]", ""),
    ),
    "sorted_first": (
        "The lengths are sorted first. Cut the batches in the order that is given.",
        ("lengths if order is None else lengths[order]", "lengths.sort().values"),
    ),
    "cells_per_sequence": (
        "The cells are divided by the number of sequences. Divide them by the number of tokens.",
        ("int(lengths.sum())", "len(lengths)"),
    ),
    "chunks": (
        "chunk(n) makes n batches. split(n) makes batches of n sequences.",
        ("split(", "chunk("),
    ),
    "width_of_the_last": (
        "Each batch is as wide as its last sequence. It must be as wide as its longest.",
        ("batch.max()", "batch[-1]"),
    ),
    "order_inverted": (
        "`order` is inverted. order[0] is the sequence that comes first: lengths[order].",
        ("lengths[order]", "lengths[order.argsort()]"),
    ),
    "share_of_padding": (
        "This is the share of cells that are padding. Return cells per token: divide cells by tokens.",
        ("cells / int(lengths.sum())", "1 - int(lengths.sum()) / cells"),
    ),
}


@alternative
def plain_python(lengths, batch_size, order=None):
    lengths = lengths.tolist()
    if order is not None:
        lengths = [lengths[i] for i in order.tolist()]
    cells = 0
    for first in range(0, len(lengths), batch_size):
        batch = lengths[first : first + batch_size]
        cells += max(batch) * len(batch)
    return cells / sum(lengths)


@alternative
def one_rectangle_of_batches(lengths, batch_size, order=None):
    ordered = lengths if order is None else lengths.index_select(0, order)
    batch_size = min(batch_size, len(ordered))
    count = math.ceil(len(ordered) / batch_size)
    table = ordered.new_zeros(count * batch_size)
    table[: len(ordered)] = ordered
    table = table.view(count, batch_size)
    return ((table > 0).sum(1) * table.amax(1)).sum().item() / ordered.sum().item()
