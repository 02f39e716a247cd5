"""Probe of exercise LARS."""

import copy
from typing import Any

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import numbered

PLAIN = dict(lr=0.7, momentum=0.0, trust=0.2)
CHANGING = dict(lr=0.7, momentum=0.8, trust=0.2)
RULES = dict(lr=0.3, momentum=0.8, weight_decay=0.2, trust=0.2)


class _Setting:
    """A matrix and its gradients, and what an answer makes of such tensors."""

    def __init__(self, answer: Answer, device: torch.device, seed: int) -> None:
        self.answer = answer
        self.device = device
        self.rng = torch.Generator().manual_seed(seed)
        self.rows = 4 + seed % 3
        self.columns = 3 + seed % 4
        self.matrix = self.random(self.rows, self.columns, size=2.0)
        self.steps = [[self.random(self.rows, self.columns, size=0.3)] for _ in range(4)]

    def random(self, *shape: int, size: float = 1.0) -> torch.Tensor:
        return (torch.randn(shape, generator=self.rng) * size).to(self.device)

    def moved(
        self,
        weights: list[torch.Tensor],
        gradients: list[list[torch.Tensor | None]],
        learning_rates: tuple[float, ...] = (),
        groups: list[dict] | None = None,
        **settings: Any,
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """How far each weight moved, after one step for each list of gradients.

        Args:
            gradients: per step one gradient per weight, or None for a weight without.
            learning_rates: one per step, for the first group (default: that of `settings`).
            groups: settings of a parameter group per weight (default: one group for all).

        Returns: one tensor for a single weight, else {"parameter 1": tensor, ...}.
        """
        params = [torch.nn.Parameter(weight.clone()) for weight in weights]
        given = params
        if groups is not None:
            given = [{"params": [p], **group} for p, group in zip(params, groups, strict=True)]
        optimizer = self.answer(given, **settings)
        for step, step_gradients in enumerate(gradients):
            if learning_rates:
                optimizer.param_groups[0]["lr"] = learning_rates[step]
            for param, gradient in zip(params, step_gradients, strict=True):
                param.grad = None if gradient is None else gradient.clone()
            optimizer.step()
        distances = [p.detach() - weight for p, weight in zip(params, weights, strict=True)]
        return numbered("parameter", distances) if len(distances) > 1 else distances[0]


@exercise()
def LARS(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Layer-wise learning rates, one fact per rule of the convention."""
    setting = _Setting(answer, device, seed)
    optimizer = answer([torch.nn.Parameter(setting.matrix.clone())], lr=0.1)
    is_optimizer = isinstance(optimizer, torch.optim.Optimizer)
    yield "LARS(params, lr=0.1) is a torch.optim.Optimizer", is_optimizer
    yield from _matrices(setting)
    yield from _momentum_and_decay(setting)
    yield from _groups(setting)
    yield from _absent_and_zero(setting)
    yield from _side_effects(setting)


def _matrices(setting: _Setting) -> Facts:
    """The trust ratio of tensors with two and three dimensions."""
    rows = setting.rows
    columns = setting.columns
    random = setting.random
    one_matrix = setting.moved([setting.matrix], setting.steps[:1], **PLAIN)
    yield "a matrix after one step, no momentum, no weight decay", one_matrix
    pair = [setting.matrix, random(columns, rows, size=0.05)]
    kernel = random(2, 3, rows)
    pair_steps = [[random(rows, columns, size=0.01), random(columns, rows, size=9.0)]]
    two_matrices = setting.moved(pair, pair_steps, **PLAIN)
    yield "two matrices after one step: each has its own learning rate", two_matrices
    three_dimensions = setting.moved([kernel], [[random(2, 3, rows)]], **PLAIN)
    yield "a tensor of three dimensions counts as one layer", three_dimensions


def _momentum_and_decay(setting: _Setting) -> Facts:
    """One matrix under weight decay, momentum and learning rates that change."""
    matrix = [setting.matrix]
    steps = setting.steps
    yield "weight decay, one step", setting.moved(matrix, steps[:1], weight_decay=0.3, **PLAIN)
    yield "momentum 0.8, four steps", setting.moved(matrix, steps, **CHANGING)
    both = setting.moved(matrix, steps, weight_decay=0.3, **CHANGING)
    yield "momentum and weight decay, four steps", both
    own_time = setting.moved(matrix, steps, (0.1, 0.9, 0.3, 0.0), **CHANGING)
    yield "with momentum, the velocity keeps the learning rate of its own time", own_time
    default = setting.moved(matrix, steps, lr=200.0)
    yield "momentum 0.9, weight decay 0 and trust 0.001 unless told otherwise", default


def _groups(setting: _Setting) -> Facts:
    """What holds for 1-D parameters, and for settings of parameter groups."""
    vector = setting.random(setting.columns)
    scalar = setting.random()
    small = [vector, scalar]
    small_steps = [[setting.random(setting.columns), setting.random()] for _ in range(3)]
    excluded = setting.moved(small, small_steps, **RULES)
    yield "bias, scale and scalar: momentum SGD without weight decay", excluded
    included = setting.moved(small, small_steps, exclude_1d=False, **RULES)
    yield "exclude_1d=False: the trust ratio for these too", included
    groups = [
        {},
        {"lr": 0.9, "momentum": 0.0},
        {"weight_decay": 0.4, "trust": 0.05},
        {"exclude_1d": False},
    ]
    weights = [setting.matrix] * 3 + [vector]
    steps = []
    for [of_matrix], [of_vector, _] in zip(setting.steps, small_steps, strict=False):
        steps.append([of_matrix] * 3 + [of_vector])
    by_group = setting.moved(weights, steps, groups=groups, **RULES)
    yield "each parameter group has its own settings", by_group


def _absent_and_zero(setting: _Setting) -> Facts:
    """Parameters without a gradient, and norms of zero."""
    matrix = setting.matrix
    steps = setting.steps
    zeros = torch.zeros_like(matrix)
    some_absent = [[None, *steps[3]], [*steps[0], None], [None, None], [*steps[1], None]]
    waiting = setting.moved([matrix] * 2, some_absent, **RULES)
    yield "without a gradient a parameter stays, and its velocity waits", waiting
    from_zeros = setting.moved([zeros], steps[:1], weight_decay=0.3, **PLAIN)
    yield "a matrix of zeros moves by lr times its gradient", from_zeros
    yield "a gradient of zeros does no harm", setting.moved([matrix], [[zeros]], **PLAIN)
    decayed = setting.moved([matrix], [[zeros], *steps], **RULES)
    yield "a gradient of zeros: weight decay with trust ratio 1", decayed


def _side_effects(setting: _Setting) -> Facts:
    """Gradients, closures and saved states."""
    matrix = setting.matrix
    steps = setting.steps
    weight = torch.nn.Parameter(matrix.clone())
    weight.grad = steps[0][0].clone()
    optimizer = setting.answer([weight], **RULES)
    returned = optimizer.step()
    yield "the gradients are left as they were", weight.grad
    yield "step() returns None", returned

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight * steps[1][0]).sum()
        loss.backward()
        return loss

    yield "step(closure) returns the loss and computes gradients", optimizer.step(closure)
    yield "after step(closure)", weight.detach() - matrix
    saved = copy.deepcopy(optimizer.state_dict())
    copied = torch.nn.Parameter(weight.detach().clone())
    resumed = setting.answer([copied], lr=0.1)
    resumed.load_state_dict(saved)
    for param, its_optimizer in ((weight, optimizer), (copied, resumed)):
        param.grad = steps[2][0].clone()
        its_optimizer.step()
    same = bool(torch.isclose(weight, copied).all())
    yield "a run resumes from a state_dict as if nothing had happened", same
