"""Known mistakes of exercise shows_frozen_bias, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "starts_at_one": (
        "The bias of the experiment does not start at zero, so the fault cannot show. Start it at zero.",
        ("zeros", "ones"),
        ("not bias.any()", "(bias == 1)"),
    ),
    "flat_loss": (
        "The gradient is 0 at the start (a square is flat at 0), so every optimizer looks frozen. Take another loss.",
        ("torch.ones_like(bias)", "2 * bias.detach()"),
    ),
    "one_step": (
        "One step is too few: an optimizer that begins slowly looks frozen. Make ten steps.",
        ("range(10)", "range(1)"),
    ),
    "small_is_none": (
        "A small movement is counted as none, as allclose does below 1e-8. Compare with exactly "
        "zero: a frozen bias does not move at all.",
        ("not bias.any().item()", "torch.allclose(bias, torch.zeros(1))"),
    ),
    "wrong_way_round": (
        "The answer is the wrong way round: True means that the bias never moves.",
        ("not bias", "bias"),
    ),
    "a_matrix": (
        "The experiment moves a matrix. A bias has one dimension, and optimizers treat it differently.",
        ("zeros(1)", "zeros(3, 2)"),
    ),
    "double_precision": (
        "The bias is float64. Models train in float32, and the task asks for it: leave out dtype.",
        ("zeros(1)", "zeros(1, dtype=torch.float64)"),
    ),
    "more_steps": (
        "There are more than ten steps, so what begins only then counts as moving. Make ten.",
        ("range(10)", "range(20)"),
    ),
}


@alternative
def with_a_model(optimizer_class):
    model = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(model.bias)
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.zeros(4, 3)).sum().backward()
        optimizer.step()
    return torch.equal(model.bias, torch.zeros(2))


@alternative
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
