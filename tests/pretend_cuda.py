"""A CUDA device that is not there: tensors that Python sees on cuda:0, computed on the CPU, that refuse what CUDA does.

    with pretend_cuda():
        x = torch.randn(3, device="cuda")  # x.device is cuda:0, x.is_cuda is True
        x + torch.ones(3)                  # RuntimeError: two devices
        x.numpy()                          # TypeError, as on a GPU

It finds tensors of two devices in one operation, numpy of a CUDA tensor, a CPU generator for a CUDA tensor, an index on
CUDA into a CPU tensor, and code behind `device.type == "cuda"` that does not even run.  It shows no kernels, streams,
races, times and rounding, and holds in the thread that enters it.

How: a wrapper subclass on a PrivateUse1 device that is implemented in Python (torch.utils.backend_registration), as the
autograd engine asks the real CUDA runtime about a device called cuda.  C++ sees `pretend:0`, Python sees cuda:0; a
TorchFunctionMode translates names in calls, a TorchDispatchMode runs the operations on the tensors inside.
"""

import contextlib
import copy
import types
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"
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
PYTHON = torch._C.DispatchKeySet(torch._C.DispatchKey.Python)
aten = torch.ops.aten
# what takes tensors of several devices on a real GPU, too
MIXED = {aten.copy_.default, aten._to_copy.default, aten.set_.source_Tensor, aten._foreach_copy_.default}
# what takes the offsets or lengths of a nested tensor, or of a packed sequence, from the CPU
MIXED |= {aten._nested_view_from_jagged.default, aten._pack_padded_sequence.default}
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default,
            aten._unsafe_index.Tensor}  # fmt: skip


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
            made.grad = copy.deepcopy(self.grad, memo)
            memo[id(self)] = torch.nn.Parameter(made, self.requires_grad) if _is_parameter(self) else made
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return PretendCuda, (self.inner.detach(),)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


def _is_parameter(tensor):
    return isinstance(tensor, torch.nn.Parameter)


def is_ours(x):
    return isinstance(x, PretendCuda)


def asks_for_cuda(device):
    return device is not None and torch.device(device).type in (NAME, "cuda")


def run(func, args, kwargs):
    """The result of an operation on the tensors inside, on cuda:0 where the real one would be; or what CUDA raises."""
    flat, spec = tree_flatten((args, kwargs))
    ours = [x for x in flat if is_ours(x)]
    _refuse_two_devices(func, [x for x in flat if isinstance(x, torch.Tensor)])
    device = kwargs.get("device")
    on_cuda = bool(ours) if device is None else asks_for_cuda(device)
    if func is aten.copy_.default:
        on_cuda = is_ours(args[0])
    if func is aten.is_pinned.default:
        return False
    inner_args, inner_kwargs = tree_unflatten([_inside(x) for x in flat], spec)
    if inner_kwargs.get("device") is not None:
        inner_kwargs["device"] = CPU
    if inner_kwargs.get("pin_memory"):
        inner_kwargs["pin_memory"] = False
    found = func(*inner_args, **inner_kwargs)
    for x in ours:
        if x.size() != x.inner.size() or x.stride() != x.inner.stride():  # squeeze_, t_ and their like
            with torch._C._ExcludeDispatchKeyGuard(PYTHON):
                x.data = PretendCuda(x.inner)
    given = {id(x.inner): x for x in ours}  # in-place and out= give back the very tensor that went in

    def outside(x):
        if not isinstance(x, torch.Tensor):
            return x
        return given.get(id(x)) if id(x) in given else PretendCuda(x) if on_cuda else x

    return tree_map(outside, found)


def _inside(x):
    if isinstance(x, torch.device) and x.type in (NAME, "cuda"):
        return CPU
    return x.inner if is_ours(x) else x


def _refuse_two_devices(func, tensors):
    strangers = [x for x in tensors if not is_ours(x) and x.dim() > 0]
    if not strangers or len(strangers) == len(tensors) or func in MIXED:
        return
    if func in INDEXING and not is_ours(tensors[0]):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    if func not in INDEXING:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({func})"
        )


