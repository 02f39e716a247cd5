"""Tensors that a probe's process and a learner's both hold: which ones, and what has changed since the last look.

    table = Table()
    table.add([args, kwargs])            # at either end, on the same structure: the numbers agree
    changes = table.changes()            # plain data; at the other end: table.apply(changes)

A tensor counts wherever it lies: in a list, a dict, a module, an optimizer.  Its gradient belongs to it.
"""

from collections.abc import Callable, Iterator

import torch
from torch.utils.weak import TensorWeakRef

from course.checks.compare import same_values

NONE, SAME, OTHER, GONE = "none", "same", "other", "gone"  # what became of a gradient, or of the tensor
MOST_OWN = 1000  # tensors of the learner's side that are shared at once


def shared_tensors(value, stays: Callable = lambda thing: False, seen: dict | None = None) -> Iterator[torch.Tensor]:
    """Every tensor in `value`, containers, modules and optimizers included, in order, each once.

    Args:
        stays: whether a thing is not sent, so that its tensors are not shared.
    """
    seen = {} if seen is None else seen
    if id(value) in seen or stays(value):
        return
    seen[id(value)] = value  # kept: the next list must not get its number
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from shared_tensors(item, stays, seen)
    elif isinstance(value, dict):
        yield from shared_tensors(list(value.values()), stays, seen)
    elif issubclass(type(value), torch.nn.Module):  # which something held at the other end is not
        yield from shared_tensors([*value.parameters(), *value.buffers()], stays, seen)
    elif issubclass(type(value), torch.optim.Optimizer):
        yield from shared_tensors([group["params"] for group in value.param_groups], stays, seen)


class _Weak:
    """Calling it gives the tensor, as long as somebody holds it or a view of it; after that None."""

    def __init__(self, tensor):
        self.ref, self.form = TensorWeakRef(tensor), None
        if tensor.layout == torch.strided:
            self.dtype, self.memory = tensor.dtype, tensor.untyped_storage()
            self.form = tensor.storage_offset(), tensor.shape, tensor.stride()

    def __call__(self):
        tensor = self.ref()
        if tensor is None and self.form and torch._C._storage_Use_Count(self.memory._cdata) > 1:  # one is this one's
            return torch.empty(0, dtype=self.dtype).set_(self.memory, *self.form)
        return tensor


