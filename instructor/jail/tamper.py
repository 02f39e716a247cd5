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
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from course.engine import exercise, outcome
from course.notebook.registry import package_of

# What probes compute and measure with.  All else there may change: it is a setting, or a module's
# memory.
_MODULES = """builtins itertools json math mmap operator os random re tempfile threading time
              weakref numpy torch torch.nn torch.nn.functional torch.nn.parallel torch.autograd
              torch.distributed torch.linalg torch.multiprocessing torch.utils.data
              PIL.Image""".split()
_CLASSES = (torch.Tensor, torch.Generator, exercise.Exercise, outcome.Outcome)
_CHECKS = ("course.checks", "course.engine")  # where probes and their classes are
_OURS = (*_CHECKS, "instructor")  # whose functions must keep their code, too
_SET_BY_TORCH = {"Storage"}  # by torch.set_default_dtype
_MADE_WHEN_ASKED = {"__slotnames__", "__annotations__"}  # of a class, by copyreg and by Python
_NOTHING = object()


class _Names(NamedTuple):
    """What names of a module, a class or an Exercise stood for."""

    owner: Any
    values: dict[str, Any]


class _Hidden(NamedTuple):
    """Which names of a module hide a built-in one."""

    owner: types.ModuleType
    names: set[str]


class _Function(NamedTuple):
    """What a function of ours was made of."""

    owner: Any
    code: types.CodeType
    defaults: tuple[Any, ...] | None
    keywords: dict[str, Any] | None

    def is_changed(self) -> bool:
        """Whether it is made of something else now."""
        return (
            self.owner.__code__ is not self.code
            or self.owner.__defaults__ is not self.defaults
            or self.owner.__kwdefaults__ is not self.keywords
        )


class _Kind(NamedTuple):
    """The class of a module or an Exercise, which Python lets anybody exchange."""

    owner: Any
    kind: type
    name: str  # of the owner, with a dot

    def is_changed(self) -> bool:
        """Whether it is of another class now."""
        return type(self.owner) is not self.kind


class _Difference(NamedTuple):
    """A name that stands for something else now, and what it stood for."""

    owner: Any
    name: str
    was: Any  # _NOTHING if there was no such name


class Snapshot:
    """What the functions and classes of modules are, and the attributes of some classes.

    `allowed` holds what may be anywhere: functions and code that refuse what a task forbids
    (forbidden.py).
    """

    def __init__(self) -> None:
        self.allowed: list[Any] = []
        self.imported = {name: sys.modules[name] for name in list(sys.modules) if _is_watched(name)}
        modules = list(self.imported.values())
        self.modules: list[_Names] = []
        self.hidden: list[_Hidden] = []
        for module in modules:
            self.modules.append(_Names(module, _does_of(module)))
            if module is not builtins:
                self.hidden.append(_Hidden(module, _hides(module)))
        self.classes = [_Names(kind, dict(vars(kind))) for kind in {*_CLASSES, *_classes(modules)}]
        self.functions: list[_Function] = []
        for function in _functions(modules):
            defaults, keywords = function.__defaults__, function.__kwdefaults__
            self.functions.append(_Function(function, function.__code__, defaults, keywords))
        exercises = _exercises(modules)
        self.exercises = [_Names(check, dict(vars(check))) for check in exercises]
        self.kinds = [_Kind(owner, type(owner), _home(owner)) for owner in (*modules, *exercises)]

    def forget_units_but(self, unit: str) -> None:
        """Watch no probes of other units.

        None runs here, and each thing that is looked at copies a page in a fork.
        """
        units = {watched.owner.unit for watched in self.exercises} - {unit}
        others = tuple(f"course.checks.{package_of(name)}." for name in units)
        lists: tuple[list[Any], ...] = (
            self.modules,
            self.hidden,
            self.classes,
            self.functions,
            self.exercises,
            self.kinds,
        )
        for watched in lists:
            watched[:] = [one for one in watched if not _home(one.owner).startswith(others)]

    def changed(self) -> list[str]:
        """The dotted names that stand for something else now."""
        names = [f"{kind.name}__class__" for kind in self.kinds if kind.is_changed()]
        if names:  # an exchanged class may lie about all else
            return names
        names = [f"{each.owner.__name__}.{each.name}" for each in self._differences()]
        for function in self._changed_functions():
            names.append(f"{function.owner.__module__}.{function.owner.__qualname__}")
        names += [f"sys.modules[{name!r}]" for name in self._exchanged_modules()]
        return names

    def restore(self) -> None:
        """Make every name stand again for what it stood for."""
        for kind in self.kinds:
            if kind.is_changed():
                object.__setattr__(kind.owner, "__class__", kind.kind)
        for owner, name, was in list(self._differences()):
            if was is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, was)
        for function in self._changed_functions():
            function.owner.__code__ = function.code
            function.owner.__defaults__ = function.defaults
            function.owner.__kwdefaults__ = function.keywords
        for name in self._exchanged_modules():
            sys.modules[name] = self.imported[name]

    def _exchanged_modules(self) -> list[str]:
        """The names under which another module is imported now, or none."""
        imported = self.imported.items()
        return [name for name, module in imported if sys.modules.get(name) is not module]

    def _changed_functions(self) -> list[_Function]:
        changed = []
        for function in self.functions:
            if function.is_changed() and not self._may_stand(function.owner.__code__):
                changed.append(function)
        return changed

    def _differences(self) -> Iterator[_Difference]:
        """Each name that changed; one that was added may hide an inherited or a built-in one."""
        for watched in (*self.modules, *self.classes):
            yield from self._exchanged(watched)
        for watched in self.exercises:
            yield from _changed_attributes(watched)
        for owner, values in self.classes:
            added = vars(owner).keys() - values.keys() - _MADE_WHEN_ASKED
            yield from (_Difference(owner, name, _NOTHING) for name in added)
        for module, names in self.hidden:
            yield from (_Difference(module, name, _NOTHING) for name in _hides(module) - names)

    def _exchanged(self, watched: _Names) -> list[_Difference]:
        """The names of a module or class that stand for something that may not stand there."""
        now = vars(watched.owner)
        changed = []
        for name, was in watched.values.items():
            if now.get(name, _NOTHING) is not was and not self._may_stand(now.get(name)):
                changed.append(_Difference(watched.owner, name, was))
        return changed

    def _may_stand(self, value: Any) -> bool:
        return any(value is allowed for allowed in self.allowed)


