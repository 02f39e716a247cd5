"""The small GPT cut over pipeline ranks: *an order per rank* -> gradients, times, bytes.

The schedule and its messages are in parallel/pipeline.py. Here are the parts of a model, a step
with an answer of unit 07, and the same step by torch.distributed.pipelining.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from course.measure.saved_tensors import peak_bytes_saved
from course.parallel.network import Network, simulate
from course.parallel.pipeline import Ends, Kind, Order, Pass, Wire
from course.training.ragged_transformer import RaggedTransformer, position_codes
from course.training.small_gpt import next_token_loss

FREE = Network(latency=0.0, bandwidth=float("inf"))  # messages take no time
RunOrder = Callable[[Order, nn.Module, Wire], Any]  # the learner's answer
Gradients = dict[str, Tensor]


class Part(nn.Module):
    """The layers of one pipeline rank: its share of the blocks, consecutive ones."""

    def __init__(self, model: RaggedTransformer, rank: int, ranks: int) -> None:
        super().__init__()
        each = len(model.blocks) // ranks
        self.blocks = model.blocks[rank * each : (rank + 1) * each]

    def forward(self, x: Tensor) -> Tensor:
        """Like `x`, (rows, columns, dim)."""
        for block in self.blocks:
            x = block(x, None)
        return x


class WithEnds(nn.Module):
    """The layers of one rank, with the embedding on the first and the scores on the last.

    torch.distributed.pipelining takes it.
    """

    def __init__(self, model: RaggedTransformer, rank: int, ranks: int) -> None:
        super().__init__()
        self.part = Part(model, rank, ranks)
        self.embedding = model.embedding if rank == 0 else None
        self.norm = model.norm if rank == ranks - 1 else None
        self.scores = model.scores if rank == ranks - 1 else None

    def forward(self, x: Tensor) -> Tensor:
        """(rows, columns, dim or vocabulary) of tokens or of what the rank before returned."""
        if self.embedding is not None:
            x = self.embedding(x) + _positions(self.embedding.weight, x.shape[1])
        x = self.part(x)
        if self.scores is not None and self.norm is not None:
            x = self.scores(self.norm(x))
        return x


def _positions(like: Tensor, columns: int) -> Tensor:
    return position_codes(torch.arange(columns, device=like.device), like)


def _ends(model: RaggedTransformer, tokens: Tensor, micro_batches: int) -> Ends:
    """Embedding and loss of the micro-batches of `tokens`; none of it counts as saved."""
    pieces = tokens.chunk(micro_batches)

    def uncounted() -> saved_tensors_hooks:
        return saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)

    def first(micro_batch: int) -> Tensor:
        inputs = pieces[micro_batch][:, :-1]
        with uncounted():
            codes = _positions(model.embedding.weight, inputs.shape[1])
            return model.embedding(inputs) + codes

    def loss(micro_batch: int, output: Tensor) -> Tensor:
        with uncounted():
            scores = model.scores(model.norm(output))
            return _loss(scores, pieces[micro_batch][:, 1:])

    return Ends(first, loss, micro_batches)


def _loss(scores: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


@dataclass(frozen=True)
class RankStep:
    """What one rank of a pipeline has after a step."""

    gradients: Gradients = field(repr=False)  # of the parameters that it has
    passes: list[Pass]  # with virtual seconds; empty on a real network
    peak_bytes: int  # that autograd saved for its layers at most


def step_of_rank(
    rank: int,
    ranks: int,
    run_order: RunOrder,
    orders: Sequence[Order],
    model: RaggedTransformer,
    tokens: Tensor,
    lasts: Mapping[Kind, float] | None = None,
) -> RankStep:
    """Run the order of this rank on its part of `model`; call it in a rank.

    Args:
        tokens: int64 (rows, columns + 1), of all micro-batches.
        lasts: virtual seconds of a pass, by kind; None on a real network.
    """
    micro_batches = sum(kind == "F" for kind, _ in orders[rank])
    part = Part(model, rank, ranks)
    ends = _ends(model, tokens, micro_batches)
    rows = tokens.shape[0] // micro_batches
    like = torch.empty(rows, tokens.shape[1] - 1, model.embedding.embedding_dim)
    wire = Wire(ends, like, lasts)
    peak = peak_bytes_saved(lambda: run_order(orders[rank], part, wire), part.parameters())
    wire.finish()
    return RankStep(_gradients(model), wire.passes, peak)


def _gradients(model: nn.Module) -> Gradients:
    """{name: gradient} of the parameters that have one."""
    named = model.named_parameters()
    return {name: weights.grad for name, weights in named if weights.grad is not None}


@dataclass(frozen=True)
class PipelineStep:
    """What all virtual ranks of a pipeline have after a step."""

    gradients: Gradients = field(repr=False)
    passes: list[Pass]
    peak_bytes: list[int]  # of each rank


def on_virtual_ranks(
    run_order: RunOrder,
    orders: Sequence[Order],
    model: RaggedTransformer,
    tokens: Tensor,
    lasts: Mapping[Kind, float],
) -> PipelineStep:
    """A step on as many virtual ranks as there are orders; messages take no time."""
    args = run_order, orders, model, tokens, lasts
    steps = simulate(step_of_rank, len(orders), FREE, *args).results
    gradients: Gradients = {}
    passes: list[Pass] = []
    for step in steps:
        gradients |= step.gradients
        passes += step.passes
    return PipelineStep(gradients, passes, [step.peak_bytes for step in steps])


def whole_gradients(model: RaggedTransformer, tokens: Tensor) -> Gradients:
    """The gradients of one process that has all layers and the whole batch."""
    model.zero_grad()
    next_token_loss(model, tokens).backward()
    gradients = _gradients(model)
    model.zero_grad()
    return gradients


def largest_difference(mine: Gradients, whole: Gradients) -> float:
    """The largest distance of two numbers of the same gradients.

    Raises: KeyError if `whole` has a gradient that `mine` lacks.
    """
    return max((mine[name] - gradient).abs().max().item() for name, gradient in whole.items())


def by_torch(
    rank: int, ranks: int, schedule: str, model: RaggedTransformer, tokens: Tensor, pieces: int
) -> Gradients:
    """The gradients of this rank after a step of torch.distributed.pipelining; call it in a rank.

    Args:
        schedule: "ScheduleGPipe" or "Schedule1F1B".
        pieces: micro-batches.
    """
    from torch.distributed import pipelining  # it takes seconds to import

    layers = WithEnds(model, rank, ranks)
    stage = pipelining.PipelineStage(layers, rank, ranks, torch.device("cpu"))
    steps = getattr(pipelining, schedule)(stage, pieces, loss_fn=_loss)
    inputs = [tokens[:, :-1].contiguous()] if rank == 0 else []
    targets = {"target": tokens[:, 1:].contiguous()} if rank == ranks - 1 else {}
    steps.step(*inputs, **targets)
    gradients = _gradients(model)
    model.zero_grad()
    return gradients


def compared_with_torch(
    rank: int,
    ranks: int,
    run_order: RunOrder,
    orders_of: Mapping[str, Sequence[Order]],
    model: RaggedTransformer,
    tokens: Tensor,
) -> dict[str, dict[str, float]]:
    """{name: {"yours" and "torch": distance from the whole model's gradients}} of this rank.

    Args:
        orders_of: {"ScheduleGPipe" or "Schedule1F1B": an order per rank}.
    """
    torch.set_num_threads(1)
    whole = whole_gradients(model, tokens)
    found = {}
    for schedule, orders in orders_of.items():
        mine = step_of_rank(rank, ranks, run_order, orders, model, tokens).gradients
        model.zero_grad()
        pieces = sum(kind == "F" for kind, _ in orders[rank])
        theirs = by_torch(rank, ranks, schedule, model, tokens, pieces)
        own = {name: whole[name] for name in mine}
        assert mine.keys() == theirs.keys()
        ways = {"yours": mine, "torch": theirs}
        found[schedule] = {way: largest_difference(ways[way], own) for way in ways}
        dist.barrier()
    return found
