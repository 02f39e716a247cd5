"""Known mistakes of exercise cleared, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake

CASES = (("zero", torch.zeros), ("none", lambda n: None))


def _experiment(make, start=1.0, steps=1, compare=torch.equal):
    """{"zero": ..., "none": ...} from parameters at `start`, after `steps` ordinary steps."""
    moved = {}
    for case, gradient in CASES:
        parameter = torch.nn.Parameter(torch.full((1,), start))
        optimizer = make([parameter])
        for _ in range(steps):
            parameter.grad = torch.ones(1)
            optimizer.step()
        before = parameter.detach().clone()
        parameter.grad = gradient(1)
        optimizer.step()
        moved[case] = not compare(parameter.detach(), before)
    return moved


@mistake(
    "cleared",
    "There is no ordinary step before: momentum is still empty then, and seems to do nothing. Make one first.",
)
def no_step_before(make):
    return _experiment(make, steps=0)


@mistake("cleared", "What is compared is the value before the ordinary step. Note the value after it.")
def compared_with_the_start(make):
    moved = {}
    for case, gradient in CASES:
        parameter = torch.nn.Parameter(torch.ones(1))
        optimizer, before = make([parameter]), torch.ones(1)
        parameter.grad = torch.ones(1)
        optimizer.step()
        parameter.grad = gradient(1)
        optimizer.step()
        moved[case] = not torch.equal(parameter.detach(), before)
    return moved


@mistake("cleared", "`before` is the parameter itself, which changes with it. Take a clone of its value.")
def before_is_no_copy(make):
    moved = {}
    for case, gradient in CASES:
        parameter = torch.nn.Parameter(torch.ones(1))
        optimizer = make([parameter])
        parameter.grad = torch.ones(1)
        optimizer.step()
        before = parameter.detach()
        parameter.grad = gradient(1)
        optimizer.step()
        moved[case] = not torch.equal(parameter.detach(), before)
    return moved


@mistake("cleared", "True and False are swapped: True is for a parameter that moves.")
def swapped(make):
    return {case: not moves for case, moves in _experiment(make).items()}


@mistake("cleared", "The two cases are swapped: 'zero' is the gradient of zeros.")
def cases_swapped(make):
    found = _experiment(make)
    return {"zero": found["none"], "none": found["zero"]}


@mistake("cleared", "Both cases use one optimizer. Give each an optimizer and a parameter of its own.")
def one_optimizer_for_both(make):
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = make([parameter])
    parameter.grad = torch.ones(1)
    optimizer.step()
    moved = {}
    for case, gradient in CASES:
        before = parameter.detach().clone()
        parameter.grad = gradient(1)
        optimizer.step()
        moved[case] = not torch.equal(parameter.detach(), before)
    return moved


@mistake("cleared", "The gradient is never set to None: zero_grad(set_to_none=False) leaves zeros.")
def zeros_in_both(make):
    found = _experiment(make)
    return {"zero": found["zero"], "none": found["zero"]}


@alternative("cleared")
def by_backward_and_zero_grad(make):
    moved = {}
    for case in ("zero", "none"):
        w = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
        optimizer = make([w])
        (w * w).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=case == "none")
        before = w.tolist()
        optimizer.step()
        moved[case] = w.tolist() != before
    return moved


@alternative("cleared")
def by_distance(make):
    def moves(gradient):
        p = torch.nn.Parameter(torch.full((3,), 0.5))
        optimizer = make([p])
        for p.grad in (torch.full((3,), 0.25), gradient):
            before = p.data.clone()
            optimizer.step()
        return (p.data - before).abs().max().item() > 0

    return {"zero": moves(torch.zeros(3)), "none": moves(None)}
