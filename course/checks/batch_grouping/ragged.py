"""Ragged batches and models that several probes of this unit use."""

from collections.abc import Sequence

import torch

from course.engine.exercise import Answer
from course.engine.probing.counting import runs_at_most
from course.engine.probing.tensors import NewTensors
from course.training.token_models import TokenPool


def batch(
    rng: torch.Generator,
    lengths: Sequence[int] | torch.Tensor,
    vocabulary: int = 8,
    device: torch.device | str = "cpu",
) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, lengths): a flat ragged batch with sequences of these lengths; no token is 0."""
    lengths = torch.as_tensor(lengths)
    values = torch.randint(1, vocabulary, (int(lengths.sum()),), generator=rng)
    return values.to(device), lengths.to(device)


def some_lengths(rng: torch.Generator, n: int = 7, longest: int = 9) -> torch.Tensor:
    """int64 (n,): lengths from 1 to `longest`, the longest one among them, not at either end."""
    lengths = torch.randint(1, longest, (n,), generator=rng)
    lengths[n // 2] = longest
    return lengths


def pool_model(seed: int, device: torch.device, emb_dim: int = 6, hidden_dim: int = 5) -> TokenPool:
    """A small TokenPool; every seed gives other weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 1)
        return TokenPool(8, emb_dim, hidden_dim).to(device)


def loops_over_sequences(answer: Answer, n: int = 4000) -> bool:
    """True if `answer(values, lengths)` must loop over the sequences.

    It is given `n` of them, and loops if it runs more than n / 2 lines of Python.
    """
    values, lengths = batch(torch.Generator().manual_seed(0), [1, 2, 3, 2] * (n // 4))
    return not runs_at_most(n // 2, lambda: answer(values, lengths))


def operations(answer: Answer, lengths: Sequence[int]) -> int:
    """How many operations of torch `answer(values, lengths)` takes for sequences so long."""
    values, lengths = batch(torch.Generator().manual_seed(0), lengths)
    with NewTensors() as counted:
        answer(values, lengths)
    return counted.calls
