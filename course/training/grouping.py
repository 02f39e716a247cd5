"""What unit 05 is given: memory, the parts of a search for thresholds, refusals.

`grouped_sample_by_sample` is our reconstruction, in a few lines, of what asym
(github.com/daeseoklee/asym) does: every sample is padded, masked and put back by itself.
`course bench grouping` compares with it.
`cost_of_groups` and `neighbours` are what a search for thresholds needs; `greedy_thresholds` needs
no search. `check_lengths` and `check_thresholds` refuse what the exercises of the unit refuse.
"""

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from course.errors import CourseError
from course.measure.comparison import Interval


def check_lengths(lengths: Tensor, **at_least_one: int) -> None:
    """Raise CourseError unless there is a sequence and each has a token.

    Args:
        lengths: int64 (n,), tokens per sequence.
        at_least_one: numbers that must be 1 or more, e.g. batch_size=4; the message has the name.
    """
    if not len(lengths):
        raise CourseError("sequences were expected, found none; leave empty batches out.")
    if int(lengths.min()) < 1:
        first = int((lengths < 1).nonzero()[0])
        n = int(lengths[first])
        raise CourseError(
            f"sequence {first} has length {n}; each needs at least one token. Leave it out."
        )
    for name, number in at_least_one.items():
        if number < 1:
            raise CourseError(f"{name} is {number}; it must be at least 1.")


def check_thresholds(lengths: Tensor, thresholds: Sequence[int]) -> None:
    """Raise CourseError unless `lengths` are fit and `thresholds` ascend and reach the longest."""
    check_lengths(lengths)
    if not len(thresholds):
        raise CourseError("`thresholds` is empty; for a single group pass [longest length].")
    if any(low >= high for low, high in pairwise(thresholds)):
        raise CourseError(
            f"thresholds must ascend, found {list(thresholds)}; sort them and drop duplicates."
        )
    longest = int(lengths.max())
    if longest > thresholds[-1]:
        raise CourseError(
            f"the last threshold is {thresholds[-1]}, the longest sequence has {longest} tokens; "
            "end the thresholds with the longest length."
        )


def bytes_for_backward(call: Callable[[], object], known: Iterable[Tensor] = ()) -> int:
    """Bytes of the storages that autograd saves while `call()` runs, without those of `known`."""
    storages = {}  # by address; kept alive, so that no other storage gets the address

    def pack(tensor):
        plain = tensor.values().detach() if tensor.is_nested else tensor
        storage = plain.untyped_storage()
        storages[storage.data_ptr()] = storage
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    for tensor in known:
        storages.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(storage.nbytes() for storage in storages.values())


def memory_readings(call: Callable[[], object]) -> dict[str, float]:
    """MiB of three meters after `call()`, which runs on CUDA.

    "peak allocated": of tensors, the most at any moment of the call. "reserved": what PyTorch keeps
    for tensors that come and go. "seen by the driver": what nvidia-smi shows, of all processes.
    """
    torch.cuda.reset_peak_memory_stats()
    call()
    free, total = torch.cuda.mem_get_info()
    readings = {
        "peak allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "seen by the driver": total - free,
    }
    return {name: nbytes / 2**20 for name, nbytes in readings.items()}


def grouped_sample_by_sample(
    module: Callable[[Tensor, Tensor], Tensor], samples: Sequence[Tensor], thresholds: Sequence[int]
) -> Tensor:
    """What `module` gives for each of `samples`, group by group, with a loop over samples.

    Args:
        module: called with a padded batch (n, longest) and its mask; gives a tensor with a row per
            sample.
        samples: int64 tensors, one per sequence.
        thresholds: ascending; sample i is in the first group whose threshold is not below its
            length.

    Raises: CourseError if the thresholds do not ascend or do not reach the longest sample.
    """
    check_thresholds(torch.tensor([len(sample) for sample in samples]), thresholds)
    groups = [[] for _ in thresholds]
    for i, sample in enumerate(samples):
        group = next(g for g, limit in enumerate(thresholds) if len(sample) <= limit)
        groups[group].append(i)
    outputs = [None] * len(samples)
    for members in groups:
        if not members:
            continue
        longest = max(len(samples[i]) for i in members)
        padded = []
        masks = []
        for i in members:
            sample = samples[i]
            padded.append(F.pad(sample, (0, longest - len(sample))))
            masks.append(torch.arange(longest, device=sample.device) < len(sample))
        of_group = module(torch.stack(padded), torch.stack(masks))
        for i, output in zip(members, of_group, strict=True):
            outputs[i] = output
    return torch.stack(outputs)


def cells_of_row(length: int) -> int:
    """The cells of a padded row."""
    return length


def pairs_of_row(length: int) -> int:
    """The pairs of cells of a padded row, which attention computes."""
    return length**2


def cost_of_groups(
    lengths: Tensor, cost_fn: Callable[[int], float]
) -> Callable[[Sequence[int]], float]:
    """A fast function from thresholds to the cost of the groups that they make.

    A group costs `cost_fn(threshold)` per sequence. Each threshold must be a length that occurs, so
    that the group's longest sequence is as long.
    """
    different, counts = lengths.unique(return_counts=True)
    upto = dict(zip(different.tolist(), counts.cumsum(0).tolist(), strict=True))

    def cost(thresholds: Sequence[int]) -> float:
        total = 0
        below = 0  # sequences in the groups so far
        for threshold in thresholds:
            total += (upto[threshold] - below) * cost_fn(threshold)
            below = upto[threshold]
        return total

    return cost


