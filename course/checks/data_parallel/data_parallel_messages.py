"""Probe of exercise data_parallel_messages."""

import torch

from course.checks.data_parallel.shared import _sizes
from course.checks.engine import exercise
from course.distributed import Transfers


def _counted_step(n, weight, rows):
    """The counts of a step, taken from messages that are really sent: a bias-free layer on `rows` rows a device."""
    transfers = Transfers(["cpu"] * n)
    batch, outputs = torch.zeros(n * rows, weight.shape[1]), torch.zeros(n * rows, weight.shape[0])
    found = {}
    for way, out, back in (("forward", (batch, [weight] * n), outputs), ("backward", (outputs,), [weight] * n)):
        transfers.log.clear()
        pieces = [t.chunk(n) if isinstance(t, torch.Tensor) else t for t in (*out, back)]
        for place in range(n):
            for step in pieces[:-1]:
                transfers.send([step[place]], 0, place)
            transfers.send([pieces[-1][place]], place, 0)
        crossing = transfers.crossing
        found |= {f"{way}_messages": len(transfers.log), f"{way}_crossing": len(crossing)}
        found[f"{way}_bytes"] = sum(_sizes(crossing))
    return found


@exercise(isolated=True)
def data_parallel_messages(answer, device, seed):
    """The counts, against messages that are sent."""
    n = 3 + seed % 3
    counts = answer(n, 1000 + seed, 12 * n, 20 * n)
    yield "returns a dict", type(counts).__name__
    yield "its keys", sorted(counts)
    yield "its values are int", sorted({type(value).__name__ for value in counts.values()})
    yield "messages of the forward", counts["forward_messages"]
    yield "those of the forward that leave their device", counts["forward_crossing"]
    yield "bytes that cross in the forward", counts["forward_bytes"]
    yield "messages of the backward", counts["backward_messages"]
    yield "those of the backward that leave their device", counts["backward_crossing"]
    yield "bytes that cross in the backward", counts["backward_bytes"]
    weight = torch.zeros(5, 3 + seed % 4)
    for devices in (n, 2, 8):
        args = weight.nbytes, devices * 2 * weight.shape[1] * 4, devices * 2 * weight.shape[0] * 4
        yield f"{devices} devices, as messages are counted", answer(devices, *args) == _counted_step(devices, weight, 2)
    yield "a single device: nothing crosses", answer(1, 40, 24, 8)
    yield "large numbers stay exact", answer(8, 10**17 + 1, 8 * (10**17 + 3), 8)
