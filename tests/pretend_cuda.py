"""A CUDA device that is not there: tensors that Python sees on cuda:0, computed on the CPU, that refuse what CUDA does.

    with pretend_cuda():
        x = torch.randn(3, device="cuda")  # x.device is cuda:0, x.is_cuda is True
        x + torch.ones(3)                  # RuntimeError: two devices
        x.numpy()                          # TypeError, as on a GPU

It finds tensors of two devices in one operation, numpy of a CUDA tensor, a CPU generator for a CUDA tensor, an index on
CUDA into a CPU tensor, CUDA in a forked child, a second GPU, and code behind `device.type == "cuda"` that does not even
run.  Autocast of CUDA casts as CUDA's does (pretend_autocast.py).  It shows no kernels, races, times, memory and
rounding.  It holds in every thread that starts inside of the block, and in forked children; a spawned one does not know
of it, unless PRETEND_CUDA is in its environment and pretended/ on its PYTHONPATH.

How: a wrapper subclass on a PrivateUse1 device that is implemented in Python (torch.utils.backend_registration), as the
autograd engine asks the real CUDA runtime about a device called cuda.  C++ sees `pretend:0`, Python sees cuda:0; a
TorchFunctionMode translates names in calls, a TorchDispatchMode runs the operations on the tensors inside.
"""

import contextlib
import copy
import functools
import os
import sys
import threading
import time
import types
import weakref
from unittest import mock

import pretend_autocast
import pretend_torch
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

try:
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
except ImportError:
    pytest.skip(f"torch {torch.__version__} cannot pretend a CUDA device, a newer one can", allow_module_level=True)

NAME = "pretend"
FORKED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start "
    "method"
)
BACKEND = types.SimpleNamespace(
    is_available=lambda: True,
    is_initialized=lambda: True,
    _is_in_bad_fork=lambda: False,
    current_device=lambda: 0,
    device_count=lambda: 1,
    manual_seed=lambda seed: None,
    manual_seed_all=lambda seed: None,
    get_rng_state=lambda device=None: torch.get_rng_state(),
    set_rng_state=lambda state, device=None: torch.set_rng_state(state),
    synchronize=lambda device=None: None,
    get_amp_supported_dtype=lambda: [torch.float16, torch.bfloat16],
)
_setup_privateuseone_for_python_backend(NAME, backend_module=BACKEND)
CPU = torch.device("cpu")
INSIDE = torch.device(NAME, 0)  # what C++ sees
SEEN = torch.device("cuda", 0)  # what Python sees
Generator = torch.Generator
USED_BY = {}  # "process": the first that computed on the device; its forked children cannot
PYTHON = torch._C.DispatchKeySet(torch._C.DispatchKey.Python)
aten = torch.ops.aten
# what takes tensors of several devices on a real GPU, too
MIXED = {aten.copy_.default, aten._to_copy.default, aten.set_.source_Tensor, aten._foreach_copy_.default}
# what takes the offsets or lengths of a nested tensor, or of a packed sequence, from the CPU
MIXED |= {aten._nested_view_from_jagged.default, aten._pack_padded_sequence.default}
# what takes no number of the CPU in the place of a tensor on CUDA
NO_NUMBER = {aten.cat.default, aten.stack.default, aten.index_select.default, aten.gather.default, aten.equal.default,
             aten.embedding.default, aten.index_add_.default, aten.scatter_.src, aten.dot.default}  # fmt: skip
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default,
            aten._unsafe_index.Tensor}  # fmt: skip


def untraced(function):
    """`function`, whose lines a check that counts lines of Python does not see: those of CUDA are not Python."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        trace = sys.gettrace()
        sys.settrace(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.settrace(trace)

    return call


class PretendCuda(torch.Tensor):
    """A tensor on cuda:0 whose values are in `inner`, on the CPU."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            layout=inner.layout, device=INSIDE, requires_grad=inner.requires_grad)  # fmt: skip

    def __init__(self, inner):
        self.inner = inner

    device = property(lambda self: SEEN)
    is_cuda = property(lambda self: True)
    data = property(torch.Tensor.data.__get__, lambda self, new: _set_data(self, new))  # what module.half() sets
    __torch_function__ = torch._C._disabled_torch_function_impl

    def numpy(self, *args, **kwargs):
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    __array__ = numpy

    def tolist(self):
        return self.inner.tolist()

    def is_pinned(self, *args):
        return False

    def as_subclass(self, cls):
        """This tensor as one of `cls` as well, as torch makes it of any tensor; without a graph."""
        return self if isinstance(self, cls) else _both(cls)(self.inner.detach())

    def data_ptr(self):
        return self.inner.data_ptr()

    def untyped_storage(self):
        return self.inner.untyped_storage()

    def get_device(self):
        return 0

    def __format__(self, spec):
        return self.inner.__format__(spec)

    def __repr__(self):
        return f"{self.inner!r} (device='cuda:0', pretended)"

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            made = PretendCuda(self.inner.detach().clone()).requires_grad_(self.requires_grad)
            memo[id(self)] = torch.nn.Parameter(made, self.requires_grad) if _is_parameter(self) else made
            memo[id(self)].grad = copy.deepcopy(self.grad, memo)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return PretendCuda, (self.inner.detach(),)

    @classmethod
    @untraced
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