def cost_of_group_and_cell(
    seconds: Mapping[int, Interval], cells: Mapping[int, int]
) -> tuple[float, float]:
    """Seconds per group and per cell that explain the times of the fewest and the most groups.

    They solve two equations: seconds = groups · first + cells · second.

    Args:
        seconds, cells: {number of groups: what it takes}, of two numbers or more.
    """
    few = min(seconds)
    many = max(seconds)
    determinant = many * cells[few] - few * cells[many]
    per_cell = (many * seconds[few].estimate - few * seconds[many].estimate) / determinant
    per_group = (seconds[few].estimate - cells[few] * per_cell) / few
    return per_group, per_cell


def neighbours(thresholds: Sequence[int], occurring: Sequence[int]) -> list[list[int]]:
    """`thresholds` with one of them, not the last, moved to the next length down or up.

    Args:
        thresholds: ascending, each of them in `occurring`.
        occurring: ascending, the lengths that occur.
    """
    last = len(occurring) - 1
    found = []
    for number, threshold in enumerate(thresholds[:-1]):
        place = bisect.bisect_left(occurring, threshold)
        for moved in (place - 1, place + 1):
            if 0 <= moved < last and occurring[moved] not in thresholds:
                found.append([*thresholds[:number], occurring[moved], *thresholds[number + 1 :]])
    return found


def greedy_thresholds(lengths: Tensor, groups: int) -> list[int]:
    """Ascending thresholds with few cells, chosen one by one; the last is the longest length.

    Each new threshold is the one that lowers the number of cells most. No random search is needed,
    and the result is seldom the best.

    Raises: CourseError if there is no length, or `groups` is below 1.
    """
    check_lengths(lengths, groups=groups)
    cells = cost_of_groups(lengths, cells_of_row)
    occurring = lengths.unique().tolist()
    chosen = [occurring[-1]]
    for _ in range(min(groups, len(occurring)) - 1):
        tried = [sorted([*chosen, length]) for length in occurring if length not in chosen]
        chosen = min(tried, key=cells)
    return chosen


def cells_of(batches: Iterable[Sequence[int] | Tensor], lengths: Tensor) -> list[int]:
    """The cells of each padded batch of sequence numbers."""
    found = []
    for batch in batches:
        members = torch.as_tensor(batch)
        found.append(len(members) * int(lengths[members].max()))
    return found


def waste_of(batches: Iterable[Sequence[int] | Tensor], lengths: Tensor) -> float:
    """Cells per token of padded batches that hold every sequence once."""
    return sum(cells_of(batches, lengths)) / int(lengths.sum())


def split_by_length(
    batches: Iterable[Tensor], lengths: Tensor, thresholds: Sequence[int]
) -> list[Tensor]:
    """The groups of all batches: each batch is cut by the thresholds of its lengths."""
    limits = torch.tensor(thresholds)
    groups = []
    for batch in batches:
        group_of = torch.bucketize(lengths[batch], limits)
        groups += [batch[group_of == group] for group in group_of.unique()]
    return groups


def sorted_in_windows(lengths: Tensor, window: int) -> Tensor:
    """The sequence numbers, shuffled, then sorted by length in windows of so many sequences."""
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(0))
    return torch.cat([piece[lengths[piece].argsort()] for piece in order.split(window)])


def balanced(batches: Sequence[Sequence[int]], lengths: Tensor, ranks: int) -> list[Sequence[int]]:
    """The batches in an order in which each run of `ranks` neighbours has similar cells.

    The runs are shuffled.
    """
    order = torch.tensor(cells_of(batches, lengths)).argsort()
    runs = order.split(ranks)
    found = []
    for run in torch.randperm(len(runs), generator=torch.Generator().manual_seed(0)).tolist():
        found += [batches[i] for i in runs[run].tolist()]
    return found


def best_fit(lengths: Tensor, row_length: int) -> list[list[int]]:
    """The sequence numbers of each packed row: longest first, each into the fullest row with room.

    Rows with equal room are interchangeable, so a sequence looks through at most `row_length`
    different rooms, however many rows there are.

    Source: Johnson 1973, "Near-optimal bin packing algorithms"; by the room that is left as in
    Krell et al. 2021, arXiv:2107.02027.
    Raises: CourseError if a sequence is longer than a row.
    """
    longest = int(lengths.max())
    if longest > row_length:
        raise CourseError(f"a sequence has {longest} tokens, a row {row_length}; make rows longer.")
    rows = []
    by_room = {}  # room that is left -> numbers of the rows
    rooms = []  # ascending, those of by_room
    for i in lengths.argsort(descending=True, stable=True).tolist():
        length = int(lengths[i])
        place = bisect.bisect_left(rooms, length)
        if place == len(rooms):
            number = len(rows)
            rows.append([])
            room = row_length
        else:
            room = rooms[place]
            number = by_room[room].pop()
            if not by_room[room]:
                del by_room[room]
                del rooms[place]
        rows[number].append(i)
        left = room - length
        if left not in by_room:
            by_room[left] = []
            bisect.insort(rooms, left)
        by_room[left].append(number)
    return rows


def in_rows(members: Sequence, lengths: Tensor, row_length: int) -> list[list]:
    """The `members` of a batch in packed rows of at most `row_length` tokens, by `best_fit`.

    Args:
        members: sequences, or their numbers.
        lengths: int64 (len(members),), tokens of each of them.
    """
    return [[members[i] for i in row] for row in best_fit(lengths, row_length)]
