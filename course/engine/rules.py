"""What the source of an answer must not use: an answer and what its task forbids -> *a sentence*.

    refusal(answer, ["torch.nn.parallel", "torch.distributed.reduce"])

The text of the answer, and of the notebook's functions and classes that it uses, is read for names;
what a global name or `a.b.c` stands for is looked up where the answer lives, so an alias, an import
or a subclass hides nothing. Where a name may be anything, nothing is said. A name that is made
while the answer runs is left to the grader, which takes away the thing itself
(instructor/jail/forbidden.py).
"""

import ast
import collections
import contextlib
import functools
import inspect
import linecache
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from types import FunctionType
from typing import Any, NamedTuple

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_REFUSED = "which the task does not allow. Write it yourself."
_UNKNOWN = object()  # what a name stands for that may be anything
# nothing that torch calls itself while an honest answer runs; a probe would no longer see operators
_NEVER = ("torch.utils._python_dispatch._disable_current_modes",)
# forbidden path -> what does the same work under names that no documentation has
_PRIVATE = {
    "torch.optim": (
        "torch._fused_adam_",
        "torch._fused_adamw_",
        "torch._fused_sgd_",
        "torch._fused_adagrad_",
    ),
}
_FUNCTIONAL = "torch.nn.functional."
SHOWN_LENGTH = 60  # characters of a line or a name in the sentence


class _Use(NamedTuple):
    """A name or `a.b.c` in a source, and what it stands for."""

    node: ast.Name | ast.Attribute | ast.Call
    value: Any


class _Late(str):
    """The dotted path of what is not imported yet."""


def private_names(path: str) -> tuple[str, ...]:
    """The dotted paths of what does the same as the forbidden `path`, in private parts of torch."""
    if path.startswith(_FUNCTIONAL):
        name = path.removeprefix(_FUNCTIONAL)
        places = ("torch._refs.nn.functional", "torch._C._nn", "torch.ops.aten")
        return (*(f"{place}.{name}" for place in places), f"torch.ops.aten.{name}_")
    found = list(_PRIVATE.get(path, ()))
    for name in _PRIVATE.get(path, ()):
        found.append(name.replace("torch.", "torch.ops.aten.", 1))
    return tuple(found)


def refusal(answer: Any, forbids: Iterable[str]) -> str | None:
    """Say where an answer uses what its task forbids.

    Args:
        answer: function, class or anything else, as a notebook holds it.
        forbids: dotted paths of functions, classes or modules. A module stands for all that is made
            in it, a class for its subclasses and objects too.

    Returns: one sentence on the first place, the answer's own source before its helpers'; None if
        there is none, or no source.
    """
    forbidden = {path: _targets(path) for path in forbids}
    if not forbidden:
        return None
    forbidden |= {never: _targets(never) for never in _NEVER}
    read = set()
    waiting = collections.deque([answer])
    while waiting:
        value = waiting.popleft()
        path = _forbidden(value, forbidden)
        if path:
            return f"`{_name(value)}` is {path} or derived from it, {_REFUSED}"
        for function in _functions(value):
            if function.__code__ not in read:
                read.add(function.__code__)
                uses = _uses(function)
                sentence = _first_refused(function, uses, forbidden)
                if sentence:
                    return sentence
                waiting += _helpers(function, uses)
    return None


def _first_refused(
    function: FunctionType, uses: list[_Use], forbidden: Mapping[str, list[Any]]
) -> str | None:
    """The sentence on the first forbidden thing that `function` uses, or None."""
    for use in uses:
        path = _forbidden(use.value, forbidden)
        if path:
            line = _line(function, use.node)
            return f"line {use.node.lineno}, `{line}`, uses {path}, {_REFUSED}"
    return None


def _helpers(function: FunctionType, uses: list[_Use]) -> list[Any]:
    """What `function` uses of its own module: its source counts too."""
    home = function.__module__
    return [use.value for use in uses if getattr(use.value, "__module__", None) == home]


def _targets(path: str) -> list[Any]:
    """What must not be used where `path` is forbidden: objects, and paths of what comes late."""
    targets: list[Any] = []
    for each in (path, *private_names(path)):
        targets += [*_objects(each), _Late(each)]
    return targets


def _objects(path: str) -> list[Any]:
    """What is loaded at a dotted path: a list, as a function may have the name of its module."""
    parts = path.split(".")
    found = []
    for cut in range(len(parts), 0, -1):
        value = sys.modules.get(".".join(parts[:cut]), _UNKNOWN)
        for name in parts[cut:]:
            value = _member(value, name)
        if value is not _UNKNOWN:
            found.append(value)
    return found


def _member(owner: Any, name: str) -> Any:
    """What a module or a class holds under `name`, else _UNKNOWN.

    Nothing is known of other objects; of what is imported late only its path.
    """
    if isinstance(owner, _Late):
        return _Late(f"{owner}.{name}")
    if type(owner).__module__ == "torch._ops" and inspect.ismodule(owner):
        return getattr(owner, name, _UNKNOWN)  # it finds operators when they are asked for
    if inspect.ismodule(owner):
        return vars(owner).get(name, _UNKNOWN)
    return getattr(owner, name, _UNKNOWN) if isinstance(owner, type) else _UNKNOWN


