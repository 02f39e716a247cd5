"""What a probe has put around an answer, where the answer runs in another process.

    probe's process:     around = Around();  with around.off(): ...   what is in force here, but not for messages
    learner's process:   with Beside(table, proxy, **what): ...       the same there, while the answer runs

A probe counts torch's operations by a dispatch mode and lines by a trace function, keeps what is printed, and patches
functions that the answer must not call or whose calls it counts.  Operations, lines and text are noted in the learner's
process, sent as plain data and told to the probe's own mode, trace function and stream, as if the answer had run beside
them; a patched function is called in the probe's process.  So counts are the word of the learner's process; values are
compared outside of it, as ever.
"""

import contextlib
import io
import re
import sys
import time
from unittest import mock

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
)
from torch.utils._pytree import tree_leaves

from course.checks.wire import WireError

PATCHED = {"numpy": torch.Tensor, "__array__": torch.Tensor, "__dlpack__": torch.Tensor, "perf_counter": time}
_ORIGINAL = {name: vars(owner).get(name) for name, owner in PATCHED.items()}
MOST_NOTED = 20_000  # operations and tensors of them, in one message; what an answer does beyond is not noted
MOST_LINES = 1_000_000
_NAME = re.compile(r"aten\.\w{1,60}\.\w{1,30}", re.ASCII)
_WAITS = torch.ops.aten._local_scalar_dense.default


def _is_a_probes(thing):
    return str(getattr(thing, "__module__", "")).startswith("course.checks")


class Around:
    """What a probe has in force in this process: its modes, its trace function, the functions that it has patched."""

    def __init__(self):
        self.modes = [mode for mode in _get_current_dispatch_mode_stack() if _is_a_probes(type(mode))]
        self.trace = sys.gettrace() if _is_a_probes(sys.gettrace()) else None
        self.stream = sys.stdout if type(sys.stdout) is io.StringIO else None
        now = {name: vars(owner).get(name) for name, owner in PATCHED.items()}
        self.patches = {name: f for name, f in now.items() if _is_a_probes(f) or isinstance(f, mock.Mock)}

    def what(self, keep) -> dict:
        """What a Beside is made of; `keep` gives a function its number."""
        patches = {name: keep(function) for name, function in self.patches.items()}
        flags = {"operations": bool(self.modes), "lines": bool(self.trace), "prints": bool(self.stream)}
        return flags | {"patches": patches}

    @contextlib.contextmanager
    def off(self):
        """Inside, nothing of it is in force."""
        if not (self.modes or self.trace or self.patches):
            yield
            return
        if self.trace:
            sys.settrace(None)
        _patch({name: _ORIGINAL[name] for name in self.patches})
        try:
            with _disable_current_modes() if self.modes else contextlib.nullcontext():
                yield
        finally:
            _patch(self.patches)
            if self.trace:
                sys.settrace(self.trace)

    @contextlib.contextmanager
    def on(self):
        """Inside, which is inside of `off`, it is in force again."""
        with contextlib.ExitStack() as stack:
            for mode in self.modes:
                stack.enter_context(mode)
            _patch(self.patches)
            stack.callback(_patch, {name: _ORIGINAL[name] for name in self.patches})
            if self.trace:
                stack.callback(sys.settrace, None)
                sys.settrace(self.trace)
            yield

    def tell(self, noted, table) -> None:
        """Tell modes and trace function what a Beside has noted.  Raises: WireError if that makes no sense."""
        try:
            lines, operations, printed = noted
            if type(lines) is not int or not 0 <= lines <= MOST_LINES:
                raise WireError("a number of lines that is none")
            if type(operations) is not list or len(operations) > MOST_NOTED:
                raise WireError("too many operations in one message")
            if self.stream and type(printed) is str:
                self.stream.write(printed)
            for _ in range(lines if self.trace else 0):
                self.trace(None, "line", None)
            for operation in operations if self.modes else ():
                self._tell(*operation, table)
        except (TypeError, ValueError, RuntimeError, LookupError, AttributeError) as error:
            said = error if isinstance(error, WireError) else "an operation that is none"
            raise WireError(f"what your code's process says of its work makes no sense: {said}") from None

    def _tell(self, name, given, got, table):
        given, got = ([_StandIn.of(piece, table) for piece in pieces] for pieces in (given, got))
        operation = _operation(name)
        if operation is _WAITS:
            function, given = operation, [torch.zeros(())]
        else:
            function = _Done(getattr(operation, "_schema", None), got)
        for mode in self.modes:
            mode.__torch_dispatch__(function, (), tuple(given), {})


