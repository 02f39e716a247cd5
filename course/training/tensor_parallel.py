"""Transformer blocks split over ranks, made of answers of unit 07, part 3, and by torch.

Everything is float64, so that a difference is a mistake and not rounding.

Source: Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053, section 3.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

from course.parallel.counting import OperationLog, counted
from course.training.ragged_transformer import Block

DIM = 128
HEADS = 8
COLUMNS = 64  # tokens per sequence
NUMBER_BYTES = 8  # float64
HIDDEN = 256  # units of the MLP whose ranks draw their own weights
TEACHER_HIDDEN = 64
INPUTS = 32


@dataclass(frozen=True)
class Answers:
    """What the split block is made of."""

    copy_to_ranks: Callable[[Tensor], Tensor]
    sum_over_ranks: Callable[[Tensor], Tensor]
    split_mlp: type
    head_rows: Callable[[int, int, int, int], Sequence[int]]


class SplitAttention(nn.Module):
    """The heads of one rank. The ranks' outputs are summed before the bias is added."""

    def __init__(self, block: Block, answers: Answers):
        super().__init__()
        rank = dist.get_rank()
        world_size = dist.get_world_size()
        rows = answers.head_rows(block.qkv.in_features, block.heads, rank, world_size)
        columns = block.out.weight.detach().chunk(world_size, dim=1)[rank]
        self.heads = block.heads // world_size
        self.answers = answers
        self.qkv_weight = nn.Parameter(block.qkv.weight.detach()[rows].clone())
        self.qkv_bias = nn.Parameter(block.qkv.bias.detach()[rows].clone())
        self.out_weight = nn.Parameter(columns.clone())
        self.out_bias = nn.Parameter(block.out.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Like `x`, (rows, columns, dim)."""
        qkv = F.linear(self.answers.copy_to_ranks(x), self.qkv_weight, self.qkv_bias)
        # (rows, heads of this rank, columns, dim of a head) each
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-3, -2)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        part = F.linear(attended.transpose(-3, -2).flatten(-2), self.out_weight)
        return self.answers.sum_over_ranks(part) + self.out_bias


class SplitBlock(nn.Module):
    """One rank's part of a Block; its norms are whole."""

    def __init__(self, block: Block, answers: Answers):
        super().__init__()
        self.norm_1 = copy.deepcopy(block.norm_1)
        self.attention = SplitAttention(block, answers)
        self.norm_2 = copy.deepcopy(block.norm_2)
        self.mlp = answers.split_mlp(block.mlp, answers.copy_to_ranks, answers.sum_over_ranks)

    def forward(self, x: Tensor) -> Tensor:
        """Like `x`, (rows, columns, dim)."""
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


@dataclass(frozen=True)
class ComparedBlock:
    """A split block next to the whole one, on one rank."""

    differences: dict[str, float]  # the largest of the output, of the gradients
    in_forward: OperationLog  # what the rank called
    in_backward: OperationLog
    kept: float  # share of the block's numbers that the rank keeps


def compared_block(
    rank: int, world_size: int, answers: Answers, rows: int, dim: int = DIM, heads: int = HEADS
) -> ComparedBlock:
    """Run a whole and a split block on the same batch of `rows` sequences; a function of ranks."""
    block, x, factors = _block_and_batch(rows, dim, heads)
    split = SplitBlock(block, answers)
    own_x = x.detach().clone().requires_grad_()
    with counted() as in_forward:
        output = split(own_x)
    with counted() as in_backward:
        (output * factors).sum().backward()
    whole = block(x, None)
    (whole * factors).sum().backward()
    expected = SplitBlock(_of_gradients(block), answers)
    gradients = []
    for part, right in zip(split.parameters(), expected.parameters(), strict=True):
        gradients.append(_difference(part.grad, right))
    differences = {
        "output": _difference(output, whole),
        "gradient of input": _difference(own_x.grad, x.grad),
        "gradients of weights": max(gradients),
    }
    kept = _numel(split) / _numel(block)
    return ComparedBlock(differences, in_forward, in_backward, kept)


def _block_and_batch(rows: int, dim: int, heads: int) -> tuple[Block, Tensor, Tensor]:
    """(a whole block, its input, the gradient of its output), equal on every rank."""
    torch.manual_seed(0)
    block = Block(dim, heads).double()
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(rows, COLUMNS, dim, generator=rng, dtype=torch.float64)
    factors = torch.randn(rows, COLUMNS, dim, generator=rng, dtype=torch.float64)
    return block, x.requires_grad_(), factors


def _of_gradients(block: Block) -> Block:
    """A copy of `block` that has its gradients as weights, to be cut as the weights are."""
    twin = copy.deepcopy(block)
    for of_twin, parameter in zip(twin.parameters(), block.parameters(), strict=True):
        assert parameter.grad is not None
        of_twin.data = parameter.grad.clone()
    return twin


def _difference(one: Tensor | None, other: Tensor | None) -> float:
    assert one is not None
    assert other is not None
    return (one - other).abs().max().item()


def _numel(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


# ---- torch's own


class SeparateBlock(nn.Module):
    """A Block with a linear layer each for queries, keys and values, and its weights."""

    def __init__(self, block: Block):
        super().__init__()
        dim = block.qkv.in_features
        self.head_dim = dim // block.heads
        self.norm_1 = copy.deepcopy(block.norm_1)
        self.qkv = nn.ModuleList(nn.Linear(dim, dim).double() for _ in range(3))
        thirds = zip(block.qkv.weight.chunk(3), block.qkv.bias.chunk(3), strict=True)
        for layer, (weight, bias) in zip(self.qkv, thirds, strict=True):
            layer.load_state_dict({"weight": weight.detach(), "bias": bias.detach()})
        self.out = copy.deepcopy(block.out)
        self.norm_2 = copy.deepcopy(block.norm_2)
        self.mlp = copy.deepcopy(block.mlp)

    def forward(self, x: Tensor) -> Tensor:
        """Like `x`, (rows, columns, dim)."""
        normed = self.norm_1(x)
        # as many heads as the layer's part has
        parts = [layer(normed).unflatten(-1, (-1, self.head_dim)) for layer in self.qkv]
        q, k, v = (part.transpose(-3, -2) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(-3, -2).flatten(-2))
        return x + self.mlp(self.norm_2(x))


def split_by_torch(block: SeparateBlock, world_size: int) -> nn.Module:
    """The block, of which each rank keeps its part."""
    by_columns = dict.fromkeys(["qkv.0", "qkv.1", "qkv.2", "mlp.0"], ColwiseParallel())
    by_rows = dict.fromkeys(["out", "mlp.2"], RowwiseParallel())
    mesh = init_device_mesh("cpu", (world_size,))
    return parallelize_module(block, mesh, by_columns | by_rows)


def with_parallelize_module(rank: int, world_size: int, rows: int) -> dict[str, float]:
    """{what: largest difference of a block that torch splits to the whole one}; of a rank."""
    block, x, factors = _block_and_batch(rows, DIM, HEADS)
    split = split_by_torch(SeparateBlock(block), world_size)
    own_x = x.detach().clone().requires_grad_()
    output = split(own_x)
    (output * factors).sum().backward()
    whole = block(x, None)
    (whole * factors).sum().backward()
    return {
        "output": _difference(output, whole),
        "gradient of input": _difference(own_x.grad, x.grad),
        "gradients of weights": _of_all_weights(split, block),
    }


def _of_all_weights(split: nn.Module, block: Block) -> float:
    """The largest difference of a gradient of `split`, put together, to that of `block`."""
    expected = dict(SeparateBlock(_of_gradients(block)).named_parameters())
    differences = []
    for name, parameter in split.named_parameters():
        gradient = parameter.grad
        assert gradient is not None
        whole = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
        differences.append(_difference(whole, expected[name]))
    return max(differences)


# ---- ranks that draw their own parts


def mlp_of_ranks(seeds: Sequence[int]) -> nn.Sequential:
    """An MLP of HIDDEN units, of which each rank has drawn its part with its own seed.

    The last bias is whole, so it begins with zeros.
    """
    part = HIDDEN // len(seeds)
    wides, narrows = [], []
    for seed in seeds:
        torch.manual_seed(seed)
        wides.append(nn.Linear(INPUTS, part))
        narrows.append(nn.Linear(part, INPUTS))
    mlp = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, INPUTS))
    state = {
        "0.weight": torch.cat([wide.weight for wide in wides]),
        "0.bias": torch.cat([wide.bias for wide in wides]),
        # drawn for `part` inputs, used with HIDDEN
        "2.weight": torch.cat([narrow.weight for narrow in narrows], 1) / len(seeds) ** 0.5,
        "2.bias": torch.zeros(INPUTS),
    }
    mlp.load_state_dict(state)
    return mlp


