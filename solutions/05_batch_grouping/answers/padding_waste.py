"""Known mistakes of exercise padding_waste, and right answers in other styles."""

import math

from course.checks.engine import alternative, mistake


def _batches(lengths, batch_size, order):
    return (lengths if order is None else lengths[order]).split(batch_size)


@mistake(
    "padding_waste",
    "The ratio is upside down: tokens over cells. 1.0 is no padding, 3.0 three cells per token.",
)
def share_of_real_tokens(lengths, batch_size, order=None):
    batches = _batches(lengths, batch_size, order)
    return int(lengths.sum()) / sum(len(b) * int(b.max()) for b in batches)


@mistake("padding_waste", "Only the padding is counted. Count all cells of the rectangles, those with tokens included.")
def padding_alone(lengths, batch_size, order=None):
    batches = _batches(lengths, batch_size, order)
    return sum(len(b) * int(b.max()) for b in batches) / int(lengths.sum()) - 1


@mistake("padding_waste", "Every batch is padded to the longest sequence of the set. Each needs only its own longest.")
def padded_to_the_longest_of_all(lengths, batch_size, order=None):
    return len(lengths) * int(lengths.max()) / int(lengths.sum())


@mistake(
    "padding_waste", "The mean of the batches' ratios counts a small batch as much as a large one. Divide the sums."
)
def mean_of_ratios(lengths, batch_size, order=None):
    ratios = [len(b) * int(b.max()) / int(b.sum()) for b in _batches(lengths, batch_size, order)]
    return sum(ratios) / len(ratios)


@mistake("padding_waste", "The last batch counts as if it were full. It has fewer rows: use its own number of rows.")
def last_batch_as_if_full(lengths, batch_size, order=None):
    return sum(batch_size * int(b.max()) for b in _batches(lengths, batch_size, order)) / int(lengths.sum())


@mistake("padding_waste", "The last, smaller batch is left out of the cells, but not of the tokens. Count it.")
def last_batch_dropped(lengths, batch_size, order=None):
    full = [b for b in _batches(lengths, batch_size, order) if len(b) == batch_size]
    return sum(len(b) * int(b.max()) for b in full) / int(lengths.sum())


@mistake("padding_waste", "The order is ignored: the batches are always cut in the order of the set.")
def order_ignored(lengths, batch_size, order=None):
    return sum(len(b) * int(b.max()) for b in _batches(lengths, batch_size, None)) / int(lengths.sum())


@alternative("padding_waste")
def plain_python(lengths, batch_size, order=None):
    lengths = lengths.tolist()
    if order is not None:
        lengths = [lengths[i] for i in order.tolist()]
    cells = 0
    for first in range(0, len(lengths), batch_size):
        batch = lengths[first : first + batch_size]
        cells += max(batch) * len(batch)
    return cells / sum(lengths)


@alternative("padding_waste")
def one_rectangle_of_batches(lengths, batch_size, order=None):
    ordered = lengths if order is None else lengths.index_select(0, order)
    batch_size = min(batch_size, len(ordered))
    count = math.ceil(len(ordered) / batch_size)
    table = ordered.new_zeros(count * batch_size)
    table[: len(ordered)] = ordered
    table = table.view(count, batch_size)
    return ((table > 0).sum(1) * table.amax(1)).sum().item() / ordered.sum().item()


@mistake("padding_waste", "The lengths are sorted first. Cut the batches in the order that is given.")
def sorted_first(lengths, batch_size, order=None):
    return sum(len(b) * int(b.max()) for b in lengths.sort().values.split(batch_size)) / int(lengths.sum())


@mistake("padding_waste", "The cells are divided by the number of sequences. Divide them by the number of tokens.")
def cells_per_sequence(lengths, batch_size, order=None):
    return sum(len(batch) * int(batch.max()) for batch in _batches(lengths, batch_size, order)) / len(lengths)


@mistake("padding_waste", "chunk(n) makes n batches. split(n) makes batches of n sequences.")
def chunks(lengths, batch_size, order=None):
    ordered = lengths if order is None else lengths[order]
    return sum(len(batch) * int(batch.max()) for batch in ordered.chunk(batch_size)) / int(lengths.sum())


@mistake("padding_waste", "Each batch is as wide as its last sequence. It must be as wide as its longest.")
def width_of_the_last(lengths, batch_size, order=None):
    batches = _batches(lengths, batch_size, order)
    return sum(len(batch) * int(batch[-1]) for batch in batches) / int(lengths.sum())


@mistake("padding_waste", "`order` is inverted. order[0] is the sequence that comes first: lengths[order].")
def order_inverted(lengths, batch_size, order=None):
    order = None if order is None else order.argsort()
    return sum(len(b) * int(b.max()) for b in _batches(lengths, batch_size, order)) / int(lengths.sum())


@mistake(
    "padding_waste",
    "This is the share of cells that are padding, from 0 to 1. Asked for are cells per token: divide cells by tokens.",
)
def share_of_padding(lengths, batch_size, order=None):
    return 1 - int(lengths.sum()) / sum(len(b) * int(b.max()) for b in _batches(lengths, batch_size, order))
