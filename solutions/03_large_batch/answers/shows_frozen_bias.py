"""Known mistakes of exercise shows_frozen_bias, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def _moves(optimizer_class, bias, steps=10, gradient=torch.ones_like):
    bias = torch.nn.Parameter(bias)
    start = bias.detach().clone()
    optimizer = optimizer_class([bias], lr=0.1)
    for _ in range(steps):
        bias.grad = gradient(bias.detach())
        optimizer.step()
    return (bias.detach() - start).abs().max().item()


@mistake(
    "shows_frozen_bias",
    "The bias of the experiment does not start at zero, so the fault cannot show. Start it at zero.",
)
def starts_at_one(optimizer_class):
    return _moves(optimizer_class, torch.ones(3)) == 0


@mistake(
    "shows_frozen_bias",
    "The gradient is zero at the start (a square is flat at 0), so every optimizer looks frozen. Take another loss.",
)
def flat_loss(optimizer_class):
    return _moves(optimizer_class, torch.zeros(3), gradient=lambda bias: 2 * bias) == 0


@mistake("shows_frozen_bias", "One step is too few: an optimizer that begins slowly looks frozen. Make ten steps.")
def one_step(optimizer_class):
    return _moves(optimizer_class, torch.zeros(3), steps=1) == 0


@mistake(
    "shows_frozen_bias",
    "A small movement is counted as none. Compare with exactly zero: a frozen bias does not move at all.",
)
def small_is_none(optimizer_class):
    return _moves(optimizer_class, torch.zeros(3)) < 1e-3


@mistake("shows_frozen_bias", "The answer is the wrong way round: True means that the bias never moves.")
def wrong_way_round(optimizer_class):
    return _moves(optimizer_class, torch.zeros(3)) > 0


@mistake(
    "shows_frozen_bias", "The experiment moves a matrix. A bias has one dimension, and optimizers treat it differently."
)
def a_matrix(optimizer_class):
    return _moves(optimizer_class, torch.zeros(3, 2)) == 0


@alternative("shows_frozen_bias")
def with_a_model(optimizer_class):
    model = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(model.bias)
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.zeros(4, 3)).sum().backward()
        optimizer.step()
    return torch.equal(model.bias, torch.zeros(2))


@alternative("shows_frozen_bias")
def stop_when_it_moves(optimizer_class):
    bias = torch.zeros(5, requires_grad=True)
    optimizer = optimizer_class([bias], lr=0.01)
    for _ in range(10):
        optimizer.zero_grad()
        (bias * torch.arange(1.0, 6.0)).sum().backward()
        optimizer.step()
        if bias.detach().abs().sum() > 0:
            return False
    return True
