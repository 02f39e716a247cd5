"""Probe of exercise sgd_step."""

import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise(changes_inputs=True)
def sgd_step(answer: Answer, device: torch.device, seed: int) -> Facts:
    """SGD with momentum and weight decay, in place."""
    rng = torch.Generator().manual_seed(seed)
    shapes = [(3 + seed % 3, 4), (5,), (), (2, 1, 3)]

    def tensors(dtype=torch.float32):
        return [
            torch.randn(shape, generator=rng, dtype=torch.float64).to(device, dtype)
            for shape in shapes
        ]

    def after(lr, **options):
        params, grads, velocities = tensors(), tensors(), tensors()
        answer(list(params), list(grads), list(velocities), lr, **options)
        return params, velocities

    params, grads, velocities = tensors(), tensors(), [v.zero_() for v in tensors()]
    start = [p.clone() for p in params]
    kept = [g.clone() for g in grads]
    result = answer(
        list(params), list(grads), list(velocities), 0.1, momentum=0.9, weight_decay=0.25
    )
    changed = all(not torch.equal(p, s) for p, s in zip(params, start, strict=True))
    yield "the parameter tensors themselves change", changed
    yield "returns nothing: the tensors are the result", type(result).__name__
    yield (
        "the gradients stay as they were",
        all(torch.equal(g, k) for g, k in zip(grads, kept, strict=True)),
    )
    params, grads, velocities = [p.requires_grad_() for p in tensors()], tensors(), tensors()
    answer(list(params), list(grads), list(velocities), 0.1, momentum=0.9, weight_decay=0.25)
    leaves = all(p.is_leaf and p.requires_grad for p in params)
    yield "parameters that require a gradient are moved too, and stay leaves", leaves
    yield "the velocities carry no autograd history", not any(v.requires_grad for v in velocities)
    plain_sgd = after(0.2, momentum=0.0)
    yield "without momentum: the velocity is the gradient", plain_sgd[1]
    yield "without momentum: the parameters", plain_sgd[0]
    params, velocities = after(0.3, momentum=0.7)
    yield "with momentum 0.7: the velocities", velocities
    yield "with momentum 0.7: the parameters", params
    params, velocities = after(0.05, momentum=0.0, weight_decay=0.5)
    yield "with weight decay: the parameters", params
    yield "with weight decay: the velocities", velocities
    params, velocities = after(0.3)
    yield "by default momentum is 0.9 and there is no weight decay", params
    params, velocities = tensors(torch.float64), [v.zero_() for v in tensors(torch.float64)]
    for lr in (0.1, 0.1, 0.4, 0.05, 0.2):
        answer(
            list(params),
            tensors(torch.float64),
            list(velocities),
            lr,
            momentum=0.8,
            weight_decay=0.1,
        )
    yield "five steps in float64 with a learning rate that changes", params
    params = tensors()
    views = [p.view(-1) for p in params]
    answer(params, tensors(), tensors(), 0.1)
    yield "the memory of a parameter is written, not replaced", [v.view(-1) for v in views]
