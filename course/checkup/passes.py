"""Forward passes that do not train: do they belong to each step, or are they evaluation?

A pass does not train if gradients are off, or if its module is in eval mode. A teacher, a target
network and frozen batch norm run in most steps: their time is part of the forward pass. A pass
that is rare is evaluation, and so is one in eval mode of a module that also trains in train mode.
Which it is can be told only after some steps, so each kind of pass has its own phase until then.
"""

import weakref
from dataclasses import dataclass

import torch

from course.checkup.phases import EVALUATION, FORWARD, Piece, Step

USUAL_MIN = 0.5  # share of the steps; what runs in fewer does not belong to each step


@dataclass
class Kind:
    """Passes of one module in one mode."""

    phase: str  # what they are called until it is known what they are
    module: str  # which module
    training: bool  # whether it was in train mode
    first: int  # the step in which they began
    steps: int = 0  # with such a pass
    last: int = -1  # of these


class Passes:
    """All kinds of passes that do not train."""

    def __init__(self) -> None:
        self.now = 0  # the number of the step that runs
        self._kinds: dict[str, Kind] = {}
        self._trained: set[str] = set()  # modules that run in train mode, with gradients
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()

    def phase_of(self, module: torch.nn.Module) -> str:
        """The phase of a pass that begins now."""
        name = self._name_of(module)
        with_gradients = torch.is_grad_enabled()
        if with_gradients and module.training:
            self._trained.add(name)
            return FORWARD
        phase = f"pass of {name}, train {module.training}, gradients {with_gradients}"
        kind = self._kinds.get(phase)
        if kind is None:
            kind = self._kinds[phase] = Kind(phase, name, module.training, self.now)
        if kind.last != self.now:
            kind.last = self.now
            kind.steps += 1
        return phase

    def resolved(self, phase: str) -> str:
        """FORWARD or EVALUATION for a pass, as far as is known; other phases as they are."""
        kind = self._kinds.get(phase)
        if kind is None:
            return phase
        if not kind.training and kind.module in self._trained:
            return EVALUATION
        steps = self.now + 1 - kind.first
        return FORWARD if kind.steps >= USUAL_MIN * steps else EVALUATION

    def is_in_train_mode(self, phase: str) -> bool:
        """Whether the module of a pass that does not train was in train mode."""
        return self._kinds[phase].training

    def end_step(self, step: Step) -> None:
        """Note that a step has ended."""
        self._resolve(step)
        self.now += 1

    def settle(self, steps: list[Step]) -> None:
        """Give each pass of `steps` its phase, when no other step follows."""
        self.now = max(0, self.now - 1)  # the last step that has ended
        for step in steps:
            self._resolve(step)
            pieces = [Piece(self.resolved(name), a, b) for name, a, b in step.pieces]
            step.pieces = pieces

    def _resolve(self, step: Step) -> None:
        spent = [s for name, s in step.passes.items() if self.resolved(name) == EVALUATION]
        step.evaluated = sum(spent)

    def _name_of(self, module: torch.nn.Module) -> str:
        """A name per module, or per class for modules without parameters, such as losses."""
        name = self._names.get(module)
        if name is None:
            own = any(True for _ in module.parameters())
            name = type(module).__name__ + (f" {len(self._names)}" if own else "")
            self._names[module] = name
        return name
