"""The small GPT of unit 02: a model of equal blocks, a batch of random tokens, a training step.

Its gradients are spread evenly over its blocks, so buckets and overlap can matter. The model is
the transformer of unit 05.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.parallel.timing import sgd_step
from course.training.ragged_transformer import RaggedTransformer

VOCABULARY = 256
DIM = 128
BLOCKS = 8
COLUMNS = 64  # tokens per sequence that are predicted


def small_gpt() -> RaggedTransformer:
    """A GPT of BLOCKS equal blocks, with the same weights in each call."""
    torch.manual_seed(0)
    return RaggedTransformer(VOCABULARY, DIM, BLOCKS)


def random_tokens(rows: int, seed: int = 0) -> Tensor:
    """(rows, COLUMNS + 1): int64, sequences of random tokens."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (rows, COLUMNS + 1), generator=rng)


def next_token_loss(model: nn.Module, tokens: Tensor) -> Tensor:
    """The mean cross entropy of the next token, a scalar with a graph.

    Args:
        model: a small_gpt, or a wrapper of one.
        tokens: int64 (rows, columns + 1), on the model's device.
    """
    inputs = tokens[:, :-1]
    scores = model(inputs, torch.arange(inputs.shape[1], device=tokens.device))
    return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


def gpt_step(model: nn.Module, tokens: Tensor) -> Callable[[], None]:
    """A function without arguments that takes one step of SGD with `model`; see `sgd_step`."""
    return sgd_step(model, tokens, next_token_loss)
