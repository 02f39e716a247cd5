"""Probe of exercise rank_loss."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.cpus import same_on_every_cpu
from course.engine.probing.laws import tried
from course.training.ragged_transformer import RaggedTransformer, padded_losses

VOCABULARY = 11


class _Calls(NamedTuple):
    """What came of the answer on each rank."""

    losses: list[Tensor]
    gradients: list[Tensor]  # of the first weights
    texts: list[int]  # rows of the model's inputs
    times: list[int]  # that the model was called


@exercise()
def rank_loss(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The losses of ranks that take turns in this process, and the gradient that DDP would give."""
    model = _model(seed).to(device)
    batch = _texts(seed, 8, device)
    one = _on_ranks(answer, model, batch, 1)
    yield "a tensor of shape ()", [loss.shape for loss in one.losses]
    yield "the only rank: the mean over all tokens that are predicted", one.losses
    two = _on_ranks(answer, model, batch, 2)
    yield "texts that each of 2 ranks takes", tried(two.texts, list(map(len, batch)))
    yield "calls of the model on each rank", two.times
    yield "2 ranks: the mean of their losses is that of one process", _mean(two.losses)
    yield "2 ranks: so is the mean of their gradients", _mean(two.gradients)
    for world_size, n_texts in ((4, 8), (3, 7)):
        batch = _texts(seed + world_size, n_texts, device)
        found = _on_ranks(answer, model, batch, world_size)
        named = f"{n_texts} texts on {world_size} ranks"
        yield f"{named}: texts of each, sorted", sorted(found.texts)
        yield f"{named}: the mean of their losses", _mean(found.losses)
        yield f"{named}: the mean of their gradients", _mean(found.gradients)
    losses, is_predicted = padded_losses(model, batch)
    whole = losses.sum() / is_predicted.sum()
    yield "and that is the loss of one process", bool((_mean(found.losses) - whole).abs() < 1e-9)


def _model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = RaggedTransformer(VOCABULARY, dim=8, layers=1, heads=2).double()
    same_on_every_cpu(model)
    return model


def _texts(seed: int, n: int, device: torch.device) -> list[Tensor]:
    """Texts of very different lengths; the long ones come first."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 6, (n,), generator=rng)
    lengths[: n // 3] += 14
    texts = []
    for length in lengths.tolist():
        texts.append(torch.randint(VOCABULARY, (length,), generator=rng).to(device))
    return texts


def _on_ranks(answer: Answer, model: nn.Module, batch: Sequence[Tensor], world_size: int) -> _Calls:
    """What the answer gives on each of `world_size` ranks, one after the other."""
    rows = []
    handle = model.register_forward_pre_hook(lambda module, inputs: rows.append(len(inputs[0])))
    found = _Calls([], [], [], [])
    weights = next(model.parameters())
    try:
        for rank in range(world_size):
            rows.clear()
            loss = answer(model, list(batch), rank, world_size)
            found.losses.append(loss)
            found.times.append(len(rows))
            found.texts.append(sum(rows))
            found.gradients.append(torch.autograd.grad(loss, weights)[0])
    finally:
        handle.remove()
    return found


def _mean(of_ranks: Sequence[Tensor]) -> Tensor:
    """The mean over ranks, which DistributedDataParallel forms."""
    return torch.stack([value.detach() for value in of_ranks]).mean(0)
