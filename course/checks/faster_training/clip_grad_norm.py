"""Probe of exercise clip_grad_norm."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import Operations, form_or_type


def _grads(params: list[torch.Tensor]) -> list[torch.Tensor | None]:
    return [param.grad for param in params]


@exercise(changes_inputs=True, forbids=("torch.nn.utils",), returns_no_number=True)
def clip_grad_norm(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Gradients scaled to a joint norm."""
    rng = torch.Generator().manual_seed(seed)

    def params(
        size: float = 1.0, shapes: tuple[tuple, ...] = ((3 + seed % 4, 2), (5,), ())
    ) -> list[torch.Tensor]:
        """Parameters of zeros with drawn gradients."""
        made = [torch.zeros(shape, device=device, requires_grad=True) for shape in shapes]
        for param in made:
            param.grad = (size * torch.randn(param.shape, generator=rng)).to(device)
        return made

    yield from _long_gradients(answer, params(size=4.0))
    short = params(size=0.1)
    unlimited = params(size=4.0)
    norm = answer(short, 100.0)
    answer(unlimited, float("inf"))
    yield "shorter gradients stay as they are", _grads(short)
    unchanged = [norm, *_grads(unlimited)]
    yield "and their norm is returned; a max_norm of infinity changes nothing", unchanged
    some = params(size=3.0)
    some[1].grad = None
    norm = answer(some, 0.5)
    yield "a parameter without a gradient is skipped", [norm, *_grads(some)]
    none = params(size=0.0)
    norm = answer(none, 1.0)
    yield "gradients of zero stay zero", [norm, *_grads(none)]
    one = params(size=3.0, shapes=((4, 3),))
    yield "a single parameter", [answer(one, 2.0), one[0].grad]
    waiting = params(size=3.0)
    with Operations() as watched:
        answer(waiting, 1.0)
    yield "how often it waits for the device", tried(watched.waits, waiting[0].shape)


def _long_gradients(answer: Answer, params: list[torch.Tensor]) -> Facts:
    """Gradients that are longer than max_norm."""
    objects = _grads(params)
    before = [grad.clone() for grad in objects]
    norm = answer(params, 1.0)
    yield "returns a scalar tensor", form_or_type(norm)
    yield "returns the joint norm that the gradients had", norm
    joint_norm = torch.cat([param.grad.flatten() for param in params]).norm()
    yield "long gradients are scaled to the joint norm max_norm", joint_norm
    ratios = [(p.grad / old).flatten() for p, old in zip(params, before, strict=True)]
    yield "by one factor for all", torch.cat(ratios)
    yield "the parameters themselves stay", [param.detach() for param in params]
    yield "in place: the tensors that hold the gradients are written", objects
