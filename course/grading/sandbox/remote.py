"""A learner's answer in another process: a probe calls it as if it were here.  Only data comes back, nothing that runs.

    probe process:    answer = Remote(link); answer(torch.ones(3), step=2)      link = Link(socket)
    learner's process: Server(link, the_learners_function, described).run()      (answer_server.py)

Arguments travel by value; functions, generators and objects of the probe's own classes stay with it: the learner's side
asks them back, one call, attribute or item at a time.  A tensor that the answer changed, or its gradient, is changed in
the probe too (shared.py), and the state of torch's random numbers goes to and fro, so that a probe sees what it would
see of an answer in its own process.  What comes back from the learner is numbers, strings, tensors and containers of
their exact types, or what the probe itself had given; anything else stays there and is reached by a `Held`, whose
attributes, items and calls are asked for one by one.  A tensor that comes back with a graph keeps it there: backward
here asks for backward there (_Backward).  What a probe counts, it counts there, too (beside.py).  What goes out from
here is trusted there, and pickled.
"""

import builtins
import dataclasses
import enum
import inspect
import io
import math
import multiprocessing.context
import socket
import sys
import time
import types
from collections.abc import Iterator, Sequence

import cloudpickle
import torch

from course.checks.probing.travelling import travels
from course.checks.wire import WireError
from course.distributed import Transfers
from course.grading.sandbox.beside import Around
from course.grading.sandbox.link import Link
from course.grading.sandbox.ranks import Operations
from course.grading.sandbox.shared import Table
from course.grading.sandbox.transport import ConnectionLost, TimedOut
from course.network import virtual_rank

LATE = 600  # seconds: no virtual rank lives that long
SENDING = 10  # seconds that a message to a rank's code may take to go
PATIENCE = 1  # seconds for a process to say where its ranks are
_ABILITIES = {*"__call__ __iter__ __next__ __len__ __getitem__ __enter__ __exit__ __hash__".split()}
# what an object at the other end may be said to be, by the name of its class or of one that it is made from
KINDS = {
    kind.__name__: kind
    for kind in (torch.utils.data.DataLoader, torch.utils.data.DistributedSampler, torch.utils.data.Sampler,
                 torch.utils.data.Dataset, torch.optim.Optimizer, torch.nn.Module,
                 multiprocessing.context.BaseContext, types.GeneratorType)
}  # fmt: skip


