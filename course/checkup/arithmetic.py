"""The arithmetic of a step and what the device reaches: model FLOPs utilisation (MFU).

Products are counted by torch's formulas while the step is taken again. The peak is no number of a
data sheet, but the fastest of some matrix products on this device, in the precision of the step.
GPU-Util, which tools show, is the share of the time in which any kernel ran, however small.
"""

import torch

from course.checkup.facts import Arithmetic, NoWay
from course.checkup.replay import Replay
from course.measure.roofline import peak, products_of

FLOPS_MIN = 1e8  # of a step: with less, arithmetic is not what takes the time
WIDTHS = {"cpu": 512, "cuda": 8192}  # of the matrices


def arithmetic_of(replay: Replay, backwards: float, compiled: bool) -> Arithmetic | None:
    """The arithmetic of the last step's models, and the device's peak; None if it is too little.

    Args:
        backwards: backward passes per step.
        compiled: whether the models are, so that their products cannot be seen.

    Raises: NoWay.
    """
    if compiled:
        raise NoWay("a compiled model hides its products")
    if backwards > len(replay.calls):
        raise NoWay("more forward passes in a step than were kept")
    flops = products_of(replay)
    if flops < FLOPS_MIN:
        return None
    device = torch.device(replay.device)
    return Arithmetic(flops, peak(WIDTHS[replay.device], device, _dtype(replay)))


def _dtype(replay: Replay) -> torch.dtype:
    """In which the step multiplies."""
    call = replay.calls[0]
    return call.autocast or next(call.module.parameters()).dtype
