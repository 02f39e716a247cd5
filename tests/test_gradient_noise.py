"""What unit 03 measures around a training: the optimizer's units, saved tensors, the fitted curve."""

import math

import pytest
import torch
from torch.nn import functional as F

from course.measure.comparison import Interval
from course.measure.gradient_noise import gradient_norm, in_units_of
from course.measure.saved_tensors import peak_bytes_saved
from course.plots import large_batch as plots
from course.training.time_to_target import Cost, cost, fastest_batch, fitted, metered_step


def after_updates(make, updates=3):
    """(weights, optimizer) after some updates with drawn gradients, and one gradient more."""
    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.randn(5))
    unused = torch.nn.Parameter(torch.randn(2))
    optimizer = make([w, unused])
    for _ in range(updates):
        w.grad = torch.randn(5)
        optimizer.step()
    w.grad = torch.randn(5)
    return w, optimizer


def test_the_units_of_sgd_are_plain():
    w, optimizer = after_updates(lambda params: torch.optim.SGD(params, lr=0.1))
    torch.testing.assert_close(in_units_of(optimizer), [w.grad])
    torch.testing.assert_close(gradient_norm(optimizer), w.grad.norm())


def test_adam_without_momentum_moves_by_the_gradient_in_its_units():
    """On the weights w * v ** (1/4), whose gradient is g / v ** (1/4), Adam is gradient descent."""
    w, optimizer = after_updates(lambda params: torch.optim.Adam(params, lr=1e-4, betas=(0.0, 0.999)))
    before = w.detach().clone()
    optimizer.step()
    v = optimizer.state[w]["exp_avg_sq"] / (1 - 0.999**4)
    moved = (before - w.detach()) * v**0.25 / 1e-4
    torch.testing.assert_close(moved, in_units_of(optimizer)[0], rtol=0.01, atol=0)


def test_a_coordinate_that_never_had_a_gradient_counts_nothing():
    w = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([w])
    for _ in range(2):
        w.grad = torch.tensor([1.0, 0.0])
        optimizer.step()
    assert gradient_norm(optimizer) == pytest.approx(1.0, rel=1e-3)


def test_bytes_kept_are_those_of_one_piece():
    w = torch.nn.Parameter(torch.randn(8, 8))
    x = torch.randn(16, 8)

    def in_pieces(rows):
        for part in x.split(rows):
            F.linear(part.clone(), w).square().sum().backward()

    # per row: the input of the product, and its output, which the square keeps
    assert peak_bytes_saved(lambda: in_pieces(16), [w]) == 16 * 8 * 4 * 2
    assert peak_bytes_saved(lambda: in_pieces(4), [w]) == 4 * 8 * 4 * 2


def test_the_curve_of_updates_is_found_again():
    need = fitted({batch: 12 * (1 + 5000 / batch) for batch in (500, 2000, 8000, 32000)})
    assert need.fewest == pytest.approx(12, rel=0.03) and need.critical == pytest.approx(5000, rel=0.03)
    assert math.isnan(fitted({500: 10.0, 2000: math.inf, 8000: 5.0}).critical)


def test_the_cost_of_an_update_is_that_of_the_smallest_and_the_largest_batch():
    assert cost({100: 3.0, 200: 9.0, 500: 7.0}) == pytest.approx(Cost(2.0, 0.01))
    assert cost({100: 1.0, 200: 2.5}).per_update == 0


@pytest.mark.parametrize("largest", [1.0, 2.0])
def test_where_the_largest_batch_takes_no_longer_a_sample_costs_nothing(largest):
    """A GPU is not full at smoke scale: then the formula has no minimum, and no root of a negative number."""
    found = cost({100: 2.0, 500: largest})
    assert found == Cost((2 + largest) / 2, 0.0) and found.samples == math.inf
    assert found.fastest(1000.0) == math.inf and found.fastest(-5.0) == 0
    made = [
        plots.time_to_target({100: [1.0, 2.0], 500: [2.0]}, lambda batch: 1.0, found.fastest(1000.0), ""),
        plots.throughput([100, 500], [Interval(5.0, 4.0, 6.0), Interval(9.0, 8.0, 10.0)], model=found),
    ]
    for figure in made:
        figure.canvas.draw()


def test_the_fastest_batch_is_the_root_of_both_costs():
    assert Cost(2.0, 0.01).fastest(800.0) == 400
    assert Cost(0.0, 0.01).fastest(800.0) == 0


def test_a_batch_is_fastest_only_if_all_others_are_slower_with_the_seeds():
    clear = {10: [2.0, 2.1, 2.2, 2.0, 2.1, 2.2], 20: [1.0, 1.1, 1.2, 1.0, 1.1, 1.0]}
    assert fastest_batch(clear) == 20
    assert fastest_batch(clear | {40: [1.2, 0.9, 1.3, 0.8, 1.4, 1.0]}) is None
    assert fastest_batch({batch: own[:5] for batch, own in clear.items()}) is None  # too few seeds
    assert fastest_batch(clear | {40: 6 * [math.inf]}) == 20


def test_pieces_make_the_update_of_the_batch_and_meters_are_called_after_each():
    calls = []

    class Counts:
        def after_backward(self):
            calls.append(1)

    class Dot(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.table = torch.nn.Embedding(4, 1)

        def forward(self, users, items):
            return self.table(users)[:, 0] + items

    users, items, labels = torch.tensor([0, 1, 2, 3]), torch.zeros(4), torch.tensor([0.0, 1.0, 1.0, 0.0])
    step = metered_step(2, lambda optimizer: [Counts()], [])
    models = [Dot(), Dot()]
    optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for model in models]
    loss = step(models[0], users, items, labels, optimizers[0])
    whole = F.binary_cross_entropy_with_logits(models[1](users, items), labels)
    whole.backward()
    optimizers[1].step()
    torch.testing.assert_close(loss, whole.detach())
    torch.testing.assert_close(models[0].table.weight, models[1].table.weight)
    step(models[0], users[:3], items[:3], labels[:3], optimizers[0])  # a last, smaller batch
    assert len(calls) == 2
