"""Tensors that a probe's process and a learner's both hold: which ones, and what has changed since the last look.

    table = Table()
    table.add([args, kwargs])            # at either end, on the same structure: the numbers agree
    changes = table.changes()            # plain data; at the other end: table.apply(changes)

A tensor counts wherever it lies: in a list, a dict, a module, an optimizer.  Its gradient belongs to it.
"""

from collections.abc import Iterator

import torch

from course.checks.compare import same_values

NONE, SAME, OTHER = "none", "same", "other"  # what became of a gradient


def shared_tensors(value, seen: dict | None = None) -> Iterator[torch.Tensor]:
    """Every tensor in `value`, containers, modules and optimizers included, in order, each once."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return
    seen[id(value)] = value  # kept: the next list must not get its number
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from shared_tensors(item, seen)
    elif isinstance(value, dict):
        yield from shared_tensors(list(value.values()), seen)
    elif isinstance(value, torch.nn.Module):
        yield from shared_tensors([*value.parameters(), *value.buffers()], seen)
    elif isinstance(value, torch.optim.Optimizer):
        yield from shared_tensors([group["params"] for group in value.param_groups], seen)


class Table:
    """The shared tensors, by number, and what was last seen of them."""

    def __init__(self):
        self.tensors, self.before, self.numbers = [], [], {}

    def add(self, value) -> None:
        """Give numbers to the tensors in `value` that have none."""
        for tensor in shared_tensors(value):
            if id(tensor) not in self.numbers:
                self.numbers[id(tensor)] = len(self.tensors)
                self.tensors.append(tensor)
                self.before.append((tensor.detach().clone(), None, None, tensor.requires_grad))

    def number(self, tensor: torch.Tensor) -> int | None:
        """The number of a tensor that is shared, else None."""
        return self.numbers.get(id(tensor))

    def changes(self) -> list:
        """[[number, new values or None, whether it requires gradients, what became of its gradient, that], ...]"""
        found = []
        for number, tensor in enumerate(self.tensors):
            (values, grad, copy, requires), now = self.before[number], tensor.grad if tensor.is_leaf else None
            moved = not _same(tensor, values)
            kind = NONE if now is None else SAME if now is grad else OTHER
            turned = (now is None) != (grad is None) or (now is not None and (now is not grad or not _same(now, copy)))
            if moved or turned or requires != tensor.requires_grad:
                self.before[number] = _seen(tensor)
                found.append([number, tensor.detach().clone() if moved else None, tensor.requires_grad, kind,
                              now.detach().clone() if turned and now is not None else None])  # fmt: skip
        return found

    def apply(self, changes: list) -> None:
        """Make here what `changes` of the other end says, as far as shapes and dtypes are the same."""
        for number, values, requires, kind, grad in changes:
            if not (type(number) is int and 0 <= number < len(self.tensors)):
                continue
            tensor = self.tensors[number]
            if _fits(values, tensor):
                tensor.data.copy_(values)
            if tensor.is_leaf and tensor.is_floating_point():
                if requires in (True, False):
                    tensor.requires_grad_(requires)
                if kind == NONE:
                    tensor.grad = None
                elif _fits(grad, tensor):
                    if kind == SAME and _fits(tensor.grad, tensor):
                        tensor.grad.data.copy_(grad)
                    else:
                        tensor.grad = grad
            self.before[number] = _seen(tensor)

    def clear(self) -> None:
        """Forget all."""
        self.__init__()


def _seen(tensor):
    grad = tensor.grad if tensor.is_leaf else None
    return tensor.detach().clone(), grad, None if grad is None else grad.detach().clone(), tensor.requires_grad


def _fits(values, tensor):
    is_tensor = isinstance(values, torch.Tensor)
    return is_tensor and values.shape == tensor.shape and values.dtype == tensor.dtype


def _same(tensor, before):
    try:
        return same_values(tensor.detach(), before)
    except RuntimeError:  # its shape or dtype became another one
        return True
