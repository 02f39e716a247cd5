"""Train small transformers whose learning rate warms up, or not: *schedule -> losses by seed*.

The text comes from a table: two tokens decide how likely each next one is. The trainings of one
call differ in their seeds. Their weights are stacked, and one Adam trains all of them: it treats
every number for itself, so no run touches another, and six cost little more than two.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from course.training.ragged_transformer import Block, PostNormBlock, RaggedTransformer

Schedule = Callable[[int], float]  # step, from 0 -> learning rate

VOCABULARY = 8
COLUMNS = 16  # tokens per sequence that are predicted
SHARPNESS = 3.0  # deviation of the scores whose softmax is the table; 0 would be pure chance
DIM = 32
BATCH = 8  # sequences
BETA_OF_MEAN = 0.9  # of torch's Adam
LAST_STEPS = 20  # the loss at the end is their mean


@dataclass(frozen=True)
class Text:
    """Token sequences, int64 (rows, COLUMNS + 1), and what a model of them could reach.

    `constant` is the loss, in nats per token, of a model that knows how frequent each token is, and
    nothing else; `table` that of one that knows the table.
    """

    tokens: Tensor
    constant: float
    table: float


def text_of_pairs(rows: int, device: torch.device | str = "cpu") -> Text:
    """The same Text at every call: the next token depends on the last two."""
    rng = torch.Generator().manual_seed(1234)
    table = (SHARPNESS * torch.randn(VOCABULARY**2, VOCABULARY, generator=rng)).softmax(-1)
    tokens = torch.randint(VOCABULARY, (rows, COLUMNS + 1), generator=rng)
    surprise = rows * math.log(VOCABULARY)  # of the first token that is predicted: it is uniform
    for column in range(2, COLUMNS + 1):
        chances = table[tokens[:, column - 2] * VOCABULARY + tokens[:, column - 1]]
        chosen = torch.multinomial(chances, 1, generator=rng)
        tokens[:, column] = chosen[:, 0]
        surprise -= chances.gather(1, chosen).log().sum().item()
    predicted = tokens[:, 1:].flatten()
    frequency = torch.bincount(predicted, minlength=VOCABULARY) / len(predicted)
    constant = -torch.xlogy(frequency, frequency).sum().item()
    return Text(tokens.to(device), constant, surprise / len(predicted))


def train_seeds(
    text: Text,
    schedule: Schedule,
    steps: int,
    seeds: int,
    *,
    layers: int,
    post_norm: bool = True,
    new_mean_at: int | None = None,
    corrects_mean: bool = True,
) -> Tensor:
    """(steps, seeds): the training losses of transformers that Adam trains, one per seed.

    Args:
        schedule: step, from 0 -> learning rate of that step.
        post_norm: whether blocks normalise after each addition, as in Vaswani et al. 2017, or
            before attention and MLP, as in GPT-2.
        new_mean_at: step before which Adam forgets its mean gradient, and keeps its mean square.
        corrects_mean: whether Adam's correction for the start of the mean begins again there, so
            that the next steps have full size; else the first of them are short.
    """
    models = _models(seeds, layers, PostNormBlock if post_norm else Block, text.tokens.device)
    weights, _ = stack_module_state(models)
    columns = torch.arange(COLUMNS, device=text.tokens.device)

    def loss_of(weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
        scores = functional_call(models[0], weights, (tokens[:, :-1], columns))
        return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())

    losses_of = vmap(loss_of)
    optimizer = torch.optim.Adam(weights.values())
    rng = torch.Generator().manual_seed(0)
    losses = []
    for step in range(steps):
        lr = schedule(step)
        if new_mean_at is not None and step >= new_mean_at:
            if step == new_mean_at:
                _forget_mean(optimizer)
            lr *= _start(step)  # takes back Adam's own correction
            if corrects_mean:
                lr /= _start(step - new_mean_at)
        optimizer.param_groups[0]["lr"] = lr
        drawn = torch.randint(len(text.tokens), (seeds, BATCH), generator=rng)
        found = losses_of(weights, text.tokens[drawn])
        optimizer.zero_grad()
        found.sum().backward()
        optimizer.step()
        losses.append(found.detach())
    return torch.stack(losses).cpu()


def _forget_mean(optimizer):
    for state in optimizer.state.values():
        state["exp_avg"].zero_()


def _start(step):
    """What Adam divides its mean gradient by at `step`, from 0."""
    return 1 - BETA_OF_MEAN ** (step + 1)


def at_end(losses: Tensor) -> list[float]:
    """The loss of each seed at the end, the mean of its last steps."""
    return losses[-LAST_STEPS:].mean(0).tolist()


def _models(seeds, layers, block, device):
    """A model per seed, on `device`."""
    models = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = RaggedTransformer(VOCABULARY, DIM, layers, block=block)
        for of_model in model.blocks:
            of_model.attend = plain_attention
        models.append(model.to(device))
    return models


def plain_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = True) -> Tensor:
    """Causal attention, as `F.scaled_dot_product_attention` computes it, in steps that vmap stacks.

    Args:
        q, k, v: (..., columns, dim of a head).
        is_causal: always True; there, so that both are called alike.
    """
    n = q.shape[-2]
    future = torch.full((n, n), -math.inf, device=q.device).triu(1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (scores + future).softmax(-1) @ v