class Remote:
    """The answer: callable, or, if a class was asked for, makes objects that stay at the other end."""

    def __init__(self, link: Link, is_class: bool = False):
        self.link, self.is_class, self.kept, self.table = link, is_class, [], Table(stays=_stays)
        self.rank, self.deadline = None, None

    def __call__(self, *args, **kwargs):
        return self.ask("call", None, None, args, kwargs)

    @property
    def __signature__(self):  # which inspect.signature looks for
        kind = inspect.Parameter.KEYWORD_ONLY  # in no order
        known = self.ask("signature", None)
        return inspect.Signature([inspect.Parameter(name, kind, default=default) for name, default in known])

    def beside(self, function, *args, **kwargs):
        """What `function` gives at the other end, with this answer there where it is given."""
        function = travels(function) if isinstance(function, types.FunctionType) else function
        return self.ask("beside", None, None, (function, *args), kwargs)

    def ask(self, what, held, name=None, args=(), kwargs=None):
        """What came of it at the other end.  Raises: the exception that it raised there, or one like it."""
        around, rank = Around(), virtual_rank()
        with around.off():
            if rank in (None, self.rank) or held is not None:
                return self._ask(around, what, held, name, args, kwargs or {})
            if self not in rank.kept:
                rank.kept[self] = _OfRank(self, rank)
            return rank.kept[self]._ask(around, what, held, name, args, kwargs or {})

    def __deepcopy__(self, memo):  # simulate's: each rank has one of its own
        return self

    def where(self, number: int) -> str:
        """One line on where the code of a virtual rank is now in the learner's process."""
        try:
            self.link.send({"where": number})
            return " ".join(str(self.link.receive(time.monotonic() + PATIENCE)["where"])[:300].split())
        except (TimedOut, ConnectionLost, WireError, TypeError, LookupError):
            return f"rank {number} does not say where it is."

    def _ask(self, around, what, held, name, args, kwargs):
        drawing, filled = list(generators(args, kwargs)), list(containers([args, kwargs]))
        state = torch.get_rng_state().numpy(), torch.is_grad_enabled(), around.what(self._keep)
        self._send("ask", (what, held, name, args, kwargs, *state), [args, kwargs])
        while True:
            reply = self.link.receive(self.deadline)
            if not isinstance(reply, dict):
                raise WireError("an answer that is none")
            self.table.apply(reply.get("changed") or [])
            if reply.get("noted") is not None:
                around.tell(reply["noted"], self.table)
            if "back" in reply:
                self._called_back(reply, around)
                continue
            if reply.get("stopped"):
                raise self._exception([reply["stopped"][0], "Exception", "", reply["stopped"][1]])
            for set_state, state in zip(
                (torch.set_rng_state, *(g.set_state for g in drawing)), reply["random"], strict=True
            ):
                set_state(state)
            torch.set_grad_enabled(reply.get("grad") is not False)
            for module, trains in zip(modules(args, kwargs), reply.get("trains") or [], strict=False):
                module.training = trains is True
            for number, content in reply.get("filled") or []:
                _fill(filled[number], self._lifted(content))
            try:
                if "error" in reply:
                    raise self._exception(reply["error"])
                return self._lifted(reply.get("value"))
            finally:
                if reply.get("forgets"):
                    self.table.clear()

    def _send(self, kind, value, holding):
        """Send `value`, in which `holding` has what the learner's side may change, and what has changed here."""
        out = io.BytesIO()
        _Pickler(out, self).dump(value)
        self.table.add(holding)  # a pickle leaves out gradients: as changes they are sent, too
        data = torch.frombuffer(bytearray(out.getvalue()), dtype=torch.uint8)
        self.link.send({kind: data, "changed": self.table.changes(), "random": torch.get_rng_state()})

    def _keep(self, thing):
        """The number of something that stays here."""
        number = next((n for n, kept in enumerate(self.kept) if kept is thing), len(self.kept))
        self.kept[number:] = self.kept[number:] or [thing]
        return number

    def _called_back(self, reply, around):
        torch.set_rng_state(reply["random"])
        try:
            args = [self._lifted(value) for value in reply["args"]]
            kwargs = {name: self._lifted(value) for name, value in reply["kwargs"].items()}
            thing = self.kept[reply["back"]]
            _refuse_what_is_private(reply["what"], thing, reply["name"])
            with around.on():
                answer = True, done(reply["what"], thing, reply["name"], args, kwargs)
        except Exception as error:
            answer = False, error
        self._send("answer", answer, list(answer))

    def _exception(self, sent):
        name, base, text, described = (str(part)[:3000] for part in sent)
        kind = getattr(builtins, base, Exception)
        kind = kind if isinstance(kind, type) and issubclass(kind, Exception) else Exception
        try:
            error = (kind if kind.__name__ == name else type(name[:100], (kind,), {}))(*([text] if text else []))
        except Exception:  # UnicodeDecodeError, for one, wants five arguments
            error = type(name[:100], (Exception,), {})(text)
        error.described = described
        return error

    def _lifted(self, value):
        if not isinstance(value, tuple):
            return value
        kind, inner = value
        if kind in ("list", "tuple", "set", "frozenset"):
            return getattr(builtins, kind)(self._lifted(item) for item in inner)
        if kind == "named":
            return _named_tuple(*inner[:2])._make(self._lifted(item) for item in inner[2])
        if kind == "dict":
            return {self._lifted(key): self._lifted(item) for key, item in inner}
        if kind == "array":
            return inner.numpy() if isinstance(inner, torch.Tensor) else None
        if kind == "scalar":
            return inner.numpy()[()]
        if kind == "size":
            return torch.Size(inner)
        if kind == "range":
            return range(*inner)
        if kind == "bytes":
            return bytes(inner.tolist())
        if kind == "dtype":
            return getattr(torch, inner) if isinstance(getattr(torch, inner, None), torch.dtype) else inner
        if kind == "device":
            return torch.device(inner)
        if kind == "held":
            return held(self, *inner)
        if kind == "given":
            if (tensor := self.table.tensor(inner)) is None:
                raise WireError("a tensor that was never given")
            return tensor
        if kind == "view":
            number, shape, stride, offset = inner
            whole = self._lifted(("given", number)).detach()
            if math.prod(shape) * whole.element_size() > whole.untyped_storage().nbytes():
                raise WireError("a view that is larger than what it shows")
            return whole.as_strided(shape, stride, offset)
        if kind == "graph":
            return self._with_graph(*inner)
        if kind == "kept":
            return self.kept[inner]
        raise WireError(f"a value of kind {str(kind)[:50]}")

    def _with_graph(self, graph, values, numbers):
        shared = [self.table.tensor(number) for number in numbers]
        is_one = isinstance(values, torch.Tensor) and values.is_floating_point() and type(graph) is int
        if not is_one or any(tensor is None for tensor in shared):
            raise WireError("a graph that is none")
        leaf = torch.zeros((), requires_grad=True)  # the answer's own parameters may be all that it needs
        with torch.enable_grad():
            return _Backward.apply(self, graph, [values], numbers, leaf, *shared)


