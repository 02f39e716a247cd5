"""Batches of ragged sequences: how large must a window of sorted sequences be?"""

from collections.abc import Sequence

from matplotlib.figure import Figure as Picture

from course.figures.figure import Figure

SHOWN = 12  # batches in the picture
WORD = 2**32


def shuffled(n: int, seed: int) -> list[int]:
    """The numbers 0 to n - 1 in the order that kit.js gives them for `seed`.

    Source: mulberry32 by Tommy Ettinger 2017, and the shuffle of Fisher and Yates.
    """
    state = seed % WORD
    order = list(range(n))
    for i in range(n - 1, 0, -1):
        state = (state + 0x6D2B79F5) % WORD
        mixed = (state ^ state >> 15) * (state | 1) % WORD
        mixed ^= (mixed + (mixed ^ mixed >> 7) * (mixed | 61)) % WORD
        j = (mixed ^ mixed >> 14) * (i + 1) // WORD
        order[i], order[j] = order[j], order[i]
    return order


def batches_of(lengths: Sequence[int], batch_size: int, window: int, seed: int) -> list[list[int]]:
    """Batches of sequence numbers: shuffled, then sorted by length within each window.

    A window is `window` batches long.
    """
    order = shuffled(len(lengths), seed)
    batches = []
    for start in range(0, len(order), window * batch_size):
        part = sorted(order[start : start + window * batch_size], key=lambda i: (lengths[i], i))
        for first in range(0, len(part), batch_size):
            batches.append(part[first : first + batch_size])
    return batches


def cells_per_token(batches: Sequence[Sequence[int]], lengths: Sequence[int]) -> float:
    """The cells of all padded batches over the tokens in them: 1 without padding."""
    cells = tokens = 0
    for batch in batches:
        own = [lengths[i] for i in batch]
        cells += len(own) * max(own)
        tokens += sum(own)
    return cells / tokens


def padding(lengths: Sequence[int], batch_size: int = 16, window: int = 1, seed: int = 0) -> Figure:
    """Batches and their padding, with sliders for the batch size, the window and the shuffle.

    Args:
        lengths: tokens of each sequence, for example of the learner's own set.
        window: batches whose sequences are sorted together; 1 is a plain shuffle.
    """
    lengths = [int(length) for length in lengths]
    batches = batches_of(lengths, batch_size, window, seed)
    ratio = cells_per_token(batches, lengths)
    data = {"lengths": lengths, "batch_size": batch_size, "window": window, "seed": seed}
    first = batches[:SHOWN]
    of_first = cells_per_token(first, lengths)
    caption = (
        f"Windows of {window} × {batch_size} sequences: {of_first:.2f} cells per token "
        f"in the first {len(first)} batches, {ratio:.2f} in all {len(batches)}."
    )
    return Figure("padded_batches", data, _picture(first, lengths, caption), caption)


def _picture(batches, lengths, caption) -> Picture:
    picture = Picture(figsize=(7.6, 2.2))
    axes = picture.add_subplot()
    left = 0
    for batch in batches:
        places = range(left, left + len(batch))
        own = [lengths[i] for i in batch]
        axes.bar(places, max(own), width=1, color="0.85")
        axes.bar(places, own, width=0.9 if len(batch) < 32 else 1, color="#4d4d4d")
        left += len(batch) + max(2, len(batch) // 8)
    axes.set_xticks([])
    axes.set_ylabel("tokens")
    what = "A dark bar is a sequence with its tokens, light grey is padding."
    axes.set_xlabel(f"{what} Batches in the order of the windows.", fontsize=9)
    axes.set_title(caption, fontsize=10)
    return picture
