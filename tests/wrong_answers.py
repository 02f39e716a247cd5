"""Wrong answers of one kind, made from a reference: its results, or what it was given, changed after it was called.

Every change is noted in a file, also by an answer that runs in another process: a test can see that something was
changed, and that what refused the answer was not this module breaking.
"""

import collections.abc
import copy
import dataclasses
import functools
import inspect
import os
import tempfile
import types
from pathlib import Path

import numpy
import torch
from exercises import verdict

from course.engine.compare import same_values

# kind of change -> what `tolerates` of an exercise calls it
TOLERATED = {"shape": "shape", "cpu": "device", "input": "input"}
SPECIAL = ("__call__", "__getitem__", "__iter__", "__next__")  # methods that a class is asked for by Python's syntax


def nan(leaf):
    """NaN in the form of `leaf`; what cannot be NaN is another value."""
    if isinstance(leaf, torch.Tensor):
        if leaf.is_floating_point() or leaf.is_complex():
            return torch.full_like(leaf, float("nan"))
        return ~leaf if leaf.dtype in (torch.bool, torch.uint8) else leaf + 1  # a picture: its negative
    if isinstance(leaf, numpy.ndarray):
        return numpy.full_like(leaf, numpy.nan) if leaf.dtype.kind == "f" else leaf + 1
    return float("nan") if isinstance(leaf, (bool, int, float)) else leaf


def other_shape(leaf):
    """A tensor with a dimension of 1 behind the others."""
    return leaf[..., None] if isinstance(leaf, (torch.Tensor, numpy.ndarray)) else leaf


def on_the_cpu(leaf):
    """A tensor of a GPU on the CPU."""
    return leaf.cpu() if isinstance(leaf, torch.Tensor) and leaf.is_cuda else leaf


class Notes:
    """How often something was changed, and what broke here, whichever process it was in."""

    def __init__(self):
        descriptor, name = tempfile.mkstemp(prefix="wrong-answer-")
        os.close(descriptor)
        self.path = Path(name)

    def write(self, text):
        with self.path.open("a") as file:
            file.write(f"{text}\n")

    def read(self):
        """(number of changes, what broke)."""
        lines = self.path.read_text().splitlines()
        return lines.count("changed"), [line for line in lines if line != "changed"]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.path.unlink()


class Changer:
    """Copies of results in which every tensor, array and number is `change`d, however deep it lies."""

    def __init__(self, change, notes):
        self.change, self.notes = change, notes

    def __call__(self, value):
        try:
            return self.deep(value)
        except Exception as error:
            self.notes.write(f"{type(error).__name__}: {error}".replace("\n", " "))
            raise

    def deep(self, value):
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.deep, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.deep, value))
        if isinstance(value, collections.abc.Mapping) and type(value) in (dict, collections.OrderedDict):
            return type(value)((key, self.deep(item)) for key, item in value.items())
        if isinstance(value, torch.nn.Module):
            return self.module(value)
        if isinstance(value, torch._C.Future):  # of a collective; torch.futures.Future is one
            return value.then(lambda done: self(done.value()))
        if isinstance(value, collections.abc.Iterator):
            return self.iterator(value)
        if inspect.isfunction(value):
            return lambda *args, **kwargs: self(value(*args, **kwargs))
        if isinstance(value, types.SimpleNamespace) or (dataclasses.is_dataclass(value) and hasattr(value, "__dict__")):
            changed = copy.copy(value)
            vars(changed).update({name: self.deep(item) for name, item in vars(value).items()})
            return changed
        return self.leaf(value)

    def leaf(self, value):
        changed = self.change(value)
        if changed is not value:
            self.notes.write("changed")
        return changed

    def module(self, value):
        """A module with other parameters and buffers; a deep copy would refuse those with a graph."""
        changed = copy.copy(value)
        changed._modules = {name: part and self.module(part) for name, part in value._modules.items()}
        for table in ("_parameters", "_buffers"):
            new = {name: old if old is None else self.parameter(old) for name, old in getattr(value, table).items()}
            setattr(changed, table, new)
        for name, item in vars(value).items():
            if isinstance(item, torch.Tensor):
                setattr(changed, name, self.parameter(item))
        return changed

    def parameter(self, tensor):
        new = self.leaf(tensor)
        return torch.nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else new

    def iterator(self, value):
        while True:
            try:
                changed = [self(next(value))]
            except StopIteration:
                return
            yield changed.pop()  # nothing is held on to: who counts buffers would see it