class _OfRank(Remote):
    """The answer as one virtual rank calls it: over a connection of its own, to a thread of the learner's process."""

    def __init__(self, whole, rank):
        ours, theirs = socket.socketpair()
        with theirs:
            whole.link.send({"rank": [rank.number, rank.world_size]}, [theirs.fileno()])
        super().__init__(Link(ours, SENDING), whole.is_class)
        self.whole, self.rank, self.kept, self.deadline = whole, rank, [Operations()], time.monotonic() + LATE
        rank.at_end.callback(ours.close)

    def _ask(self, *asked):
        before, self.rank.elsewhere = self.rank.elsewhere, lambda: self.whole.where(self.rank.number)
        try:
            return super()._ask(*asked)
        finally:
            self.rank.elsewhere = before


class _Backward(torch.autograd.Function):
    """What an answer computed, with its graph at the other end: backward asks for the gradients of shared tensors."""

    @staticmethod
    def forward(ctx, remote, graph, values, numbers, leaf, *shared):
        ctx.asked = remote, graph, numbers, [_form(tensor) for tensor in shared]
        return values[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        remote, graph, numbers, forms = ctx.asked
        found = remote.ask("backward", None, graph, (slope.contiguous(), numbers))
        are_right = type(found) is list and len(found) == len(forms)
        if not are_right or not all(g is None or _form(g) == form for g, form in zip(found, forms, strict=True)):
            raise WireError("gradients that are none")
        return None, None, None, None, None, *found


def _form(tensor):
    return (tensor.shape, tensor.dtype) if isinstance(tensor, torch.Tensor) else None


class _Pickler(cloudpickle.Pickler):
    """Leaves out what the other end has: its own things, shared tensors, and what stays here, which goes to `kept`."""

    def __init__(self, file, remote):
        super().__init__(file)
        self.remote, self.table, self.storages = remote, remote.table, {}

    def persistent_id(self, thing):
        if isinstance(thing, Held):
            return "held", thing._number
        if isinstance(thing, (Remote, types.FunctionType)) and isinstance(inspect.unwrap(thing), Remote):
            return "answer", not isinstance(thing, Remote)
        if isinstance(thing, torch.Tensor) and self.table.number(thing) is not None:
            return "given", self.table.number(thing)
        if isinstance(thing, torch.storage.TypedStorage) and thing._untyped_storage.device.type == "cpu":
            return self._storage(thing._untyped_storage, thing.dtype)
        if _stays(thing):
            number = self.remote._keep(thing)
            abilities = tuple(sorted(name for name in _ABILITIES if getattr(type(thing), name, None)))
            return "kept", number, abilities, type(thing).__name__
        return None

    def _storage(self, memory, dtype):
        """Memory is sent once in a message: views of it share it at the other end, too."""
        if (number := self.storages.get(memory.data_ptr())) is not None:
            return "storage", number, dtype, None
        self.storages[memory.data_ptr()] = number = len(self.storages)
        return "storage", number, dtype, torch.empty(0, dtype=torch.uint8).set_(memory).numpy().tobytes()


def _named_tuple(module, name):
    """The named tuple of this name in a probe's module.  Raises: WireError if there is none."""
    kind = getattr(sys.modules.get(module), name, None) if str(module).startswith("course.checks") else None
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_make")):
        raise WireError("a named tuple that is none")
    return kind


def held(remote, number, name, module, kinds):
    """A Held whose type has the name that the thing's type has there."""
    kind = type(str(name)[:200], (Held,), {"__module__": str(module)[:200]})
    return kind(remote, number, next((KINDS[name] for name in kinds if name in KINDS), kind))


class Held:
    """Something that stays in the learner's process: what one does with it is done there."""

    def __init__(self, remote, number, kind):
        self.__dict__.update(_remote=remote, _number=number, _kind=kind)

    __class__ = property(lambda self: self._kind)  # what isinstance goes by

    def _ask(self, what, name=None, *args, **kwargs):
        return self._remote.ask(what, self._number, name, args, kwargs)

    def __call__(self, *args, **kwargs):
        return self._ask("call", None, *args, **kwargs)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask("get", name)

    def __setattr__(self, name, value):
        self._ask("set", name, value)

    def __iter__(self):
        return self._ask("iter")

    def __next__(self):
        return self._ask("next")

    def __len__(self):
        return self._ask("len")

    def __getitem__(self, key):
        return self._ask("item", None, key)

    def __enter__(self):
        return self._ask("enter")

    def __exit__(self, *error):
        return self._ask("exit")

    def __repr__(self):
        return f"<{type(self).__name__} of the learner's>"


def generators(args: Sequence, kwargs: dict) -> Iterator[torch.Generator]:
    """Every generator of random numbers among the arguments."""
    return (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Generator))


