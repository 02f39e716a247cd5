"""Known mistakes of exercise scatter, and right answers in other styles."""

import torch
from torch.utils import _pytree as pytree

from course.engine.known_answers import alternative

MISTAKES = {
    "a_message_for_each_tensor": (
        "Each tensor of a part is sent as a separate message. Collect the tensors of a part in a list, and send the "
        "list.",
        (
            "transfers.send(pieces, 0, place)",
            "[transfers.send([piece], 0, place)[0] for piece in pieces]",
        ),
    ),
    "whole_batch_for_all": (
        "Every device gets the whole batch, and all of them compute the same. Cut each tensor by "
        "chunk along dimension 0.",
        ("tensor.chunk(len(transfers.devices))", "[tensor] * len(transfers.devices)"),
    ),
    "place_0_keeps_its_part": (
        "The part of place 0 is not sent. Send it as well, from place 0 to place 0; Transfers knows what crosses.",
        (
            "transfers.send(pieces, 0, place)",
            "transfers.send(pieces, 0, place) if place else pieces",
        ),
    ),
    "evenly": (
        "The rows are shared out as evenly as possible, which is torch.tensor_split. torch.chunk makes all pieces of "
        "the same length but the last.",
        ("tensor.chunk", "tensor.tensor_split"),
    ),
    "empty_parts": (
        "A batch that is too short gives empty parts, and messages for them. Make as many parts as chunk makes pieces.",
        (
            "tensor.chunk(len(transfers.devices))",
            "[*tensor.chunk(len(transfers.devices)), *[tensor[:0]] * len(transfers.devices)]",
        ),
        ("range(len(cuts[0]))", "range(len(transfers.devices))"),
    ),
    "tuples_become_lists": (
        "A tuple comes back as a list. Make each container of the batch's own type: type(value)(items).",
        ("type(value)([", "(["),
    ),
    "namedtuple_like_a_tuple": (
        "A namedtuple is a tuple too, but its constructor takes one argument per field. Write type(value)(*items).",
        (
            "type(value)(*[walk(item, use) for item in value])",
            "type(value)([walk(item, use) for item in value])",
        ),
    ),
    "only_tensors": (
        "The parts leave out everything that is not a tensor. Put it into every part unchanged.",
        (
            "in value.items()}",
            "in value.items() if isinstance(item, (torch.Tensor, dict, list, tuple))}",
        ),
        (
            "([walk(item, use) for item in value])",
            "([walk(item, use) for item in value if isinstance(item, (torch.Tensor, dict, list, tuple))])",
        ),
    ),
    "detached_parts": (
        "The parts are cut off from autograd. Send the pieces themselves, not what detach makes of them.",
        ("tensor.chunk", "tensor.detach().chunk"),
    ),
}


@alternative
def flattened_tree(batch, transfers):
    leaves, form = pytree.tree_flatten(batch)
    where = [i for i, leaf in enumerate(leaves) if torch.is_tensor(leaf)]
    cuts = [leaves[i].chunk(len(transfers.devices)) for i in where]
    parts = []
    for place in range(len(cuts[0])):
        part = list(leaves)
        for i, arrived in zip(
            where, transfers.send([cut[place] for cut in cuts], 0, place), strict=True
        ):
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
    if isinstance(value, (tuple, list)):
        makers = [_rows(item, start, stop, found) for item in value]
        make_all = getattr(value, "_make", type(value))  # of a namedtuple
        return lambda arrived: make_all([make(arrived) for make in makers])
    return lambda arrived: value


def _length(value):
    if isinstance(value, torch.Tensor):
        return value.size(0)
    items = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, (tuple, list))
        else ()
    )
    return max(map(_length, items), default=0)


@alternative
def slices_and_makers(batch, transfers):
    length = _length(batch)
    step = (length + len(transfers.devices) - 1) // len(transfers.devices)
    parts = []
    for place, start in enumerate(range(0, length, step)):
        found = []
        make = _rows(batch, start, start + step, found)
        parts.append(make(transfers.send(found, 0, place)))
    return parts
