"""The model, the devices and the plans of unit 07: *sizes* -> formulas -> the cheapest plan.

A plan cuts a training along three axes: data ranks compute different sequences, tensor ranks keep a
part of each layer, pipeline ranks keep some of the layers. What a plan costs in bytes and FLOPs is
the task of the unit's first part.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from course.training.ragged_transformer import RaggedTransformer


@dataclass(frozen=True)
class Gpt:
    """The sizes of a GPT, the transformer of unit 05: pre-norm blocks, an MLP of four widths."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    columns: int  # tokens per sequence

    def model(self, device: torch.device | str = "meta") -> RaggedTransformer:
        """A model of these sizes; on the meta device it has shapes and no memory."""
        with torch.device(device):
            return RaggedTransformer(self.vocabulary, self.width, self.layers, self.heads)

    def loss(self, model: nn.Module, rows: int) -> Tensor:
        """The mean loss of `rows` random sequences on the device of `model`, with a graph."""
        device = next(model.parameters()).device
        tokens = torch.randint(self.vocabulary, (rows, self.columns + 1), device=device)
        scores = model(tokens[:, :-1], torch.arange(self.columns, device=device))
        return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


def counted(run: Callable[[], object]) -> int:
    """The FLOPs of all matrix products of `run()`, as torch counts them (FlopCounterMode)."""
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())