def _set_data(tensor, new):
    torch.Tensor.data.__set__(tensor, new)
    tensor.inner = new.inner


def _is_parameter(tensor):
    return isinstance(tensor, torch.nn.Parameter)


class _Converting(PretendCuda):
    """Results of operations are of the class of their operands, as torch has it for subclasses of a tensor."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return mapped(lambda x: x.as_subclass(cls) if type(x) is PretendCuda else x, result)

    def as_subclass(self, cls):
        return PretendCuda(self.inner) if cls is torch.Tensor else super().as_subclass(cls)


@functools.cache
def _both(cls):
    """A class of tensors that are both `cls` and on cuda:0."""
    return cls if issubclass(cls, PretendCuda) else type(cls.__name__, (cls, _Converting), {})


def is_ours(x):
    return isinstance(x, PretendCuda)


def asks_for_cuda(device):
    return device is not None and torch.device(device).type in (NAME, "cuda")


def leaves(x):
    """What is in tuples, lists and dictionaries, in any nesting; torch's own pytree takes half of all the time."""
    if type(x) is dict:
        x = x.values()
    elif type(x) is not tuple and type(x) is not list:
        return [x]
    return [leaf for inner in x for leaf in leaves(inner)]


def mapped(change, x):
    """`x` with `change(leaf)` in the place of each of its leaves."""
    if type(x) is dict:
        return {key: mapped(change, inner) for key, inner in x.items()}
    return type(x)([mapped(change, inner) for inner in x]) if type(x) in (tuple, list) else change(x)


def run(func, args, kwargs):
    """The result of an operation on the tensors inside, on cuda:0 where the real one would be; or what CUDA raises."""
    if USED_BY.setdefault("process", os.getpid()) != os.getpid():
        raise RuntimeError(FORKED)
    tensors = [x for x in leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    ours = [x for x in tensors if is_ours(x)]
    _refuse_two_devices(func, tensors, args)
    device = kwargs.get("device")
    on_cuda = bool(ours) if device is None else asks_for_cuda(device)
    if func is aten.copy_.default:
        on_cuda = is_ours(args[0])
    if func is aten.is_pinned.default:
        return False
    inner_args, inner_kwargs = mapped(_inside, args), mapped(_inside, kwargs)
    if inner_kwargs.get("device") is not None:
        inner_kwargs["device"] = CPU
    if inner_kwargs.get("pin_memory"):
        inner_kwargs["pin_memory"] = False
    try:
        result = func(*inner_args, **inner_kwargs)
    except NotImplementedError as error:
        result = _in_float32(func, inner_args, inner_kwargs, error)
    for x in ours:
        if x.size() != x.inner.size() or x.stride() != x.inner.stride():  # squeeze_, t_ and their like
            with torch._C._ExcludeDispatchKeyGuard(PYTHON):
                x.data = PretendCuda(x.inner)
    given = {id(x.inner): x for x in ours}  # in-place and out= give back the very tensor that went in

    def outside(x):
        if not isinstance(x, torch.Tensor):
            return x
        return given.get(id(x)) if id(x) in given else PretendCuda(x) if on_cuda else x

    return mapped(outside, result)


def _in_float32(func, args, kwargs, error):
    """What an operation that the CPU does not have for 16-bit floats gives, as CUDA has it.  Raises: `error`."""
    small = {x.dtype for x in leaves((args, kwargs)) if isinstance(x, torch.Tensor)} & {torch.float16, torch.bfloat16}
    if len(small) != 1 or func._schema.is_mutable:
        raise error

    def wide(x):
        return x.float() if isinstance(x, torch.Tensor) and x.dtype in small else x

    def narrow(x):
        return x.to(*small) if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x

    return mapped(narrow, func(*mapped(wide, args), **mapped(wide, kwargs)))


def _inside(x):
    if isinstance(x, torch.device) and x.type in (NAME, "cuda"):
        return CPU
    return x.inner if is_ours(x) else x


def _refuse_two_devices(func, tensors, args):
    """Raise what CUDA raises where `tensors`, those in `args` and more, are not all on one device."""
    strangers = [x for x in tensors if not is_ours(x)]
    if not strangers or len(strangers) == len(tensors) or func in MIXED:
        return
    if func in INDEXING:
        if not is_ours(tensors[0]):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        if len(args) < 3 or is_ours(args[2]) or not args[2].dim():
            return
    is_written = func._schema.is_mutable and strangers[0] is tensors[0]
    numbers = 0 if func in NO_NUMBER or is_written else 1
    if len([x for x in strangers if not x.dim()]) > numbers or any(x.dim() for x in strangers):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({func})"
        )


