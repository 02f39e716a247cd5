"""Trainings on raw and normalised pixels: what counts as their loss, and which learning rate wins."""

import math

import pytest
import torch

from course.training import input_scale

pytestmark = pytest.mark.check
CPU = torch.device("cpu")


def _data():
    """40 drawn images, pixels from 0 to 255, and their labels."""
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (40, 1, 28, 28), generator=rng).float()
    return pixels, torch.randint(10, (40,), generator=rng)


def test_the_last_fifth_says_where_a_training_ended():
    runs = torch.tensor([[9.0] * 8 + [1.0, 3.0], [9.0] * 9 + [math.inf]])
    assert input_scale.last_losses(runs).tolist() == [2.0, math.inf]


def test_a_training_that_diverged_has_infinite_losses():
    pixels, labels = _data()
    losses = input_scale.losses(pixels, labels, None, 1e6, steps=4, seed=0, device=CPU)
    assert losses.shape == (4,) and losses[-1] == math.inf and not losses.isnan().any()


def test_the_best_learning_rate_ends_with_the_least_loss():
    pixels, labels = _data()
    lr, runs = input_scale.best_losses(pixels / 255, labels, "batch", (1e6, 0.01), steps=3, seeds=2, device=CPU)
    assert lr == 0.01 and runs.shape == (2, 3)
    again = input_scale.losses(pixels / 255, labels, "batch", 0.01, steps=3, seed=1, device=CPU)
    torch.testing.assert_close(runs[1], again)
