"""Disable what a task forbids in the process of a learner's code, however it is reached.

    forbidden = Forbidden(["torch.amp.GradScaler"])  # now every scaler there is raises RuntimeError
    source_files(["torch.amp.GradScaler"])           # what a jail covers: its text cannot be run

Kept because the rules on the source (engine/rules.py) read names alone: without this module
`getattr(torch.amp, "GradScaler")`, a list that holds the class, or `torch.ops.aten.gelu` would earn
full points, and docs/grading.md promises that what a task forbids is disabled.

Here the *thing* goes: a function of Python gets another code object, a class and its subclasses
have all their methods treated so, what is written in C is exchanged in modules, lists, dicts and
closures, and operators of torch are refused where they are dispatched. What stays possible is to
hand in a copy of the text, as anybody may copy any text.
"""

import functools
import gc
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils._python_dispatch import TorchDispatchMode

from course.engine.rules import private_names

Undo = Callable[[], object]


class _Code(NamedTuple):
    """The code of a function that refuses, and its own."""

    function: Any
    refusing: types.CodeType
    own: types.CodeType


class _Refusing(TorchDispatchMode):
    """Refuses the operators of aten that are called `names`; {name: what was forbidden}."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self.names = names

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        path = self.names.get(operator.overloadpacket.__name__)
        if path is not None:
            raise RuntimeError(_sentence(path))
        return operator(*args, **kwargs or {})


class Forbidden:
    """Makes what the dotted paths `forbidden` name refuse in this process, until `give_back`."""

    def __init__(self, forbidden: Iterable[str]) -> None:
        self.codes: list[_Code] = []
        self.undo: list[Undo] = []
        self.refusing: list[Any] = []  # functions that stand where something written in C stood
        self.operators: dict[str, str] = {}  # name of an operator of torch -> what was forbidden
        for path in forbidden:
            self._refuse(path)
            self._refuse_private(path)
        if self.operators:
            mode = _Refusing(self.operators)
            mode.__enter__()
            self.undo.append(functools.partial(mode.__exit__, None, None, None))
        for code in self.codes:
            code.function.__code__ = code.refusing

    def _refuse(self, path: str) -> None:
        for thing in _things(path):
            if isinstance(thing, types.FunctionType):
                self.codes += _codes(thing, path)
            elif isinstance(thing, type):
                self._refuse_class(thing, path)
            elif callable(thing):
                refusing = _refusing(path)
                self.refusing.append(refusing)
                self.undo += _exchange(thing, refusing, path)
                self.operators[thing.__name__] = path

    def _refuse_private(self, path: str) -> None:
        """Refuse what does the same in private parts of torch, as far as they are imported."""
        for private in private_names(path):
            self.operators[private.rpartition(".")[2]] = path
            for thing in _things(private):
                if isinstance(thing, types.FunctionType):
                    self.codes += _codes(thing, path)

    def _refuse_class(self, kind: type, path: str) -> None:
        for one in (kind, *_below(kind)):
            self.codes += _codes_of_class(one, path)

    def stand_ins(self) -> list[Any]:
        """The functions and code objects that refuse: what may be where something else was."""
        return [*self.refusing, *(code.refusing for code in self.codes)]

    def give_back(self) -> None:
        """Undo all."""
        for code in self.codes:
            code.function.__code__ = code.own
        for step in reversed(self.undo):
            step()


def source_files(forbidden: Iterable[str]) -> list[str]:
    """The files that hold the text or the compiled code of what is forbidden, in order.

    Of a package that is its folder. None of them lies in another: where a folder is covered,
    nothing in it can be.
    """
    files: set[str] = set()
    for path in forbidden:
        files.update(_files_of(path))
    return sorted(file for file in files if not files & set(map(str, Path(file).parents)))


def _files_of(path: str) -> Iterator[str]:
    module = sys.modules.get(path)
    if module is not None and hasattr(module, "__path__"):
        yield from module.__path__
        return
    things: Iterable[Any] = [module] if module is not None else _things(path)
    for thing in things:
        try:
            file = Path(str(inspect.getsourcefile(inspect.unwrap(thing))))
        except TypeError:  # written in C
            continue
        yield str(file)
        yield from map(str, file.parent.glob(f"__pycache__/{file.stem}.*.pyc"))


def _sentence(path: str) -> str:
    return f"the task does not allow {path}. Write it yourself."


def _things(path: str) -> Iterator[Any]:
    """Every callable that `path` names, or that is made in the module that it names."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        place: Any = sys.modules.get(".".join(parts[:cut]))
        for name in parts[cut:]:
            place = inspect.getattr_static(place, name, None)
        if inspect.ismodule(place):
            yield from _made_in(path)
        elif place is not None:
            yield place


