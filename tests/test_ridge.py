"""Problems and counted passes of the comparison of methods of unit 04."""

import pytest
import torch

from course.training import ridge


@pytest.fixture(scope="module")
def problem():
    return ridge.ridge(seed=3, rows=400, columns=8, strength=0.01)


def test_the_best_weights_have_no_gradient_and_no_excess(problem):
    x, y = problem.x.double(), problem.y.double()
    gradient = x.T @ (x @ problem.best - y) / len(y) + problem.strength * problem.best
    assert gradient.abs().max() < 1e-8
    assert problem.excess(problem.best) == pytest.approx(0, abs=1e-12)
    assert problem.excess(torch.zeros(8)) == pytest.approx(1)


def test_the_excess_is_that_of_the_objective(problem):
    x, y, w = problem.x.double(), problem.y.double(), torch.ones(8).double()

    def objective(w):
        return (x @ w - y).square().mean() / 2 + problem.strength * w.square().sum() / 2

    least, start = objective(problem.best), objective(torch.zeros(8).double())
    assert problem.excess(w) == pytest.approx(((objective(w) - least) / (start - least)).item())


def test_strength_bounds_the_condition(problem):
    loose = ridge.ridge(seed=3, rows=400, columns=8, strength=0.0)
    assert problem.condition < 2 / 0.01 < loose.condition


def test_sgd_comes_nearer_with_more_passes(problem):
    train = ridge.last_of_sgd(problem, lr=0.1, batch_size=10)
    assert problem.excess(train(8)) < problem.excess(train(1)) < 1


@pytest.mark.parametrize("needed", [1, 2, 3, 7, 31, ridge.MOST_PASSES])
def test_the_fewest_passes_are_found(problem, needed):
    def train(passes):
        return problem.best.float() if passes >= needed else torch.zeros(8)

    assert ridge.passes_of_length(problem, train, 1e-3) == needed


def test_passes_of_a_stream_are_counted_per_round(problem):
    zero, best = torch.zeros(8), problem.best.float()
    assert ridge.passes_of_stream(problem, iter([zero, zero, best]), 2, 1e-3) == 6
    assert ridge.passes_of_stream(problem, iter([zero, zero * float("nan")]), 2, 1e-3) == ridge.MOST_PASSES