def teacher(seed: int) -> nn.Sequential:
    """The MLP that is imitated: TEACHER_HIDDEN units, with large weights."""
    torch.manual_seed(10_000 + seed)
    mlp = nn.Sequential(nn.Linear(INPUTS, TEACHER_HIDDEN), nn.GELU(), nn.Linear(TEACHER_HIDDEN, 32))
    with torch.no_grad():
        for parameter in mlp.parameters():
            parameter.mul_(3)
    return mlp.requires_grad_(False)


def trained_shards(
    rank: int, world_size: int, answers: Answers, seeds: Sequence[int], steps: int = 20
) -> Tensor:
    """The weights (units of this rank, INPUTS) of a split MLP after training; of a rank.

    Rank r has drawn its part with `seeds[r]`.
    """
    whole = mlp_of_ranks(seeds)
    model = answers.split_mlp(whole, answers.copy_to_ranks, answers.sum_over_ranks)
    _imitate(model, teacher(0), steps, seed=0)
    weight: Tensor = model.wide_weight
    return weight.detach()


def imitation_loss(seeds: Sequence[int], run: int, steps: int) -> float:
    """The mean squared error, on fresh inputs, of an MLP whose ranks have these `seeds`.

    Args:
        run: teacher and data are drawn from it.
    """
    model = mlp_of_ranks(seeds)
    right = teacher(run)
    _imitate(model, right, steps, run)
    x = torch.randn(4096, INPUTS, generator=torch.Generator().manual_seed(20_000 + run))
    with torch.no_grad():
        return F.mse_loss(model(x), right(x)).item()


def _imitate(model: nn.Module, right: nn.Module, steps: int, seed: int) -> None:
    """Train `model` with Adam to return what `right` does."""
    rng = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        x = torch.randn(128, INPUTS, generator=rng)
        optimizer.zero_grad()
        F.mse_loss(model(x), right(x)).backward()
        optimizer.step()
