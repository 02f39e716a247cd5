"""Probe of exercise gather."""

import torch

from course.checks.data_parallel.devices import (
    READY_MADE,
    StampingTransfers,
    message_sizes,
    routes,
)
from course.engine.exercise import Answer, Facts, exercise
from course.parallel.distributed import Transfers


@exercise(forbids=READY_MADE)
def gather(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Outputs of several lengths, and losses."""
    rng = torch.Generator().manual_seed(seed)
    n = 3 + seed % 2
    devices = [device] * n

    def output(*shape: int) -> torch.Tensor:
        values = torch.randn(shape, generator=rng, dtype=torch.float64)
        return values.to(device).requires_grad_()

    outputs = []
    for rows in [2] * (n - 1) + [1]:
        outputs.append(output(rows, 3))
    transfers = Transfers(devices)
    whole = answer(outputs, transfers)
    yield "returns a tensor", type(whole).__name__
    yield "the shape of the whole", tuple(whole.shape)
    yield "its values", whole
    yield "one message an output, to place 0", sorted(routes(transfers.log))
    yield "bytes of each message", sorted(message_sizes(transfers.log))
    yield "what was sent is what is put together", answer(outputs, StampingTransfers(devices))
    (whole * torch.arange(len(whole), device=device)[:, None]).sum().backward()
    yield "gradients flow back to the outputs", [output.grad for output in outputs]

    losses = [output() for _ in range(n)]
    transfers = Transfers(devices)
    whole = answer(losses, transfers)
    yield "outputs without dimensions become a vector", whole
    yield "outputs without dimensions: messages", sorted(routes(transfers.log))
    (whole * torch.arange(n, device=device)).sum().backward()
    yield "outputs without dimensions: gradients", torch.stack([loss.grad for loss in losses])
    yield "a single output", answer([output(2, 2, 2)], Transfers(devices))
    yield "a single output without dimensions", answer([output()], Transfers([device]))
