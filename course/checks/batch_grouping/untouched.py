"""Probe of exercise untouched."""

import torch
from torch import nn

from course.checks.batch_grouping.ragged import pool_model
from course.engine.exercise import Answer, Facts, exercise


@exercise(changes_inputs=True, returns_no_number=True, tolerates=("input",))
def untouched(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Names of the parameters that a training leaves as they were."""
    model = pool_model(seed, device)
    called = []

    def train(*names):
        def step():
            called.append(names)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if name in names:
                        parameter.add_(0.25 + seed % 3)

        return step

    everything = [name for name, _ in model.named_parameters()]
    one = everything[(seed + 3) % len(everything)]
    yield "returns a list of names", sorted(map(str, answer(train(), model)))
    called.clear()
    yield "training that changes everything", list(answer(train(*everything), model))
    yield "the training is called once", len(called)
    yield (
        "training that changes one parameter, names in their order",
        list(answer(train(one), model)),
    )
    yield (
        "training that changes all but one",
        list(answer(train(*(n for n in everything if n != one)), model)),
    )

    def only_gradients():
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)

    yield "gradients alone do not count as training", sorted(answer(only_gradients, model))

    def one_value():
        with torch.no_grad():
            model.linear.weight[0, 0] += 1e-3

    yield "a single value that moved is a change", sorted(answer(one_value, model))

    def a_hair():
        with torch.no_grad():
            model.linear.weight.mul_(1 + 1e-6)

    yield "a change of a millionth is a change", list(answer(a_hair, model))

    def to_and_fro():
        with torch.no_grad():
            model.proj.weight[0, 0] += 1
            model.proj.weight[0, 1] -= 1

    yield "changes that cancel in the sum are changes", sorted(answer(to_and_fro, model))

    model.register_buffer("mean", torch.zeros(2, device=device))
    yield "a buffer is no parameter", list(answer(train(*everything[1:]), model))

    def replaced():
        model.proj.bias = nn.Parameter(model.proj.bias.detach() + 1)

    yield "a parameter that was replaced has changed", sorted(answer(replaced, model))
