"""Probe of exercise fused_gelu."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import kind


@exercise(forbids=("torch.nn.functional.gelu", "torch.nn.GELU", "torch._C._nn.gelu"))
def fused_gelu(answer: Answer, device: torch.device, seed: int) -> Facts:
    """GELU from its definition."""
    rng = torch.Generator().manual_seed(seed)
    drawn = torch.randn(4 + seed % 3, 5, generator=rng, dtype=torch.float64)
    x = (
        (2 * drawn).float().to(device)
    )  # drawn as float32, it would end in other digits on other CPUs
    yield "keeps shape and dtype", kind(answer(x))
    yield "float32 values", answer(x)
    one = torch.ones(1, dtype=torch.float64, device=device)
    yield "float64 stays float64", kind(answer(one))
    digits = f"{answer(one).item():.13f}"
    yield "float64 at 1, thirteen digits: are the constants and all steps exact?", digits
    points = torch.tensor([-3.0, -1.0, 0.0, 0.5, 1.0, 3.0], dtype=torch.float64, device=device)
    yield "float64 values at -3, -1, 0, 0.5, 1, 3", answer(points)
    far = torch.tensor([40.0, -40.0], device=device)
    yield "far to the right x itself, far to the left 0", answer(far)
    leaf = x.double().requires_grad_()
    answer(leaf).sum().backward()
    yield "the gradient", leaf.grad
    yield "bfloat16 stays bfloat16", kind(answer(x.bfloat16()))
