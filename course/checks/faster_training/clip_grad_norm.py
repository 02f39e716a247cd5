"""Probe of exercise clip_grad_norm."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import Operations, form_or_type


@exercise(changes_inputs=True, forbids=("torch.nn.utils",), returns_no_number=True)
def clip_grad_norm(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Gradients scaled to a joint norm."""
    rng = torch.Generator().manual_seed(seed)

    def params(size=1.0, shapes=((3 + seed % 4, 2), (5,), ())):
        made = [torch.zeros(shape, device=device, requires_grad=True) for shape in shapes]
        for param in made:
            param.grad = (size * torch.randn(param.shape, generator=rng)).to(device)
        return made

    long = params(size=4.0)
    before, objects = [p.grad.clone() for p in long], [p.grad for p in long]
    norm = answer(long, 1.0)
    yield "returns a scalar tensor", form_or_type(norm)
    yield "returns the joint norm that the gradients had", norm
    yield (
        "long gradients are scaled to the joint norm max_norm",
        torch.cat([p.grad.flatten() for p in long]).norm(),
    )
    ratios = torch.cat([(p.grad / old).flatten() for p, old in zip(long, before, strict=True)])
    yield "by one factor for all", ratios
    yield "the parameters themselves stay", [p.detach() for p in long]
    yield "in place: the tensors that hold the gradients are written", objects
    short, unlimited = params(size=0.1), params(size=4.0)
    norm = answer(short, 100.0)
    answer(unlimited, float("inf"))
    yield "shorter gradients stay as they are", [p.grad for p in short]
    yield (
        "and their norm is returned; a max_norm of infinity changes nothing",
        [norm, *(p.grad for p in unlimited)],
    )
    some = params(size=3.0)
    some[1].grad = None
    norm = answer(some, 0.5)
    yield (
        "a parameter without a gradient is skipped",
        [norm, some[0].grad, some[1].grad, some[2].grad],
    )
    none = params(size=0.0)
    norm = answer(none, 1.0)
    yield "gradients of zero stay zero", [norm, *(p.grad for p in none)]
    one = params(size=3.0, shapes=((4, 3),))
    yield "a single parameter", [answer(one, 2.0), one[0].grad]
    waiting, watched = params(size=3.0), Operations()
    with watched:
        answer(waiting, 1.0)
    yield "how often it waits for the device", watched.waits
