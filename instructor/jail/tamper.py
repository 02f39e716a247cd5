"""Functions of modules that a learner's code exchanged, or their code: seen, and put back, before
and after a check.

    before = Snapshot()          # in a process that has run nothing of anybody's
    before.changed()             # ["torch.equal", ...]
    before.restore()

It lives in the process of the code that it watches, and keeps away what is easily written. What a
cell changed, as honest cells do, is put back before each check; what is still changed after it, the
answer itself has changed.
"""

import builtins
import sys
import types

import torch

from course.engine import exercise, outcome
from course.notebook.registry import package_of

# What probes compute and measure with.  All else there may change: it is a setting, or a module's
# memory.
_MODULES = """builtins itertools json math mmap operator os random re tempfile threading time weakref numpy
              torch torch.nn torch.nn.functional torch.nn.parallel torch.autograd torch.distributed torch.linalg
              torch.multiprocessing torch.utils.data PIL.Image""".split()
_CLASSES = (torch.Tensor, torch.Generator, exercise.Exercise, outcome.Outcome)
_CHECKS = ("course.checks", "course.engine")  # where probes and their classes are
_OURS = (*_CHECKS, "instructor")  # whose functions must keep their code, too
_SET_BY_TORCH = {"Storage"}  # by torch.set_default_dtype
_MADE_WHEN_ASKED = {"__slotnames__", "__annotations__"}  # of a class, by copyreg and by Python
_NOTHING = object()


class Snapshot:
    """What the functions and classes of modules are, and the attributes of some classes.

    `allowed` holds what may be anywhere: functions and code that refuse what a task forbids
    (forbidden.py).
    """

    def __init__(self):
        self.allowed = []
        modules = [
            sys.modules[n]
            for n in sys.modules
            if n in _MODULES or n.partition(".")[0] in ("course", "instructor")
        ]
        self.modules = [
            (m, {n: v for n, v in vars(m).items() if _does(v) and n not in _SET_BY_TORCH})
            for m in modules
        ]
        self.hidden = [
            (m, vars(m).keys() & vars(builtins).keys()) for m in modules if m is not builtins
        ]
        self.classes = [(c, dict(vars(c))) for c in {*_CLASSES, *_classes(modules)}]
        self.functions = [
            (f, f.__code__, f.__defaults__, f.__kwdefaults__) for f in _functions(modules)
        ]
        ours = [m for m in modules if m.__name__.startswith(_CHECKS)]
        checks = {id(v): v for m in ours for v in vars(m).values() if type(v) is exercise.Exercise}
        self.exercises = [(check, dict(vars(check))) for check in checks.values()]

    def forget_units_but(self, unit: str) -> None:
        """Watch no probes of other units: none runs here, and each thing that is looked at copies a
        page in a fork.
        """
        others = tuple(
            f"course.checks.{package_of(name)}."
            for name in {check.unit for check, _ in self.exercises} - {unit}
        )
        for watched in (self.modules, self.hidden, self.classes, self.functions, self.exercises):
            watched[:] = [
                (thing, *was)
                for thing, *was in watched
                if not f"{_home(thing)}.".startswith(others)
            ]

    def changed(self) -> list[str]:
        """The dotted names that stand for something else now."""
        names = [f"{owner.__name__}.{name}" for owner, name, _ in self._differences()]
        return names + [
            f"{f.__module__}.{f.__qualname__}"
            for f, *was in self.functions
            if self._is_changed(f, *was)
        ]

    def restore(self) -> None:
        """Make every name stand again for what it stood for."""
        for owner, name, value in list(self._differences()):
            delattr(owner, name) if value is _NOTHING else setattr(owner, name, value)
        for function, *was in self.functions:
            if self._is_changed(function, *was):
                function.__code__, function.__defaults__, function.__kwdefaults__ = was

    def _differences(self):
        """(owner, name, what it was) of each; a name that was added may hide an inherited or a
        built-in one.
        """
        for owner, names in (*self.modules, *self.classes):
            now = vars(owner)
            changed = [
                (name, was) for name, was in names.items() if now.get(name, _NOTHING) is not was
            ]
            yield from [
                (owner, name, was) for name, was in changed if not self._may_stand(now.get(name))
            ]
        for check, names in self.exercises:
            now = vars(check)
            both = now.keys() | names.keys()
            yield from [
                (check, n, names.get(n, _NOTHING)) for n in both if now.get(n) is not names.get(n)
            ]
        for owner, names in self.classes:
            added = vars(owner).keys() - names.keys() - _MADE_WHEN_ASKED
            yield from [(owner, name, _NOTHING) for name in added]
        for module, names in self.hidden:
            added = (vars(module).keys() & vars(builtins).keys()) - names
            yield from [(module, name, _NOTHING) for name in added]

    def _is_changed(self, function, *was):
        return _is_changed(function, *was) and not self._may_stand(function.__code__)

    def _may_stand(self, value):
        return any(value is allowed for allowed in self.allowed)


def _home(thing):
    """The name of a module, or of the one that a class, a function or an Exercise is from."""
    return getattr(thing, "__module__", None) or thing.__name__


def _does(value):
    """Whether probes may use `value`: a function, a class, a module."""
    return callable(value) or issubclass(type(value), types.ModuleType)


def _classes(modules):
    """The classes that probes define, as they are once torch has put its hook around an optimizer's
    step.
    """
    checks = [module for module in modules if module.__name__.startswith(_CHECKS)]
    values = [value for module in checks for value in vars(module).values()]
    classes = {
        value
        for value in values
        if isinstance(value, type) and value.__module__.startswith(_CHECKS)
    }
    for kind in classes:
        if issubclass(kind, torch.optim.Optimizer):
            # else the first of its kind would do that, in a check
            kind.__new__(kind)._patch_step_function()
    return classes


def _functions(modules):
    """The functions of our own modules and of their classes, each once."""
    ours = [m for m in modules if m.__name__.startswith(_OURS)]
    values = [value for module in ours for value in vars(module).values()]
    values += [inner for kind in values if isinstance(kind, type) for inner in vars(kind).values()]
    values = [getattr(value, "__func__", value) for value in values]
    return {id(f): f for f in values if isinstance(f, types.FunctionType)}.values()


def _is_changed(function, code, defaults, keywords):
    return (
        function.__code__ is not code
        or function.__defaults__ is not defaults
        or function.__kwdefaults__ is not keywords
    )
