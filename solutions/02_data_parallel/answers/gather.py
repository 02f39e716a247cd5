"""Known mistakes of exercise gather, and right answers in other styles."""

import collections

import torch

from course.checks.engine import alternative, mistake


def _send(transfers, tensors, source, target):
    return transfers.send(tensors, source, target)


def _send_to_others(transfers, tensors, source, target):
    return tensors if source == target else transfers.send(tensors, source, target)


def _gather(outputs, transfers, send=_send):
    """A right answer whose way to send can be spoilt."""
    arrived = [send(transfers, [output], place, 0)[0] for place, output in enumerate(outputs)]
    return torch.cat([torch.atleast_1d(output) for output in arrived])


@mistake("gather", "torch.stack makes a new dimension. Put the outputs one behind the other: torch.cat.")
def stacked(outputs, transfers):
    return torch.stack([transfers.send([output], place, 0)[0] for place, output in enumerate(outputs)])


@mistake("gather", "Outputs without dimensions cannot be concatenated. Make each a vector of one number first.")
def no_losses(outputs, transfers):
    return torch.cat([transfers.send([output], place, 0)[0] for place, output in enumerate(outputs)])


@mistake(
    "gather",
    "Outputs without dimensions are averaged. They become a vector: the caller may take its mean, or not.",
)
def mean_of_losses(outputs, transfers):
    whole = _gather(outputs, transfers)
    return whole if outputs[0].dim() else whole.mean()


@mistake("gather", "The outputs are cut off from autograd, so nothing can be trained by them. Do not detach them.")
def detached_outputs(outputs, transfers):
    return _gather([output.detach() for output in outputs], transfers).requires_grad_()


@mistake("gather", "The output of place 0 is not sent. Send it as well, from place 0 to place 0.")
def place_0_keeps_its_output(outputs, transfers):
    return _gather(outputs, transfers, send=_send_to_others)


@mistake("gather", "Source and target are exchanged. The outputs go from place k to place 0: send([output], k, 0).")
def wrong_way(outputs, transfers):
    return _gather(outputs, transfers, send=lambda transfers, tensors, k, _: transfers.send(tensors, 0, k))


@alternative("gather")
def filled_in(outputs, transfers):
    arrived = collections.deque()
    for place in reversed(range(len(outputs))):
        arrived.extendleft(transfers.send(outputs[place : place + 1], place, 0))
    return (
        torch.stack(list(arrived))
        if arrived[0].ndim == 0
        else torch.vstack(list(arrived))
        if (arrived[0].ndim > 1)
        else torch.hstack(list(arrived))
    )


@alternative("gather")
def one_after_the_other(outputs, transfers):
    whole = None
    for place, output in enumerate(outputs):
        (output,) = transfers.send([output if output.shape else output.reshape(1)], place, 0)
        whole = output if whole is None else torch.cat((whole, output))
    return whole
