"""What the source of an answer must not use: a live answer and what its task forbids -> *a
sentence*, or None.

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

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_REFUSED = "which the task does not allow. Write it yourself."
_UNKNOWN = object()  # what a name stands for that may be anything


def refusal(answer, forbids):
    """Say where an answer uses what its task forbids.

    Args:
        answer: function, class or anything else, as a notebook holds it.
        forbids: dotted paths of functions, classes or modules. A module stands for all that is made
            in it, a class for its subclasses and objects too.

    Returns: str, one sentence on the first place, the answer's own source before its helpers'; None
        if there is none, or no source.
    """
    forbidden = {path: _objects(path) for path in forbids}
    seen, waiting = set(), [answer] * bool(forbids)
    while waiting:
        value = waiting.pop(0)
        if path := _forbidden(value, forbidden):
            return f"`{_name(value)}` is {path} or derived from it, {_REFUSED}"
        for function in _functions(value):
            if function.__code__ in seen:
                continue
            seen.add(function.__code__)
            for node, used in _uses(function):
                if path := _forbidden(used, forbidden):
                    return f"line {node.lineno}, `{_line(function, node)}`, uses {path}, {_REFUSED}"
                if (
                    getattr(used, "__module__", None) == function.__module__
                ):  # a helper: its source counts too
                    waiting.append(used)
    return None


def _objects(path):
    """What is loaded at a dotted path: a list, since a function may have the name of its module."""
    parts, places = path.split("."), []
    for cut in range(len(parts), 0, -1):
        place = sys.modules.get(".".join(parts[:cut]), _UNKNOWN)
        for name in parts[cut:]:
            place = _member(place, name)
        if place is not _UNKNOWN:
            places.append(place)
    return places


def _member(owner, name):
    """What a module or a class holds under `name`; of other objects, and of what is imported late,
    nothing is known.
    """
    if inspect.ismodule(owner):
        return vars(owner).get(name, _UNKNOWN)
    return getattr(owner, name, _UNKNOWN) if isinstance(owner, type) else _UNKNOWN


def _forbidden(value, forbidden):
    """The forbidden path that `value` is, belongs to, inherits from or is an object of; None if it
    is none.
    """
    return next(
        (
            path
            for path, targets in forbidden.items()
            if any(_is(value, target) for target in targets)
        ),
        None,
    )


def _is(value, target):
    if inspect.ismodule(target):
        home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        return f"{home}.".startswith(f"{target.__name__}.")
    if isinstance(target, type):
        return issubclass(value if isinstance(value, type) else type(value), target)
    return value is target


def _functions(value):
    """The functions, without decorators, that a function is, or that a class or the class of an
    object holds.
    """
    held = (
        [value]
        if inspect.isfunction(value)
        else vars(value if isinstance(value, type) else type(value)).values()
    )
    held = [
        inspect.unwrap(getattr(one, "fget", None) or getattr(one, "__func__", one)) for one in held
    ]
    return [function for function in held if inspect.isfunction(function)]


def _uses(function):
    """[(node, what it stands for)] of every name and every a.b.c in the source of `function`, as
    far as it is known.
    """
    uses = []
    for root in _syntax(function):
        names = _local_names(function, root)
        notes = {
            id(getattr(node, kind, None))
            for node in ast.walk(root)
            for kind in ("annotation", "returns")
        }
        waiting = [root]
        while waiting:
            node = waiting.pop(0)
            if id(node) in notes:
                continue
            if (
                isinstance(node, (ast.Name, ast.Attribute))
                and (value := _value(node, names)) is not _UNKNOWN
            ):
                uses.append((node, value))
            waiting += ast.iter_child_nodes(node)
    return sorted(uses, key=lambda use: use[0].lineno)


def _syntax(function):
    """The nodes of the file that may define `function`; none where Python does not have its
    text.
    """
    code = function.__code__
    return _definitions("".join(linecache.getlines(code.co_filename))).get(code.co_firstlineno, [])


@functools.lru_cache(8)  # or a cell of many helpers is read once for each of them
def _definitions(text):
    """{number of the first line: its nodes} of the functions in `text`; {} if that is no Python."""
    by_line = {}
    with contextlib.suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, _FUNCTIONS):
                by_line.setdefault(_first_line(node), []).append(node)
    return by_line


def _first_line(node):
    return min(part.lineno for part in (node, *getattr(node, "decorator_list", [])))


def _local_names(function, root):
    """{name: what it stands for} in `function`: its globals, its closure, and what its own text
    imports and assigns.
    """
    names = collections.ChainMap({}, function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            names[name] = cell.cell_contents
    nodes = [*ast.walk(root)]
    stored = {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    names |= dict.fromkeys(
        stored | {node.arg for node in nodes if isinstance(node, ast.arg)}, _UNKNOWN
    )
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {
                name: next(reversed(_objects(path)), _UNKNOWN) for name, path in _imported(node)
            }
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = _value(node.value, names)
    return names


def _imported(node):
    """(name, dotted path) of each name that an import statement binds."""
    for item in node.names:
        top = item.name.split(".")[0]
        if isinstance(node, ast.ImportFrom):
            yield item.asname or item.name, f"{node.module}.{item.name}"
        else:
            yield item.asname or top, item.name if item.asname else top


def _value(node, names):
    """What a name or a.b.c stands for; _UNKNOWN for any other expression."""
    if isinstance(node, ast.Attribute):
        return _member(_value(node.value, names), node.attr)
    return names.get(node.id, _UNKNOWN) if isinstance(node, ast.Name) else _UNKNOWN


def _line(function, node):
    return linecache.getline(function.__code__.co_filename, node.lineno).strip()[:60]


def _name(value):
    return str(getattr(value, "__name__", type(value).__name__))[:60]
