"""Probe of exercise untouched."""

from collections.abc import Callable

import torch
from torch import nn

from course.checks.batch_grouping.ragged import pool_model
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried


@exercise(changes_inputs=True, returns_no_number=True, tolerates=("input",))
def untouched(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Names of the parameters that a training leaves as they were."""
    model = pool_model(seed, device)
    calls = []

    def training_of(*names: str) -> Callable[[], None]:
        """A training that changes the parameters with these names."""

        def step() -> None:
            calls.append(names)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if name in names:
                        parameter.add_(0.25 + seed % 3)

        return step

    everything = [name for name, _ in model.named_parameters()]
    one = everything[(seed + 3) % len(everything)]
    all_but_one = [name for name in everything if name != one]
    yield "returns a list of names", sorted(map(str, answer(training_of(), model)))
    calls.clear()
    yield "training that changes everything", list(answer(training_of(*everything), model))
    yield "the training is called once", tried(len(calls), one)
    left_by_one = list(answer(training_of(one), model))
    yield "training that changes one parameter, names in their order", left_by_one
    yield "training that changes all but one", list(answer(training_of(*all_but_one), model))
    yield from _what_counts_as_change(answer, model, seed)
    model.register_buffer("mean", torch.zeros(2, device=device))
    yield "a buffer is no parameter", list(answer(training_of(*all_but_one), model))

    def replaced() -> None:
        model.proj.bias = nn.Parameter(model.proj.bias.detach() + 1)

    yield "a parameter that was replaced has changed", sorted(answer(replaced, model))


def _what_counts_as_change(answer: Answer, model: nn.Module, seed: int) -> Facts:
    """Trainings that change very little, or gradients alone."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    matrix = matrices[-1 - seed % len(matrices)]

    def only_gradients() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)

    yield "gradients alone do not count as training", sorted(answer(only_gradients, model))

    @torch.no_grad()
    def one_value() -> None:
        matrix[0, 0] += 1e-3

    yield "a single value that moved is a change", sorted(answer(one_value, model))

    @torch.no_grad()
    def a_millionth() -> None:
        matrix.mul_(1 + 1e-6)

    yield "a change of a millionth is a change", list(answer(a_millionth, model))

    @torch.no_grad()
    def to_and_fro() -> None:
        matrix[0, 0] += 1
        matrix[0, 1] -= 1

    yield "changes that cancel in the sum are changes", sorted(answer(to_and_fro, model))