def wrapped(reference, around):
    """`reference` as around(function) makes it; of a class, a subclass whose public methods are changed by it."""
    if not isinstance(reference, type):
        return around(reference)
    methods = {
        name: around(method)
        for name, method in vars(reference).items()
        if inspect.isfunction(method) and (not name.startswith("_") or name in SPECIAL)
    }
    return type(reference.__name__, (reference,), methods | {"__module__": reference.__module__})


def with_results(reference, change, notes):
    """The reference, except that its results are changed; what it only writes into its arguments, there."""
    changer = Changer(change, notes)

    def around(function):
        @functools.wraps(function)  # probes may ask for the signature
        def answer(*args, **kwargs):
            return changer(function(*args, **kwargs))

        return answer

    return wrapped(reference, around)


def given_tensors(value):
    """Every tensor in what a call is given: in containers, modules and optimizers too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from given_tensors(item)
    elif isinstance(value, dict):
        yield from given_tensors(list(value.values()))
    elif isinstance(value, torch.nn.Module):
        yield from value.state_dict(keep_vars=True).values()
    elif isinstance(value, torch.optim.Optimizer):
        yield from (tensor for group in value.param_groups for tensor in group["params"])


def with_written(reference, change, notes, only_changed=False):
    """The reference, except that it writes change(tensor) into the tensors that it was given.

    Args:
        only_changed: whether into those alone that the reference has written to.
    """

    def around(function):
        @functools.wraps(function)
        def answer(*args, **kwargs):
            given = [t for t in given_tensors([*args, *kwargs.values()]) if t.numel()]
            before = [t.detach().clone() for t in given]
            result = function(*args, **kwargs)
            try:
                for tensor, old in zip(given, before, strict=True):
                    if not only_changed or not same_values(tensor.detach(), old):
                        tensor.data.copy_(change(tensor.data))
                        notes.write("changed")
            except Exception as error:
                notes.write(f"{type(error).__name__}: {error}".replace("\n", " "))
                raise
            return result

        return answer

    return wrapped(reference, around)


def plus_one(tensor):
    """Other values in the form of `tensor`."""
    return ~tensor if tensor.dtype == torch.bool else tensor + 1


CHANGES = {"nan": nan, "shape": other_shape, "cpu": on_the_cpu}


def made(exercise, kind, notes):
    """The reference of `exercise` with changed results, a key of CHANGES, or with a changed "input".

    Of an exercise that changes its input, "nan" is written there.
    """
    if kind == "input":
        return with_written(exercise.reference(), plus_one, notes)
    if kind == "nan" and exercise.changes_inputs:
        return with_written(exercise.reference(), nan, notes, only_changed=True)
    return with_results(exercise.reference(), CHANGES[kind], notes)


def refusal(exercise, kind, device):
    """What the check says to the reference made wrong; None where there was nothing to change, or nothing that counts.

    Fails if the check accepts what was changed.
    """
    with Notes() as notes:
        seen = verdict(exercise, made(exercise, kind, notes), device)
        changes, broken = notes.read()
    assert broken == [], "wrong_answers.py broke"
    if not changes or TOLERATED.get(kind) in exercise.tolerates:
        return None
    message = " ".join("\n".join(seen.report).split())
    assert not seen.correct and " NO " in message, message
    assert max(map(len, seen.report)) <= 80, seen.report
    return message