def _refuse_generator(args, kwargs):
    """Before C++ has wrapped it, a generator still knows what it was made for."""
    flat = leaves((args, kwargs))
    for generator in [x for x in flat if isinstance(x, Generator)]:
        on_cuda = asks_for_cuda(kwargs["device"]) if kwargs.get("device") else any(map(is_ours, flat))
        if getattr(generator, "is_pretended", False) != on_cuda:
            kinds = ("cuda", "cpu") if on_cuda else ("cpu", "cuda")
            raise RuntimeError(f"Expected a '{kinds[0]}' device type for generator but found '{kinds[1]}'")


class Names(TorchFunctionMode):
    """Names of CUDA devices in calls become those of the pretended one, which C++ knows."""

    @untraced
    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        if func is torch.device or name == "device":
            return func(*args, **kwargs)
        if name == "cuda":
            device = args[1] if len(args) > 1 else kwargs.get("device")
            return args[0].to(INSIDE if device is None else _renamed(_only(device)))
        if name == "__format__" and is_ours(args[0]):
            return args[0].inner.__format__(*args[1:])
        if name in ("tensor", "as_tensor", "asarray") and asks_for_cuda(kwargs.get("device")):
            return _made(func, args, kwargs)
        _refuse_generator(args, kwargs)
        pin = kwargs.pop("pin_memory", False)
        result = func(*(_renamed(a) for a in args), **{key: _renamed(value) for key, value in kwargs.items()})
        return _pinned(result) if pin else result


def _renamed(x):
    """The device `x` as C++ is to see it, be it an object or a name; anything else as it is."""
    if isinstance(x, str) and x.split(":")[0] == "cuda":
        x = torch.device(x)
    if not isinstance(x, torch.device) or x.type != "cuda":
        return x
    if x.index:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return INSIDE


PINNED = weakref.WeakValueDictionary()  # address of pinned memory -> its storage


def _pinned(tensor):
    storage = tensor.untyped_storage()
    PINNED[storage.data_ptr()] = storage
    return tensor


def _pin_memory(tensor, device=None):
    if is_ours(tensor):
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
    return tensor if _is_pinned(tensor) else _pinned(tensor.clone())


def _is_pinned(tensor, device=None):
    return not is_ours(tensor) and tensor.untyped_storage().data_ptr() in PINNED


def _made(func, args, kwargs):
    """What torch.tensor and its like give on the pretended device: C++ makes it below the modes."""
    is_tensor = isinstance(args[0], torch.Tensor)
    made = func(*args, **{**kwargs, "device": None if is_tensor else "cpu"})
    if is_tensor or not made.requires_grad:
        return made.to(INSIDE)
    return made.detach().to(INSIDE).requires_grad_()


class Operations(TorchDispatchMode):
    """Operations that concern the pretended device."""

    @untraced
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        concerns = any(map(is_ours, leaves((args, kwargs)))) or asks_for_cuda(kwargs.get("device"))
        return run(func, args, kwargs) if concerns else func(*args, **kwargs)


# ---- what C++ asks of a device without asking Python's modes first


def _empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    return PretendCuda(torch.empty_strided(size, stride, dtype=dtype, device=CPU))


def _empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return PretendCuda(torch.empty(size, dtype=dtype, device=CPU))


def _copy_from(source, target, non_blocking=False):
    _inside(target).copy_(_inside(source))
    return target


LIBRARY = torch.library.Library("aten", "IMPL")  # kept: the kernels go with it
for operation, kernel in (("empty_strided", _empty_strided), ("empty.memory_format", _empty),
                          ("_copy_from", _copy_from)):  # fmt: skip
    LIBRARY.impl(operation, kernel, "PrivateUse1")


# ---- what torch.cuda says


class Stream:
    """A stream whose work is done when it is queued; as a context manager it is the current one inside."""

    current = threading.local()

    def __init__(self, device=None, priority=0, **kwargs):
        self.device, self.outer = SEEN if device is None else _only(device), []

    def __enter__(self):
        self.outer.append(_current_stream())
        Stream.current.stream = self
        return self

    def __exit__(self, *error):
        Stream.current.stream = self.outer.pop()

    wait_stream = wait_event = synchronize = lambda self, *given: None

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def query(self):
        return True


DEFAULT_STREAM = Stream()