def _forbidden(value: Any, forbidden: Mapping[str, list[Any]]) -> str | None:
    """The forbidden path that `value` is, belongs to, inherits from or is an object of, or None."""
    for path, targets in forbidden.items():
        if any(_is(value, target) for target in targets):
            return path
    return None


def _is(value: Any, target: Any) -> bool:
    if isinstance(value, _Late) or isinstance(target, _Late):
        is_late = isinstance(value, _Late) and isinstance(target, _Late)
        return is_late and f"{value}.".startswith(f"{target}.")
    if inspect.ismodule(target):
        home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        return f"{home}.".startswith(f"{target.__name__}.")
    if isinstance(target, type):
        return issubclass(_class_of(value), target)
    return value is target


def _class_of(value: Any) -> type:
    """`value` itself if it is a class, else its class."""
    return value if isinstance(value, type) else type(value)


def _functions(value: Any) -> list[FunctionType]:
    """The functions, without decorators, that a function is, or that a class holds.

    Of any other object, those of its class.
    """
    held = [value] if inspect.isfunction(value) else vars(_class_of(value)).values()
    functions = []
    for member in held:
        # of a property, of a classmethod or staticmethod
        bare: Any = getattr(member, "fget", None) or getattr(member, "__func__", member)
        function = inspect.unwrap(bare)
        if inspect.isfunction(function):
            functions.append(function)
    return functions


def _uses(function: FunctionType) -> list[_Use]:
    """Every name and every a.b.c in the source of `function` that is known, in order of lines."""
    uses = []
    for root in _syntax(function):
        names = _local_names(function, root)
        for node in _without_annotations(root):
            if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
                value = _value(node, names)
                if value is not _UNKNOWN:
                    uses.append(_Use(node, value))
    return sorted(uses, key=lambda use: use.node.lineno)


def _without_annotations(root: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of `root`, level by level, except annotations, which use nothing."""
    annotations = set()
    for node in ast.walk(root):
        for kind in ("annotation", "returns"):
            annotations.add(id(getattr(node, kind, None)))
    waiting = collections.deque([root])
    while waiting:
        node = waiting.popleft()
        if id(node) not in annotations:
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def _syntax(function: FunctionType) -> list[ast.AST]:
    """The nodes that may define `function`; none where Python does not have its text."""
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename))
    return _definitions(text).get(code.co_firstlineno, [])


@functools.lru_cache(8)  # or a cell of many helpers is read once for each of them
def _definitions(text: str) -> dict[int, list[ast.AST]]:
    """{first line: its nodes} of the functions in `text`; {} if that is not valid Python."""
    by_line: dict[int, list[ast.AST]] = {}
    with contextlib.suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, _FUNCTIONS):
                by_line.setdefault(_first_line(node), []).append(node)
    return by_line


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min(part.lineno for part in (node, *decorators))


def _local_names(function: FunctionType, root: ast.AST) -> MutableMapping[str, Any]:
    """{name: what it stands for} in `function`.

    Known are its globals, its closure, and what its own text imports and assigns.
    """
    names: MutableMapping[str, Any] = collections.ChainMap({}, function.__globals__)
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            names[name] = cell.cell_contents
    names.update(dict.fromkeys(_stored(root), _UNKNOWN))
    for node in ast.walk(root):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name, path in _imported(node):
                objects = _objects(path)
                names[name] = objects[-1] if objects else _Late(path)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = _value(node.value, names)
    return names


def _stored(root: ast.AST) -> Iterator[str]:
    """Yield the names of the parameters of a function, and those that it assigns."""
    for node in ast.walk(root):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield (name, dotted path) of each name that an import statement binds."""
    for item in node.names:
        top = item.name.split(".")[0]
        if isinstance(node, ast.ImportFrom):
            yield item.asname or item.name, f"{node.module}.{item.name}"
        else:
            yield item.asname or top, item.name if item.asname else top


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """What a name, a.b.c or getattr(a.b, "c") stands for; _UNKNOWN for other expressions."""
    if isinstance(node, ast.Attribute):
        return _member(_value(node.value, names), node.attr)
    if isinstance(node, ast.Call):
        return _value_of_getattr(node, names)
    return names.get(node.id, _UNKNOWN) if isinstance(node, ast.Name) else _UNKNOWN


def _value_of_getattr(node: ast.Call, names: Mapping[str, Any]) -> Any:
    """What `getattr(owner, "name")` stands for; _UNKNOWN for any other call."""
    is_getattr = isinstance(node.func, ast.Name) and node.func.id == "getattr"
    if not is_getattr or len(node.args) < 2:
        return _UNKNOWN
    owner, name = node.args[:2]
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return _UNKNOWN
    return _member(_value(owner, names), name.value)


def _line(function: FunctionType, node: ast.expr) -> str:
    text = linecache.getline(function.__code__.co_filename, node.lineno)
    return text.strip()[:SHOWN_LENGTH]


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", type(value).__name__))[:SHOWN_LENGTH]