def modules(args: Sequence, kwargs: dict) -> Iterator[torch.nn.Module]:
    """Every module among the arguments, those that it is made of included."""
    given = (value for value in (*args, *kwargs.values()) if issubclass(type(value), torch.nn.Module))
    return (module for whole in given for module in whole.modules())


def containers(value: Sequence | dict) -> Iterator[list | dict]:
    """Every list and dict in `value`, itself left out, which an answer may fill."""
    for item in value.values() if type(value) is dict else value:
        if type(item) in (list, dict):
            yield item
        if type(item) in (list, dict, tuple):
            yield from containers(item)
        elif issubclass(type(item), (torch.nn.Module, Transfers)):  # what a probe's own modules note, and messages
            for inner in item.modules() if issubclass(type(item), torch.nn.Module) else [item]:
                yield from containers({name: kept for name, kept in vars(inner).items() if name[0] != "_"})


def _fill(container, content):
    """Make the content of a list or dict that of another one, which an answer gave."""
    if type(container) is list is type(content):
        container[:] = content
    elif type(container) is dict is type(content):
        container.clear()
        container.update(content)


def _stays(thing):
    """Whether it stays in the probe's process: a function of a probe, an object of one of its classes, a generator."""
    if isinstance(thing, types.GeneratorType):
        return True
    if isinstance(thing, types.MethodType) and _stays(thing.__self__):
        return True
    is_function = isinstance(thing, (types.FunctionType, types.MethodType))
    if isinstance(thing, types.FunctionType) and "." in thing.__qualname__.rpartition("<locals>.")[2]:
        return False  # of a class, which travels
    if is_function and getattr(thing, "travels", False):
        return False
    kind = thing if is_function else type(thing)
    travels = (type, BaseException, torch.Tensor, torch.nn.Module, tuple, list, dict, enum.Enum)
    is_a_probes = str(kind.__module__).startswith(("course.checks", "__main__"))
    return is_a_probes and not isinstance(thing, travels) and not dataclasses.is_dataclass(thing)


def _refuse_what_is_private(what, thing, name):
    """Raise AttributeError unless a learner's code may do that: call functions, use objects by what is public of them.

    A function's globals or closure, or a setter, would give the probe's inputs away, or let its notes be written.
    """
    allowed = {"call", "get", "item", "iter", "next", "len", "enter", "exit"}
    if isinstance(thing, (types.FunctionType, types.MethodType)):
        allowed = {"call"}
    elif isinstance(thing, types.GeneratorType):
        allowed = {"iter", "next"}
    if what not in allowed or (what == "get" and not (isinstance(name, str) and name[:1].isalpha())):
        raise AttributeError("this is the check's own, which no answer needs")


def done(what: str, target, name: str | None, args: Sequence, kwargs: dict):
    """What comes of doing `what` with `target`, at either end."""
    if what == "call":
        return target(*args, **kwargs)
    if what == "beside":
        return args[0](*args[1:], **kwargs)
    if what == "get":
        return getattr(target, name)
    if what == "signature":
        known = inspect.signature(target).parameters.values()
        return [(p.name, None if p.default is p.empty else p.default) for p in known]
    if what == "set":
        return setattr(target, name, *args)
    if what == "item":
        return target[args[0]]
    if what == "enter":
        return target.__enter__()
    if what == "exit":
        return target.__exit__(None, None, None)
    return {"iter": iter, "next": next, "len": len}[what](target)