def _only(device):
    """cuda:0, if `device` is that.  Raises: RuntimeError for another GPU, ValueError for no GPU."""
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type not in ("cuda", NAME):
        raise ValueError(f"Expected a cuda device, but got: {device}")
    _renamed(device)
    return SEEN


class Selected(contextlib.nullcontext):
    """Context manager that makes a device the current one; no torch.device."""

    def __init__(self, device):
        super().__init__(device is not None and _only(device))


def _current_stream(device=None):
    return getattr(Stream.current, "stream", DEFAULT_STREAM)


class Event:
    """An event that has happened; it keeps the time if it is asked to."""

    device = SEEN

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self.enable_timing, self.seconds = enable_timing, None

    def record(self, stream=None):
        self.seconds = time.perf_counter()

    wait = synchronize = lambda self, stream=None: None

    def query(self):
        return True

    def elapsed_time(self, other):
        """Milliseconds from this event to `other`, on the clock of the CPU."""
        if not (self.enable_timing and other.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.seconds is None or other.seconds is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return 1000 * (other.seconds - self.seconds)


def _generator_class():
    class OfADevice(Generator):
        """A generator of the CPU or of the pretended device."""

        def __new__(cls, device="cpu"):
            made = Generator.__new__(cls, "cpu")
            made.is_pretended = asks_for_cuda(device)
            return made

        def __init__(self, device="cpu"):
            return None

        device = property(lambda self: SEEN if self.is_pretended else CPU)

    return OfADevice


def _always(value):
    """A function that returns `value`; each is an object of its own, as torch wants its functions."""
    return lambda *args: value


def _of_cuda():
    """{name in torch.cuda: its replacement}."""
    silent = ("synchronize", "empty_cache", "_lazy_init", "reset_peak_memory_stats", "set_device", "manual_seed",
              "manual_seed_all", "set_rng_state_all")  # fmt: skip
    zero = ("current_device", "max_memory_allocated", "memory_allocated", "memory_reserved")
    made = {name: _always(None) for name in silent} | {name: _always(0) for name in zero}
    return made | {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *args, **kwargs: True,
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: 1,
        "get_device_name": lambda device=None: "a GPU that is not there",
        "get_device_capability": lambda device=None: (8, 0),
        "mem_get_info": lambda device=None: (10**9, 10**9),
        "current_stream": _current_stream,
        "default_stream": lambda device=None: DEFAULT_STREAM,
        "stream": lambda given: given or contextlib.nullcontext(),
        "set_stream": lambda given: setattr(Stream.current, "stream", given),
        "device": Selected,
        "get_device_properties": lambda device=None: types.SimpleNamespace(
            name="a GPU that is not there", total_memory=10**9, major=8, minor=0, multi_processor_count=1),
        "Stream": Stream,
        "Event": Event,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "get_rng_state_all": lambda: [],
    }  # fmt: skip


def _in_every_thread(bootstrap):
    """threading.Thread's own beginning, inside of the modes, which hold in one thread each."""

    def begin(thread):
        with Operations(), Names():
            bootstrap(thread)

    return begin


def _changes():
    """(owner, name, its replacement inside of pretend_cuda)."""
    bootstrap = threading.Thread._bootstrap_inner
    yield from ((torch.cuda, name, value) for name, value in _of_cuda().items())
    yield from ((torch, name, value) for name, value in pretend_autocast.functions().items())
    yield from [
        (torch.amp, "autocast", pretend_autocast.Autocast),
        (torch.amp.autocast_mode, "autocast", pretend_autocast.Autocast),
        (torch, "Generator", _generator_class()),
        (torch.inference_mode, "__enter__", pretend_torch.Inference.enter),
        (torch.inference_mode, "__exit__", pretend_torch.Inference.leave),
        (torch, "is_inference_mode_enabled", pretend_torch.Inference.is_on),
        (torch.nn.Module, "_apply", pretend_torch.keeping_ties(torch.nn.Module._apply)),
        (torch.Tensor, "record_stream", lambda self, stream: None),
        (torch.Tensor, "pin_memory", _pin_memory),
        (torch.Tensor, "is_pinned", _is_pinned),
        (torch.Tensor, "cuda", lambda self, device=None, non_blocking=False: self.to(device or "cuda")),
        (torch.profiler.profile, "__init__", pretend_torch.profile_of_the_cpu(torch.profiler.profile.__init__)),
        (threading.Thread, "_bootstrap_inner", _in_every_thread(bootstrap)),
    ]


@contextlib.contextmanager
def pretend_cuda():
    """Inside the block torch has one CUDA device, cuda:0, in this thread and in those that it starts."""
    USED_BY.clear()
    with contextlib.ExitStack() as stack:
        for place, name, value in _changes():
            stack.enter_context(mock.patch.object(place, name, value, create=not hasattr(place, name)))
        stack.enter_context(Operations())
        stack.enter_context(Names())
        yield
