"""Probe of exercise saved_bytes of unit 06."""

import torch
from torch import nn

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_word


@exercise(given_modules_only=True)
def saved_bytes(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Bytes that autograd keeps for the backward pass of a module."""
    n = 16 + seed % 7
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, n, generator=rng).to(device).requires_grad_()
    empty = nn.Module()
    linear = nn.Linear(n, n, device=device)
    yield "returns a whole number", type_word(answer(lambda: x * x.exp(), empty))
    yield "exp keeps its result", answer(lambda: x.exp(), empty)
    yield "a sum keeps nothing", answer(lambda: x + x, empty)
    yield "what two operations keep counts once", answer(lambda: x.exp() + x * x, empty)
    yield "a view counts with its whole storage, once", answer(lambda: x[:, :3] * x[:, 3:6], empty)
    of_linear = answer(lambda: linear(x), linear)
    yield "a linear map keeps its input; its parameters do not count", of_linear
    yield "parameters of another module count", answer(lambda: linear(x), empty)
    norm = nn.BatchNorm1d(n, device=device).eval()
    yield "nor do buffers of the module", answer(lambda: norm(x), norm)
    # malloc puts the first few that are freed aside: of 99, some address comes again
    freed = answer(lambda: [(x * 2).sin().sum().item() for _ in range(99)], empty)
    yield "what is freed before the call ends counts, too", tried(freed >= 99 * x.nbytes, n)
    yield "float64 takes twice the bytes", answer(lambda: x.double().sin(), empty)
    state = [float(norm.running_var.sum()), linear.weight.detach().clone()]
    yield "the modules stay as they were", state
    yield "without gradients nothing is kept", answer(lambda: x.detach().exp(), empty)
    yield from _the_call(answer, x)


def _the_call(answer: Answer, x: torch.Tensor) -> Facts:
    """How often the call is made, and what it leaves."""
    calls = []

    def square() -> torch.Tensor:
        calls.append(1)
        return x * x

    answer(square, nn.Module())
    yield "the call is made once", len(calls)
    holder = nn.Module()
    holder.x = nn.Parameter(x.detach().clone())
    results = []
    answer(lambda: results.append((holder.x * holder.x).sum()), holder)
    results[0].backward()
    yield "backward still works afterwards", holder.x.grad
