"""Known mistakes of exercise hidden_syncs, and right answers in other styles."""

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from course.checks.engine import alternative, mistake

WAITS = set("item tolist cpu numpy nonzero __bool__ __int__ __float__ __index__ __array__ __repr__ __format__".split())


class _Kept(TorchFunctionMode):
    """Notes waits in a list that is its own; `kept` says which names count."""

    def __init__(self, kept=WAITS):
        super().__init__()
        self.kept, self.found = kept, []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in self.kept:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def _with(mode, call):
    with mode:
        call()
    return mode.found


class _Everything(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.found.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


class _Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "_local_scalar_dense" in str(func):
            self.found.append("item")
        return func(*args, **(kwargs or {}))


class _WithoutOptions(_Kept):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, {})


class _Swallowing(_Kept):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        super().__torch_function__(func, types, args, kwargs)


class _OneForAll(_Kept):
    shared = []

    def __init__(self):
        super().__init__()
        self.found = self.shared


@mistake("hidden_syncs", "Every function of torch is listed. Keep only the names in `waits`.")
def lists_everything(call):
    return _with(_Everything(), call)


@mistake("hidden_syncs", "Only .item() is looked for. All names in `waits` count.")
def items_only(call):
    return _with(_Kept({"item"}), call)


@mistake(
    "hidden_syncs",
    "A TorchDispatchMode sees operations below Python: on a CPU .cpu(), .tolist() and .numpy() are none. Use a "
    "TorchFunctionMode.",
)
def dispatched_operations(call):
    return _with(_Dispatched(), call)


@mistake(
    "hidden_syncs",
    "The mode does not return what func returns, so every call of torch gives None. Return func(*args, **kwargs).",
)
def returns_nothing(call):
    return _with(_Swallowing(), call)


@mistake("hidden_syncs", "Keyword arguments are lost. Hand them on: func(*args, **(kwargs or {})).")
def without_keywords(call):
    return _with(_WithoutOptions(), call)


@mistake(
    "hidden_syncs", "The list belongs to the class, so a second count still holds the first. Make a new one each time."
)
def one_list_for_all(call):
    return _with(_OneForAll(), call)


@mistake("hidden_syncs", "Each name is listed once. Three waits of a kind are three waits: append every time.")
def each_name_once(call):
    return list(dict.fromkeys(_with(_Kept(), call)))


@mistake(
    "hidden_syncs",
    "The names are made a set: each stands there once, and their order is lost. Append every name to a list.",
)
def set_of_names(call):
    return sorted(set(_with(_Kept(), call)))


@mistake("hidden_syncs", "The names are sorted. Return them in the order of the calls.")
def sorted_names(call):
    return sorted(_with(_Kept(), call))


@mistake("hidden_syncs", "The number of waits is returned. Return the list of their names.")
def the_number(call):
    return len(_with(_Kept(), call))


@mistake("hidden_syncs", "The call is made twice. Once is enough, inside the mode.")
def called_twice(call):
    call()
    return _with(_Kept(), call)


@mistake("hidden_syncs", "An exception of the call is swallowed, and its caller never learns of it. Let it pass.")
def swallows_exceptions(call):
    mode = _Kept()
    try:
        return _with(mode, call)
    except Exception:
        return mode.found


@mistake("hidden_syncs", "print() and f-strings are missing: they need the value, too (__repr__, __format__).")
def without_printing(call):
    return _with(_Kept(WAITS - {"__repr__", "__format__"}), call)


@alternative("hidden_syncs")
def a_class_with_a_list(call):
    mode = _Kept()
    with mode:
        call()
    return mode.found


@alternative("hidden_syncs")
def everything_then_filtered(call):
    return [name for name in _with(_Everything(), call) if name in WAITS]