def _is_watched(name: str) -> bool:
    return name in _MODULES or name.partition(".")[0] in ("course", "instructor")


def _does_of(module: types.ModuleType) -> dict[str, Any]:
    """What probes may use of a module."""
    used = {}
    for name, value in vars(module).items():
        if _does(value) and name not in _SET_BY_TORCH:
            used[name] = value
    return used


def _hides(module: types.ModuleType) -> set[str]:
    """The names of a module that hide built-in ones."""
    return vars(module).keys() & vars(builtins).keys()


def _changed_attributes(watched: _Names) -> list[_Difference]:
    """What changed of an Exercise."""
    now = vars(watched.owner)
    changed = []
    for name in now.keys() | watched.values.keys():
        if now.get(name) is not watched.values.get(name):
            was = watched.values.get(name, _NOTHING)
            changed.append(_Difference(watched.owner, name, was))
    return changed


def _home(thing: Any) -> str:
    """The name of a module, or of the one that a class, function or Exercise is from, and a dot."""
    name = getattr(thing, "__module__", None) or thing.__name__
    return f"{name}."


def _does(value: Any) -> bool:
    """Whether probes may use `value`: a function, a class, a module."""
    return callable(value) or issubclass(type(value), types.ModuleType)


def _values(modules: Iterable[types.ModuleType], home: tuple[str, ...]) -> list[Any]:
    """What the modules below `home` hold."""
    values: list[Any] = []
    for module in modules:
        if module.__name__.startswith(home):
            values += vars(module).values()
    return values


def _exercises(modules: Iterable[types.ModuleType]) -> list[exercise.Exercise]:
    """The Exercises that modules of checks hold, each once."""
    found = {}
    for value in _values(modules, _CHECKS):
        if type(value) is exercise.Exercise:
            found[id(value)] = value
    return list(found.values())


def _classes(modules: Iterable[types.ModuleType]) -> set[type]:
    """The classes that probes define, with torch's hook around an optimizer's step."""
    classes = set()
    for value in _values(modules, _CHECKS):
        if isinstance(value, type) and value.__module__.startswith(_CHECKS):
            classes.add(value)
    for kind in classes:
        if issubclass(kind, torch.optim.Optimizer):
            # else the first of its kind would do that, in a check
            kind.__new__(kind)._patch_step_function()
    return classes


def _functions(modules: Iterable[types.ModuleType]) -> list[types.FunctionType]:
    """The functions of our own modules and of their classes, each once."""
    values = _values(modules, _OURS)
    for kind in list(values):
        if isinstance(kind, type):
            values += vars(kind).values()
    functions = {}
    for value in values:
        function = getattr(value, "__func__", value)
        if isinstance(function, types.FunctionType):
            functions[id(function)] = function
    return list(functions.values())
