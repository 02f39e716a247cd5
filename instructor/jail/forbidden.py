"""Disable what a task forbids in the process of a learner's code: it refuses, however it is
reached.

    forbidden = Forbidden(["torch.amp.GradScaler"])  # from here on every scaler there is raises
    RuntimeError source_files(("torch.amp.GradScaler",))          # what a jail covers, so that its
    text cannot be run anew

The rules on the source (checks/rules.py) name the line where a forbidden name stands; they cannot
know all ways to it.
Here the *thing* goes: a function of Python gets another code object, a class and its subclasses
have all their methods treated so, what is written in C is exchanged in modules, lists, dicts and
closures, and operators of torch are refused where they are dispatched. What stays possible is to
hand in a copy of the text, as anybody may copy any text.
"""

import gc
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

from torch.utils._python_dispatch import TorchDispatchMode


class _Refusing(TorchDispatchMode):
    """Refuses the operators of aten that are called `names`; {name: what was forbidden}."""

    def __init__(self, names):
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if (path := self.names.get(operator.overloadpacket.__name__)) is not None:
            raise RuntimeError(_sentence(path))
        return operator(*args, **kwargs or {})


class Forbidden:
    """Makes what the paths `forbidden` name refuse in this process, until `give_back`."""

    def __init__(self, forbidden: Iterable[str]):
        # codes: (function, the code that refuses, its own)
        self.codes, self.undo, operators = (
            [],
            [],
            {},
        )
        self.refusing = []  # functions that stand where something written in C stood
        for path in forbidden:
            for thing in _things(path):
                if isinstance(thing, types.FunctionType):
                    self.codes += _codes(thing, path)
                elif isinstance(thing, type):
                    self.codes += [
                        code
                        for kind in (thing, *_below(thing))
                        for code in _codes_of_class(kind, path)
                    ]
                elif callable(thing):
                    self.refusing.append(refusing := _refusing(path))
                    self.undo += _exchange(thing, refusing, path)
                    operators[thing.__name__] = path
        if operators:
            mode = _Refusing(operators)
            mode.__enter__()
            self.undo.append(lambda: mode.__exit__(None, None, None))
        for function, refusing, _ in self.codes:
            function.__code__ = refusing

    def give_back(self) -> None:
        """Undo all."""
        for function, _, own in self.codes:
            function.__code__ = own
        for step in reversed(self.undo):
            step()


def source_files(forbidden: Iterable[str]) -> list[str]:
    """The files that hold the text or the compiled code of what is forbidden, folders for packages,
    in order.

    None of them lies in another: where a folder is covered, nothing in it can be.
    """
    files = set()
    for path in forbidden:
        module = sys.modules.get(path)
        if module is not None and hasattr(module, "__path__"):
            files.update(module.__path__)
            continue
        for thing in [module] if module is not None else _things(path):
            try:
                file = Path(inspect.getsourcefile(inspect.unwrap(thing)))
            except TypeError:  # written in C
                continue
            files |= {str(file), *map(str, file.parent.glob(f"__pycache__/{file.stem}.*.pyc"))}
    return sorted(
        file for file in files if not files & {str(parent) for parent in Path(file).parents}
    )


def _sentence(path):
    return f"the task does not allow {path}. Write it yourself."


def _things(path) -> Iterator:
    """Every function, class or other callable that `path` names, or that is made in the module that
    it names.
    """
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        place = sys.modules.get(".".join(parts[:cut]))
        for name in parts[cut:]:
            place = inspect.getattr_static(place, name, None)
        if inspect.ismodule(place):
            inside = [
                module
                for name, module in [*sys.modules.items()]
                if f"{name}.".startswith(f"{path}.")
            ]
            values = {
                id(value): value for module in inside for value in [*vars(module or path).values()]
            }
            home = (str(getattr(value, "__module__", None)) for value in values.values())
            yield from [
                value
                for value, made_in in zip(values.values(), home, strict=True)
                if isinstance(value, (types.FunctionType, type))
                and f"{made_in}.".startswith(f"{path}.")
            ]
        elif place is not None:
            yield place


def _below(kind):
    for inner in type.__subclasses__(kind):
        yield inner
        yield from _below(inner)


def _codes_of_class(kind, path):
    """As `_codes`, of all methods of a class."""
    codes = []
    for value in list(
        vars(kind).values()
    ):  # one that other classes share, such as Enum.__new__, is not its own
        inner = getattr(value, "__func__", value)  # of a static method or a class method
        accessors = (
            (value.fget, value.fset, value.fdel) if isinstance(value, property) else (inner,)
        )
        own = [
            function
            for function in accessors
            if getattr(function, "__module__", None) == kind.__module__
        ]
        codes += [code for function in own for code in _codes(function, path)]
    return codes


def _codes(function, path):
    """[(function, code that refuses, its own code)] of a function of Python and of what it
    wraps.
    """
    codes = []
    while isinstance(function, types.FunctionType):
        own = function.__code__
        codes.append((function, _refusing_code(own, path), own))
        function = vars(function).get("__wrapped__")
    return codes


def _refusing_code(own, path):
    """The code of a function that refuses: of the same kind as the code `own`, with as many free
    names.
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
    place = {}
    exec(text, place)
    return place["make"](*own.co_freevars).__code__


def _refusing(path):
    """A function that refuses, for something written in C."""

    def refused(*_args, **_kwargs):
        raise RuntimeError(_sentence(path))

    return refused


def _exchange(thing, refused, path):
    """What undoes that something written in C is exchanged for `refused` wherever a name or a list
    holds it.
    """
    top, undo = path.partition(".")[0], []
    modules = [
        vars(m)
        for name, m in [*sys.modules.items()]
        if f"{name}.".startswith(f"{top}.") and inspect.ismodule(m)
    ]
    seen = {id(modules), *map(id, (lambda: (thing, refused)).__closure__)}
    for holder in [
        *modules,
        *gc.get_referrers(thing),
    ]:  # the latter sees nothing of what was there before the fork
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        if isinstance(holder, dict):
            for key in [key for key, value in holder.items() if value is thing]:
                holder[key] = refused
                undo.append(lambda holder=holder, key=key: holder.__setitem__(key, thing))
        elif isinstance(holder, list):
            for place in [place for place, value in enumerate(holder) if value is thing]:
                holder[place] = refused
                undo.append(lambda holder=holder, place=place: holder.__setitem__(place, thing))
        elif isinstance(holder, types.CellType) and holder.cell_contents is thing:
            holder.cell_contents = refused
            undo.append(lambda holder=holder: setattr(holder, "cell_contents", thing))
        elif isinstance(holder, tuple):
            for function in gc.get_referrers(holder):
                if isinstance(function, types.FunctionType) and function.__defaults__ is holder:
                    changed = tuple(refused if value is thing else value for value in holder)
                    function.__defaults__ = changed
                    undo.append(
                        lambda function=function, holder=holder: setattr(
                            function, "__defaults__", holder
                        )
                    )
    return undo
