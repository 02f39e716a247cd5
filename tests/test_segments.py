"""The stack of unit 06, part 4: its bytes and gradients with and without a checkpoint."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from course.notebook.solutions import load_solutions
from course.training.segments import Stack, gradients, peak_bytes, relative_difference

pytestmark = pytest.mark.check


def checkpoint(block, *inputs):
    return torch_checkpoint(block, *inputs, use_reentrant=True)


@pytest.fixture
def x():
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(1)).requires_grad_()


@pytest.mark.parametrize("half", [False, True])
def test_a_checkpoint_leaves_the_gradients_as_they_are(x, half):
    model = Stack(4, 16, segments=2)
    plain = gradients(model, x, seed=3, half=half)
    torch.testing.assert_close(gradients(model, x, checkpoint, seed=3, half=half), plain)
    assert not torch.equal(gradients(model, x, seed=4, half=half), plain)


def test_the_peak_is_that_of_the_formula(x):
    saved_bytes = load_solutions("06_faster_training").saved_bytes
    block = peak_bytes(Stack(1, 16, 1), x, checkpoint, saved_bytes)
    input_bytes = x.numel() * 4
    for k in (1, 2, 4):
        found = peak_bytes(Stack(4, 16, k), x, checkpoint, saved_bytes)
        assert found == pytest.approx((k - 1) * input_bytes + 4 // k * block, rel=0.15)


def test_a_relative_difference_is_in_norms_of_the_second_vector():
    truth = torch.tensor([3.0, 4.0])
    assert relative_difference(truth, truth) == 0
    assert relative_difference(torch.tensor([3.0, 5.0]), truth) == pytest.approx(0.2)
