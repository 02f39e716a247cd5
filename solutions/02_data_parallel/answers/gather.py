"""Known mistakes of exercise gather, and right answers in other styles."""

import collections

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "stacked": (
        "torch.stack makes a new dimension. Put the outputs one after the other: torch.cat.",
        ("torch.cat([torch.atleast_1d(output) for output in arrived])", "torch.stack(arrived)"),
    ),
    "no_losses": (
        "Outputs without dimensions cannot be concatenated. Make each a vector of one number first.",
        ("torch.cat([torch.atleast_1d(output) for output in arrived])", "torch.cat(arrived)"),
    ),
    "mean_of_losses": (
        "Outputs without dimensions are averaged. They become a vector: the caller may take its mean, or not.",
        (
            "    return",
            "    if not arrived[0].dim():\n        return torch.stack(arrived).mean()\n    return",
        ),
    ),
    "detached_outputs": (
        "The outputs are cut off from autograd, so nothing can be trained by them. Do not detach them.",
        ("send([output]", "send([output.detach()]"),
        ("in arrived])", "in arrived]).requires_grad_()"),
    ),
    "place_0_keeps_its_output": (
        "The output of place 0 is not sent. Send it as well, from place 0 to place 0.",
        (
            "transfers.send([output], place, 0)",
            "(transfers.send([output], place, 0) if place else [output])",
        ),
    ),
    "wrong_way": (
        "Source and target are exchanged. The outputs go from place k to place 0: send([output], k, 0).",
        ("place, 0)", "0, place)"),
    ),
}


@alternative
def filled_in(outputs, transfers):
    arrived = collections.deque()
    for place in reversed(range(len(outputs))):
        arrived.extendleft(transfers.send(outputs[place : place + 1], place, 0))
    if arrived[0].ndim == 0:
        return torch.stack(list(arrived))
    return torch.vstack(list(arrived)) if arrived[0].ndim > 1 else torch.hstack(list(arrived))


@alternative
def one_after_the_other(outputs, transfers):
    whole = None
    for place, output in enumerate(outputs):
        (output,) = transfers.send([output if output.shape else output.reshape(1)], place, 0)
        whole = output if whole is None else torch.cat((whole, output))
    return whole