def _made_in(path: str) -> list[Any]:
    """The functions and classes that are made in the module `path` or below it, each once."""
    made = {}
    for name, module in list(sys.modules.items()):
        if module is None or not f"{name}.".startswith(f"{path}."):
            continue
        for value in list(vars(module).values()):
            is_code = isinstance(value, (types.FunctionType, type))
            if is_code and f"{value.__module__}.".startswith(f"{path}."):
                made[id(value)] = value
    return list(made.values())


def _below(kind: type) -> Iterator[type]:
    """All subclasses of a class."""
    subclasses: list[type] = type.__subclasses__(kind)
    for inner in subclasses:
        yield inner
        yield from _below(inner)


def _codes_of_class(kind: type, path: str) -> list[_Code]:
    """As `_codes`, of all methods of a class."""
    codes = []
    for value in list(vars(kind).values()):
        for function in _functions_of(value):
            # one that other classes share, such as Enum.__new__, is not its own
            if getattr(function, "__module__", None) == kind.__module__:
                codes += _codes(function, path)
    return codes


def _functions_of(value: Any) -> tuple[Any, ...]:
    """What an attribute of a class calls: a method itself, or the accessors of a property."""
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    return (getattr(value, "__func__", value),)  # of a static method or a class method


def _codes(function: Any, path: str) -> list[_Code]:
    """The _Code of a function of Python and of each that it wraps."""
    codes = []
    while isinstance(function, types.FunctionType):
        own = function.__code__
        codes.append(_Code(function, _refusing_code(own, path), own))
        function = vars(function).get("__wrapped__")
    return codes


def _refusing_code(own: types.CodeType, path: str) -> types.CodeType:
    """The code of a function that refuses, which may stand in the place of the code `own`.

    It is of the same kind, with as many free names.
    """
    names = ", ".join(f"_{number}" for number in range(len(own.co_freevars)))
    is_async = own.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
    yields = own.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR)
    text = f"""def make({names}):
    {"async " if is_async else ""}def refused(*_a, **_k):
        ({names})
        raise RuntimeError({_sentence(path)!r})
        {"yield" if yields else ""}
    return refused"""
    place: dict[str, Any] = {}
    exec(text, place)
    code: types.CodeType = place["make"](*own.co_freevars).__code__
    return code


def _refusing(path: str) -> Callable[..., Any]:
    """A function that refuses, for something written in C."""

    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError(_sentence(path))

    return refused


def _exchange(thing: Any, refused: Any, path: str) -> list[Undo]:
    """Put `refused` wherever a name or a list holds `thing`; return what undoes it."""
    undo: list[Undo] = []
    modules = _names_of_modules(path.partition(".")[0])
    cells = (lambda: (thing, refused)).__closure__  # of this function: they must keep `thing`
    seen = {id(modules), *map(id, cells or ())}
    # the garbage collector sees nothing of what was there before the fork
    for holder in [*modules, *gc.get_referrers(thing)]:
        if id(holder) not in seen:
            seen.add(id(holder))
            undo += _exchange_in(holder, thing, refused)
    return undo


def _names_of_modules(top: str) -> list[dict[str, Any]]:
    """The names of the module `top` and of all below it."""
    names = []
    for name, module in list(sys.modules.items()):
        if f"{name}.".startswith(f"{top}.") and inspect.ismodule(module):
            names.append(vars(module))
    return names


def _exchange_in(holder: Any, thing: Any, refused: Any) -> list[Undo]:
    """Put `refused` into the place of `thing` in a dict, list, closure or default arguments."""
    if isinstance(holder, dict):
        return _exchange_items(holder, holder.items(), thing, refused)
    if isinstance(holder, list):
        return _exchange_items(holder, enumerate(holder), thing, refused)
    if isinstance(holder, types.CellType) and holder.cell_contents is thing:
        holder.cell_contents = refused
        return [functools.partial(setattr, holder, "cell_contents", thing)]
    if isinstance(holder, tuple):
        return _exchange_defaults(holder, thing, refused)
    return []


def _exchange_items(
    holder: Any, items: Iterable[tuple[Any, Any]], thing: Any, refused: Any
) -> list[Undo]:
    undo: list[Undo] = []
    for key in [key for key, value in items if value is thing]:
        holder[key] = refused
        undo.append(functools.partial(holder.__setitem__, key, thing))
    return undo


def _exchange_defaults(holder: tuple[Any, ...], thing: Any, refused: Any) -> list[Undo]:
    undo: list[Undo] = []
    for function in gc.get_referrers(holder):
        if isinstance(function, types.FunctionType) and function.__defaults__ is holder:
            changed = tuple(refused if value is thing else value for value in holder)
            function.__defaults__ = changed
            undo.append(functools.partial(setattr, function, "__defaults__", holder))
    return undo