class Table:
    """The shared tensors, by number, and what was last seen of them.

    Numbers from 0 on are the probe's tensors, those below 0 the learner's: leaves that require gradients, and memory
    that takes part in messages of ranks.  The learner's table (`is_weak`) holds a tensor of the probe's only as long as
    somebody else there holds it or a view of it: the probe's table, told that it is gone, forgets it too.
    """

    def __init__(self, is_weak: bool = False, stays: Callable = lambda thing: False):
        self.is_weak, self.stays = is_weak, stays
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.tensors, self.before, self.numbers, self.memory, self.sizes = {}, {}, {}, {}, {}
        self.n_given, self.n_own, self.kept, self.withheld = 0, 0, [], ()

    def add(self, value) -> None:
        """Give numbers to the tensors in `value` that have none."""
        for tensor in shared_tensors(value, self.stays):
            if self.number(tensor) is None:
                self._put(self.n_given, tensor, _Weak(tensor) if self.is_weak else tensor)
                self.before[self.n_given] = tensor.detach().clone(), None, None, tensor.requires_grad
                self.n_given += 1

    def own(self, tensor: torch.Tensor, keeps: bool = True) -> int:
        """The number that a tensor of the learner's side gets; the next `changes` make it at the other end.

        Args:
            keeps: whether it is shared for good; else as long as somebody here holds it.
        """
        self.n_own += 1
        self._put(-self.n_own, tensor, tensor if keeps else _Weak(tensor))
        self.before[-self.n_own] = None, None, None, tensor.requires_grad
        return -self.n_own

    def owned(self) -> int:
        """How many tensors of the learner's side are shared."""
        return sum(number < 0 for number in self.tensors)

    def _put(self, number, tensor, kept):
        self.tensors[number] = kept
        self.numbers[id(tensor)] = number
        self.sizes[number] = _bytes_of_memory(tensor)
        self.memory = {}

    def tensor(self, number: int) -> torch.Tensor | None:
        """The tensor with this number, None if there is none."""
        kept = self.tensors.get(number)
        return kept() if isinstance(kept, _Weak) else kept

    def number(self, tensor: torch.Tensor) -> int | None:
        """The number of a tensor that is shared, else None."""
        number = self.numbers.get(id(tensor))
        return number if number is not None and self.tensor(number) is tensor else None

    def keep(self, number: int) -> int:
        """`number`, whose tensor a message names: it is kept until `release`."""
        self.kept.append(self.tensor(number))
        return number

    def number_of_memory(self, address: int) -> int | None:
        """The number of a shared tensor that lies in the memory at this address, else None."""
        if not self.memory:
            here = ((number, self.tensor(number)) for number in self.tensors)
            dense = ((number, t) for number, t in here if t is not None and t.layout == torch.strided)
            self.memory = {t.untyped_storage().data_ptr(): number for number, t in dense}
        number = self.memory.get(address)
        return number if number is not None and self.tensor(number) is not None else None

    def was_resized(self, number: int) -> bool:
        """Whether the memory of this tensor has another size than when it was shared."""
        return _bytes_of_memory(self.tensor(number)) != self.sizes[number]

    def changes(self) -> list:
        """[[number, new values or None, whether it requires gradients, what became of its gradient, that], ...]

        In a weak table all tensors that are still there are kept until `release`, so that the other end may name them.
        Those with numbers in `self.withheld` are left out.
        """
        found = []
        for number in list(self.tensors):
            if (tensor := self.tensor(number)) is None:
                self._drop(number)
                found.append([number, None, None, GONE, None])
                continue
            if self.is_weak:
                self.kept.append(tensor)
            if number in self.withheld:
                continue
            values, grad, copy, requires = self.before[number]
            is_there = self.number(tensor) is not None  # else all that is left of it are views
            now = tensor.grad if is_there and tensor.is_leaf else grad
            requires_now = tensor.requires_grad if is_there else requires
            moved = values is None or not _same(tensor, values)
            kind = NONE if now is None else SAME if now is grad else OTHER
            turned = (now is None) != (grad is None) or (now is not None and (now is not grad or not _same(now, copy)))
            if moved or turned or requires != requires_now:
                self.before[number] = _seen(tensor, now, requires_now)
                found.append([number, tensor.detach().clone() if moved else None, requires_now, kind,
                              now.detach().clone() if turned and now is not None else None])  # fmt: skip
        return found

    def release(self, value) -> None:
        """Hold no longer what nobody else holds, but for the tensors in `value`: the next `changes` look at them."""
        self.kept = list(shared_tensors(value))

    def _drop(self, number):
        self.before.pop(number, None)
        del self.sizes[number]
        del self.tensors[number]
        self.numbers = {key: n for key, n in self.numbers.items() if n != number}
        self.memory = {}

    def apply(self, changes: list) -> None:
        """Make here what `changes` of the other end says, where dtypes are the same or both of floating point."""
        for number, values, requires, kind, grad in changes:
            if type(number) is int and number < 0 and number not in self.tensors and self.owned() < MOST_OWN:
                self._lent(number, values)
            tensor = self.tensor(number) if type(number) is int else None
            if tensor is None:
                continue
            if kind == GONE:
                self._drop(number)
                continue
            if _fits(values, tensor):
                tensor.data.copy_(values)
            elif isinstance(values, torch.Tensor) and values.dtype == tensor.dtype:
                _resize(tensor, values)
            elif isinstance(values, torch.Tensor) and values.is_floating_point() and tensor.is_floating_point():
                tensor.data = values
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
            self.before[number] = _seen(tensor, tensor.grad if tensor.is_leaf else None, tensor.requires_grad)

    def _lent(self, number, values):
        """Make the tensor that the learner's side has shown."""
        if isinstance(values, torch.Tensor):
            self._put(number, values, values)


def _bytes_of_memory(tensor):
    return tensor.untyped_storage().nbytes() if tensor.layout == torch.strided else None


def _resize(tensor, values):
    if tensor.requires_grad:
        tensor.data = values
    else:  # in its own memory if there is room
        tensor.resize_(values.shape).copy_(values)


def _seen(tensor, grad, requires):
    return tensor.detach().clone(), grad, None if grad is None else grad.detach().clone(), requires


def _fits(values, tensor):
    is_tensor = isinstance(values, torch.Tensor)
    return is_tensor and values.shape == tensor.shape and values.dtype == tensor.dtype


def _same(tensor, before):
    if tensor.dtype != before.dtype:
        return False
    try:
        return torch.equal(tensor, before) or same_values(tensor.detach(), before)
    except RuntimeError:  # its shape became another one
        return True