class Beside:
    """Notes what an answer does, and has functions patched, inside `with`, in the learner's process.

    Args:
        table: the shared tensors.
        proxy: function of a number that gives what is called instead of a patched function.
        operations, lines, prints: whether to note these.
        patches: {name of PATCHED: number}.
    """

    def __init__(self, table, proxy, operations, lines, prints, patches):
        self.recorder, self.is_on = _Recorder(table) if operations else None, False
        self.counts_lines, self.lines = lines, 0
        self.stream, self.stdout = io.StringIO() if prints else None, sys.stdout
        self.patches = {name: proxy(number) for name, number in patches.items()}

    def __enter__(self):
        if self.recorder:
            self.recorder.__enter__()
        self._turn(True)
        return self

    def __exit__(self, *error):
        self._turn(False)
        if self.recorder:
            self.recorder.__exit__(None, None, None)

    @contextlib.contextmanager
    def paused(self):
        """Inside, nothing is noted or patched: this process does not run the answer."""
        was = self.is_on
        self._turn(False)
        try:
            yield
        finally:
            self._turn(was)

    def noted(self):
        """[lines, operations, text printed] since the last time; None where nothing is to be noted."""
        if not (self.recorder or self.counts_lines or self.stream):
            return None
        lines, self.lines = min(self.lines, MOST_LINES), 0
        printed = self.stream.getvalue()[:MOST_NOTED] if self.stream else ""
        if self.stream:
            self.stream.seek(0), self.stream.truncate()
        return [lines, self.recorder.taken() if self.recorder else [], printed]

    def _turn(self, on):
        self.is_on = on
        if self.stream:
            sys.stdout = self.stream if on else self.stdout
        if self.recorder:
            self.recorder.is_on = on
        _patch(self.patches if on else {name: _ORIGINAL[name] for name in self.patches})
        if self.counts_lines:
            sys.settrace(self._count if on else None)

    def _count(self, frame, event, arg):
        self.lines += 1
        return self._count


class _Recorder(TorchDispatchMode):
    """Notes operations: [name, tensors given, tensors got], a tensor as its memory, shape, dtype and bytes."""

    def __init__(self, table):
        super().__init__()
        self.table, self.is_on, self.operations, self.room = table, False, [], MOST_NOTED

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not self.is_on or self.room <= 0:
            return func(*args, **(kwargs or {}))
        given = self._pieces((args, kwargs))
        result = func(*args, **(kwargs or {}))
        got = self._pieces(result)
        self.operations.append([str(func), given, got])
        self.room -= 1 + len(given) + len(got)
        return result

    def _pieces(self, value):
        return [self._piece(leaf) for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]

    def _piece(self, tensor):
        memory = tensor.untyped_storage()
        number = self.table.number_of_memory(memory.data_ptr())
        return [memory.data_ptr(), number, str(tensor.dtype)[6:], list(tensor.shape), memory.nbytes()]

    def taken(self):
        found, self.operations, self.room = self.operations, [], MOST_NOTED
        return found


class _Memory:
    """Stands for memory of the learner's process; that of a shared tensor is said to be what it is here."""

    def __init__(self, address, size):
        self.address, self.size = address, size

    def data_ptr(self):
        return self.address

    def nbytes(self):
        return self.size


class _StandIn(torch.Tensor):
    """A tensor without values."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise TypeError("it has no values")

    @classmethod
    def of(cls, piece, table):
        """The one that a Recorder's piece describes.  Raises: ValueError, TypeError, RuntimeError."""
        address, number, dtype, shape, size = piece
        dtype = getattr(torch, dtype) if type(dtype) is str and len(dtype) < 20 else None
        whole = (address, size, *shape) if type(shape) is list and len(shape) <= 64 else (None,)
        if not isinstance(dtype, torch.dtype) or not all(type(n) is int and 0 <= n < 2**63 for n in whole):
            raise WireError("a tensor that is none")
        shared = None if number is None else table.tensor(number)
        made = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype)
        made.memory = _Memory(("there", address) if shared is None else shared.untyped_storage().data_ptr(), size)
        return made

    def untyped_storage(self):
        return self.memory


class _Done:
    """Stands for an operation that was done elsewhere: calling it gives its results."""

    def __init__(self, schema, got):
        self._schema, self.got = schema or torch.ops.aten.add.Tensor._schema, got

    def __call__(self, *args, **kwargs):
        return self.got[0] if len(self.got) == 1 else self.got


def _operation(name):
    """The operator of torch's own with this name, or None."""
    if type(name) is not str or not _NAME.fullmatch(name):
        return None
    _, packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload, None)


def _patch(functions):
    """Put `functions`, {name of PATCHED: function, or None for what is inherited}, in their places."""
    for name, function in functions.items():
        if function is not None:
            setattr(PATCHED[name], name, function)
        elif name in vars(PATCHED[name]):
            delattr(PATCHED[name], name)
