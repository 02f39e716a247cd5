"""Probe of exercise gather."""

import torch

from course.checks.data_parallel.devices import READY_MADE, StampingTransfers, message_sizes, ways
from course.engine.exercise import Answer, Facts, exercise
from course.parallel.distributed import Transfers


@exercise(forbids=READY_MADE)
def gather(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Outputs of several lengths, and losses."""
    rng = torch.Generator().manual_seed(seed)
    n = 3 + seed % 2

    def outputs_of(*shapes):
        return [
            torch.randn(shape, generator=rng, dtype=torch.float64).to(device).requires_grad_()
            for shape in shapes
        ]

    outputs = outputs_of(*[(2, 3)] * (n - 1), (1, 3))
    transfers = Transfers([device] * n)
    whole = answer(outputs, transfers)
    yield "returns a tensor", type(whole).__name__
    yield "the shape of the whole", tuple(whole.shape)
    yield "its values", whole
    yield "one message an output, to place 0", sorted(ways(transfers.log))
    yield "bytes of each message", sorted(message_sizes(transfers.log))
    yield "what was sent is what is put together", answer(outputs, StampingTransfers([device] * n))
    (whole * torch.arange(len(whole), device=device)[:, None]).sum().backward()
    yield "gradients flow back to the outputs", [output.grad for output in outputs]
    outputs = outputs_of(*[()] * n)
    transfers = Transfers([device] * n)
    whole = answer(outputs, transfers)
    yield "outputs without dimensions become a vector", whole
    yield "outputs without dimensions: messages", sorted(ways(transfers.log))
    (whole * torch.arange(n, device=device)).sum().backward()
    yield "outputs without dimensions: gradients", torch.stack([output.grad for output in outputs])
    yield "a single output", answer(outputs_of((2, 2, 2)), Transfers([device] * n))
    yield "a single output without dimensions", answer(outputs_of(()), Transfers([device]))
