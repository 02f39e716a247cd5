"""Known mistakes of exercise hidden_syncs, and right answers in other styles."""

from torch.overrides import TorchFunctionMode

from course.engine.known_answers import alternative

MISTAKES = {
    "lists_everything": (
        "Every function of torch is listed. Keep only the names in `waits`.",
        ("func.__name__ in waits", "True"),
    ),
    "items_only": (
        "You look only for .item(). All names in `waits` count.",
        ("in waits", '== "item"'),
    ),
    "dispatched_operations": (
        "A TorchDispatchMode sees operations below Python: on a CPU, .cpu(), .tolist() and .numpy() do not reach it. "
        "Use a TorchFunctionMode.",
        ("TorchFunctionMode", "torch.utils._python_dispatch.TorchDispatchMode"),
        ("__torch_function__", "__torch_dispatch__"),
        ("func.__name__ in waits", '"_local_scalar_dense" in str(func)'),
        ("append(func.__name__)", 'append("item")'),
    ),
    "returns_nothing": (
        "The mode does not return what func returns, so every call of torch gives None. Return func(*args, **kwargs).",
        ("return func", "func"),
    ),
    "without_keywords": (
        "Keyword arguments are lost. Pass them to func: func(*args, **(kwargs or {})).",
        (", **(kwargs or {})", ""),
    ),
    "one_list_for_all": (
        "The list belongs to the class, so a second count still holds the first. Make a new one each time.",
        ("def hidden_syncs", "shared = []\n\n\ndef hidden_syncs"),
        ("found = []", "found = shared"),
    ),
    "each_name_once": (
        "Each name is listed once. Three waits of a kind are three waits: append every time.",
        ("return found", "return list(dict.fromkeys(found))"),
    ),
    "set_of_names": (
        "The names are made a set: each appears once, and their order is lost. Append every name to a list.",
        ("return found", "return sorted(set(found))"),
    ),
    "sorted_names": (
        "The names are sorted. Return them in the order of the calls.",
        ("return found", "return sorted(found)"),
    ),
    "the_number": (
        "The number of waits is returned. Return the list of their names.",
        ("return found", "return len(found)"),
    ),
    "called_twice": (
        "The call is made twice. Once is enough, inside the mode.",
        ("    with Noting", "    call()\n    with Noting"),
    ),
    "swallows_exceptions": (
        "An exception of the call is swallowed, and its caller never learns of it. Let it pass.",
        ("with Noting", "with contextlib.suppress(Exception), Noting"),
    ),
    "without_printing": (
        "print() and f-strings are missing: they need the value, too (__repr__, __format__).",
        ('"__repr__", "__format__",', ""),
    ),
}
WAITS = set(
    "item tolist cpu numpy nonzero __bool__ __int__ __float__ __index__ __array__ __repr__ __format__".split()
)


class _Noting(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.every, self.found = [], []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        self.every.append(name)
        if name in WAITS:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@alternative
def a_class_with_a_list(call):
    mode = _Noting()
    with mode:
        call()
    return mode.found


@alternative
def everything_then_filtered(call):
    with _Noting() as mode:
        call()
    return [name for name in mode.every if name in WAITS]
