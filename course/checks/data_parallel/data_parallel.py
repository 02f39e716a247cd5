"""Probe of exercise data_parallel."""

from typing import Any

import torch
from torch import nn

from course.checks.data_parallel.devices import (
    READY_MADE,
    Meeting,
    StampingTransfers,
    gradients_or_text,
    message_sizes,
    module_state,
    odd_module,
    routes,
)
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.threads import new_since, running
from course.parallel.distributed import Transfers


class _OfDict(nn.Linear):
    """Takes a dict with two tensors and an exponent."""

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        return super().forward(batch["x"]) * batch["more"][0] ** batch["power"]


@exercise(forbids=READY_MADE)
def data_parallel(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A module on parts of a batch: outputs, gradients, messages."""
    n = 3 + seed % 2
    devices = [device] * n
    module = odd_module(device, seed)
    before = module_state(module)
    threads = running()
    lengths = {
        "equal parts": 2 * n,
        "a short last part": 3 * n - 1,
        "fewer rows than devices": n - 1,
    }
    for text, length in lengths.items():
        for fact, value in _in_parts(answer, module, _rows(length, device), n, before):
            yield f"{text}: {fact}", value
        module.zero_grad()
    yield from _dict_of_tensors(answer, n, device, seed)

    batch = _rows(2 * n, device)
    transfers = Transfers([device])
    yield "a single device", answer(module, batch, transfers)
    yield "a single device: messages", routes(transfers.log)
    stamped = answer(module, batch, StampingTransfers(devices))
    yield "what was sent is what is used, at every step", stamped

    meeting = Meeting(n)

    class Meets(nn.Module):
        def forward(self, part: torch.Tensor) -> torch.Tensor:
            return meeting.replicas[int(part[0])](part)  # an attribute would be copied

    answer(Meets(), torch.arange(n, device=device), Transfers(devices))
    yield "the replicas run at the same time", all(meeting.met)
    yield "no thread is left", new_since(threads)


def _rows(length: int, device: torch.device, width: int = 4) -> torch.Tensor:
    return torch.randn(length, width, dtype=torch.float64).to(device)


def _weighted(outputs: torch.Tensor) -> torch.Tensor:
    """A loss in which no two rows count alike."""
    weights = torch.linspace(1, 2, len(outputs), device=outputs.device)
    return (outputs.square() * weights[:, None]).mean()


def _in_parts(
    answer: Answer, module: nn.Module, batch: torch.Tensor, n: int, before: list[tuple]
) -> Facts:
    """The facts of one batch on n devices; `before` is the state of the module."""
    transfers = Transfers([batch.device] * n)
    outputs = answer(module, batch, transfers)
    yield "the outputs", outputs
    yield "the module keeps its parameters, buffers and grad", module_state(module) == before
    if len(batch) > n:
        _weighted(outputs).backward()
        yield "the gradients", gradients_or_text(module)
    yield "messages", sorted(routes(transfers.log))
    yield "bytes of the messages, sorted by their way", message_sizes(sorted(transfers.log))


def _dict_of_tensors(answer: Answer, n: int, device: torch.device, seed: int) -> Facts:
    """The facts of a batch that is a dict."""
    batch = {"x": _rows(2 * n, device), "more": (_rows(2 * n, device, 2), "name"), "power": 2}
    torch.manual_seed(seed)
    module = _OfDict(4, 2).double().to(device)
    transfers = Transfers([device] * n)
    yield "a batch that is a dict", answer(module, batch, transfers)
    yield "a batch that is a dict: messages", sorted(routes(transfers.log))
