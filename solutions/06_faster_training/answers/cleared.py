"""Known mistakes of exercise cleared, and right answers in other styles."""

import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "no_step_before": (
        "There is no ordinary step before: momentum is still empty then, and seems to do nothing. Make one first.",
        ("        optimizer.step()\n        before", "        before"),
    ),
    "compared_with_the_start": (
        "What is compared is the value before the ordinary step. Note the value after it.",
        ("parameter.detach().clone()", "torch.ones(1)"),
    ),
    "before_is_no_copy": (
        "`before` is the parameter itself, which changes with it. Take a clone of its value.",
        (".clone()", ""),
    ),
    "swapped": ("True and False are swapped: True is for a parameter that moves.", ("not torch", "torch")),
    "cases_swapped": (
        "The two cases are swapped: 'zero' is the gradient of zeros.",
        ('("zero", torch.zeros(1)), ("none", None)', '("none", torch.zeros(1)), ("zero", None)'),
    ),
    "one_optimizer_for_both": (
        "Both cases use one optimizer. Give each its own optimizer and parameter.",
        ("        parameter = nn.Parameter(torch.ones(1))\n        optimizer = make([parameter])\n", ""),
        ("moved = {}", "moved, parameter = {}, nn.Parameter(torch.ones(1))\n    optimizer = make([parameter])"),
    ),
    "zeros_in_both": (
        "The gradient is never set to None: zero_grad(set_to_none=False) leaves zeros.",
        ('("none", None)', '("none", torch.zeros(1))'),
    ),
}


@alternative
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


@alternative
def by_distance(make):
    def moves(gradient):
        p = torch.nn.Parameter(torch.full((3,), 0.5))
        optimizer = make([p])
        for p.grad in (torch.full((3,), 0.25), gradient):
            before = p.data.clone()
            optimizer.step()
        return (p.data - before).abs().max().item() > 0

    return {"zero": moves(torch.zeros(3)), "none": moves(None)}
