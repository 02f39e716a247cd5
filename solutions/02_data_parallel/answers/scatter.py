"""Known mistakes of exercise scatter, and right answers in other styles."""

import torch
from torch.utils import _pytree as pytree

from course.checks.engine import alternative, mistake


def _walk(value, use):
    """A right walk over a batch: `value` with use(tensor) for each tensor."""
    if isinstance(value, torch.Tensor):
        return use(value)
    if isinstance(value, dict):
        return {key: _walk(item, use) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_walk(item, use) for item in value])
    return value


def _send(transfers, tensors, source, target):
    return transfers.send(tensors, source, target)


def _send_to_others(transfers, tensors, source, target):
    return tensors if source == target else transfers.send(tensors, source, target)


def _scatter(batch, transfers, cut=torch.chunk, walk=_walk, send=_send):
    """A right answer in pieces, so that each mistake can spoil one of them."""
    tensors = []
    _walk(batch, tensors.append)
    parts = []
    for place, pieces in enumerate(zip(*(cut(t, len(transfers.devices)) for t in tensors), strict=True)):
        arrived = iter(send(transfers, list(pieces), 0, place))
        parts.append(walk(batch, lambda tensor, arrived=arrived: next(arrived)))
    return parts


@mistake(
    "scatter",
    "Each tensor of a part is a message of its own. Collect the tensors of a part in a list, and send the list.",
)
def a_message_for_each_tensor(batch, transfers):
    n = len(transfers.devices)
    if isinstance(batch, torch.Tensor):
        return [transfers.send([piece], 0, place)[0] for place, piece in enumerate(batch.chunk(n))]
    if isinstance(batch, dict):
        items = zip(*(a_message_for_each_tensor(item, transfers) for item in batch.values()), strict=False)
        return [dict(zip(batch, part, strict=True)) for part in items]
    if isinstance(batch, (list, tuple)):
        items = zip(*(a_message_for_each_tensor(item, transfers) for item in batch), strict=False)
        return [type(batch)(part) for part in items]
    return [batch] * n


@mistake(
    "scatter",
    "Every device gets the whole batch, and all of them compute the same. Cut each tensor by chunk along dimension 0.",
)
def whole_batch_for_all(batch, transfers):
    return _scatter(batch, transfers, cut=lambda tensor, n: [tensor] * n)


@mistake(
    "scatter",
    "The part of place 0 is not sent. Send it as well, from place 0 to place 0; Transfers knows what crosses.",
)
def place_0_keeps_its_part(batch, transfers):
    return _scatter(batch, transfers, send=_send_to_others)


@mistake(
    "scatter",
    "The rows are shared out as evenly as possible, which is torch.tensor_split. torch.chunk makes all pieces of the "
    "same length but the last.",
)
def evenly(batch, transfers):
    return _scatter(batch, transfers, cut=torch.tensor_split)


def _fixed(tensor, n):
    size = -(-len(tensor) // n)
    return [tensor[k * size : (k + 1) * size] for k in range(n)]


@mistake(
    "scatter",
    "A batch that is too short gives empty parts, and messages for them. Make as many parts as chunk makes pieces.",
)
def empty_parts(batch, transfers):
    return _scatter(batch, transfers, cut=_fixed)


def _walk_to_lists(value, use):
    if isinstance(value, (list, tuple)):
        return [_walk_to_lists(item, use) for item in value]
    if isinstance(value, dict):
        return {key: _walk_to_lists(item, use) for key, item in value.items()}
    return _walk(value, use)


@mistake("scatter", "A tuple comes back as a list. Make each container of the batch's own type: type(value)(items).")
def tuples_become_lists(batch, transfers):
    return _scatter(batch, transfers, walk=_walk_to_lists)


def _walk_tensors(value, use):
    if isinstance(value, (list, tuple)):
        return type(value)([_walk_tensors(v, use) for v in value if isinstance(v, (torch.Tensor, list, tuple, dict))])
    if isinstance(value, dict):
        items = value.items()
        return {k: _walk_tensors(v, use) for k, v in items if isinstance(v, (torch.Tensor, list, tuple, dict))}
    return use(value)


@mistake("scatter", "What is no tensor is left out of the parts. Put it into every part as it is.")
def only_tensors(batch, transfers):
    return _scatter(batch, transfers, walk=_walk_tensors)


@mistake("scatter", "The parts are cut off from autograd. Send the pieces themselves, not what detach makes of them.")
def detached_parts(batch, transfers):
    return _scatter(batch, transfers, cut=lambda tensor, n: tensor.detach().chunk(n))


@alternative("scatter")
def flattened_tree(batch, transfers):
    leaves, form = pytree.tree_flatten(batch)
    where = [i for i, leaf in enumerate(leaves) if torch.is_tensor(leaf)]
    cuts = [leaves[i].chunk(len(transfers.devices)) for i in where]
    parts = []
    for place in range(len(cuts[0])):
        part = list(leaves)
        for i, arrived in zip(where, transfers.send([cut[place] for cut in cuts], 0, place), strict=True):
            part[i] = arrived
        parts.append(pytree.tree_unflatten(part, form))
    return parts


def _rows(value, start, stop, found):
    """The rows from `start` to `stop` of all tensors, which are appended to `found`; an index stands for each."""
    if isinstance(value, torch.Tensor):
        index = len(found)
        found.append(value[start:stop])
        return lambda arrived: arrived[index]
    if isinstance(value, dict):
        makers = {key: _rows(item, start, stop, found) for key, item in value.items()}
        return lambda arrived: {key: make(arrived) for key, make in makers.items()}
    if type(value) in (tuple, list):
        makers = [_rows(item, start, stop, found) for item in value]
        return lambda arrived: type(value)(make(arrived) for make in makers)
    return lambda arrived: value


def _length(value):
    if isinstance(value, torch.Tensor):
        return value.size(0)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return max(map(_length, items), default=0)


@alternative("scatter")
def slices_and_makers(batch, transfers):
    length = _length(batch)
    step = (length + len(transfers.devices) - 1) // len(transfers.devices)
    parts = []
    for place, start in enumerate(range(0, length, step)):
        found = []
        make = _rows(batch, start, start + step, found)
        parts.append(make(transfers.send(found, 0, place)))
    return parts