def _refuse_generator(args, kwargs):
    """Before C++ has wrapped it, a generator still knows what it was made for."""
    flat = tree_flatten((args, kwargs))[0]
    for generator in (x for x in flat if isinstance(x, Generator)):
        on_cuda = asks_for_cuda(kwargs["device"]) if kwargs.get("device") else any(map(is_ours, flat))
        if getattr(generator, "is_pretended", False) != on_cuda:
            kinds = ("cuda", "cpu") if on_cuda else ("cpu", "cuda")
            raise RuntimeError(f"Expected a '{kinds[0]}' device type for generator but found '{kinds[1]}'")


class Names(TorchFunctionMode):
    """Names of CUDA devices in calls become those of the pretended one, which C++ knows."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        if func is torch.device or name == "device":
            return func(*args, **kwargs)
        if name == "cuda":
            return args[0].to(INSIDE)
        if name == "__format__" and is_ours(args[0]):
            return args[0].inner.__format__(*args[1:])
        if name in ("tensor", "as_tensor", "asarray") and asks_for_cuda(kwargs.get("device")):
            return _made(func, args, kwargs)
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        _refuse_generator(args, kwargs)
        return func(*(_renamed(a) for a in args), **{key: _renamed(value) for key, value in kwargs.items()})


def _renamed(x):
    if isinstance(x, torch.device):
        return INSIDE if x.type == "cuda" else x
    return INSIDE if isinstance(x, str) and x.split(":")[0] == "cuda" else x


def _made(func, args, kwargs):
    """What torch.tensor and its like give on the pretended device: C++ makes it below the modes."""
    is_tensor = isinstance(args[0], torch.Tensor)
    made = func(*args, **{**kwargs, "device": None if is_tensor else "cpu"})
    if is_tensor or not made.requires_grad:
        return made.to(INSIDE)
    return made.detach().to(INSIDE).requires_grad_()


class Operations(TorchDispatchMode):
    """Operations that concern the pretended device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        flat = tree_flatten((args, kwargs))[0]
        concerns = any(map(is_ours, flat)) or asks_for_cuda(kwargs.get("device"))
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
    """A stream whose work is done when it is queued."""

    def __init__(self, *args, **kwargs):
        self.device = SEEN

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def wait_stream(self, stream):
        return None

    def wait_event(self, event):
        return None

    def synchronize(self):
        return None

    def record_event(self, event=None):
        return event or Event()

    def query(self):
        return True


class Event:
    """An event that has happened."""

    def __init__(self, *args, **kwargs):
        return None

    def record(self, stream=None):
        return None

    def wait(self, stream=None):
        return None

    def synchronize(self):
        return None

    def query(self):
        return True

    def elapsed_time(self, other):
        return 1.0


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
    """{name in torch.cuda: what stands there instead}."""
    stream = Stream()
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
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "stream": lambda given: given or stream,
        "Stream": Stream,
        "Event": Event,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "get_rng_state_all": lambda: [],
    }  # fmt: skip


def _no_inference_mode(mode=True):
    return torch.no_grad()(mode) if callable(mode) else torch.no_grad()


@contextlib.contextmanager
def pretend_cuda():
    """Inside the block torch has one CUDA device, cuda:0, in this thread."""
    changes = [(torch.cuda, name, value) for name, value in _of_cuda().items()]
    changes += [
        (torch, "Generator", _generator_class()),
        (torch, "inference_mode", _no_inference_mode),  # a wrapper and what it wraps disagree about its tensors
        (torch.Tensor, "record_stream", lambda self, stream: None),
        (torch.Tensor, "pin_memory", lambda self, device=None: self),
        (torch.Tensor, "cuda", lambda self, device=None, non_blocking=False: self.to("cuda")),
    ]
    with contextlib.ExitStack() as stack:
        for place, name, value in changes:
            stack.enter_context(mock.patch.object(place, name, value, create=not hasattr(place, name)))
        stack.enter_context(Operations())
        stack.enter_context(Names())
        yield
