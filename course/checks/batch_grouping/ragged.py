"""Ragged batches and models that several probes of this unit use."""

import torch

from course.engine.probing.counting import runs_at_most
from course.engine.probing.tensors import NewTensors
from course.training.token_models import TokenPool


def batch(rng, lengths, vocabulary=8, device="cpu"):
    """(values, lengths): a flat ragged batch with sequences of these lengths; no token is 0."""
    lengths = torch.as_tensor(lengths)
    values = torch.randint(1, vocabulary, (int(lengths.sum()),), generator=rng)
    return values.to(device), lengths.to(device)


def some_lengths(rng, n=7, longest=9):
    """int64 (n,): lengths from 1 to `longest`, the longest one among them, not at either end."""
    lengths = torch.randint(1, longest, (n,), generator=rng)
    lengths[n // 2] = longest
    return lengths


def pool_model(seed, device, emb_dim=6, hidden_dim=5):
    """A small TokenPool; every seed gives other weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 1)
        return TokenPool(8, emb_dim, hidden_dim).to(device)


def loops_over_sequences(answer, n=4000):
    """True if `answer(values, lengths)` runs so many lines of Python on `n` sequences that it must
    loop over them.
    """
    values, lengths = batch(torch.Generator().manual_seed(0), [1, 2, 3, 2] * (n // 4))
    return not runs_at_most(n // 2, lambda: answer(values, lengths))


def operations(answer, lengths):
    """How many operations of torch `answer(values, lengths)` takes for sequences of these
    lengths.
    """
    values, lengths = batch(torch.Generator().manual_seed(0), lengths)
    with NewTensors() as counted:
        answer(values, lengths)
    return counted.calls
