"""A learner's answer in another process: a probe calls it as if it were here.  Only data comes back, nothing that runs.

    probe process:    answer = Remote(link); answer(torch.ones(3), step=2)      link = Link(socket)
    learner's process: Server(link, the_learners_function, described).run()

Arguments travel by value; functions, generators and objects of the probe's own classes stay with it: the learner's side
asks them back, one call, attribute or item at a time.  A tensor that the answer changed, or its gradient, is changed in
the probe too (shared.py), and the state of torch's random numbers goes to and fro, so that a probe sees what it would
see of an answer in its own process.  What comes back from the learner is numbers, strings, tensors and containers of
their exact types, or what the probe itself had given; anything else stays there and is reached by a `Held`, whose
attributes, items and calls are asked for one by one.  A tensor that comes back with a graph keeps it there: backward
here asks for backward there (_Backward).  What a probe counts, it counts there, too (beside.py).
"""

import builtins
import contextlib
import dataclasses
import enum
import inspect
import io
import math
import multiprocessing.context
import pickle
import types

import cloudpickle
import numpy
import torch

from course.checks.wire import WireError
from course.grading.sandbox.beside import Around, Beside
from course.grading.sandbox.link import Link
from course.grading.sandbox.shared import Table
from course.grading.sandbox.transport import ConnectionLost

_ABILITIES = {*"__call__ __iter__ __next__ __len__ __getitem__ __enter__ __exit__".split()}
_WHAT = {"__getitem__": "item"}
# what an object at the other end may be said to be, by the name of its class or of one that it is made from
KINDS = {
    kind.__name__: kind
    for kind in (torch.utils.data.DataLoader, torch.utils.data.DistributedSampler, torch.utils.data.Sampler,
                 torch.utils.data.Dataset, torch.optim.Optimizer, torch.nn.Module,
                 multiprocessing.context.BaseContext)
}  # fmt: skip

# ---- the probe's side: what goes out is trusted and pickled, what comes in is data


class Remote:
    """The answer: callable, or, if a class was asked for, makes objects that stay at the other end."""

    def __init__(self, link: Link, is_class: bool = False):
        self.link, self.is_class, self.kept, self.table = link, is_class, [], Table()

    def __call__(self, *args, **kwargs):
        return self.ask("call", None, None, args, kwargs)

    @property
    def __signature__(self):  # which inspect.signature looks for
        kind = inspect.Parameter.KEYWORD_ONLY  # in no order
        known = self.ask("signature", None)
        return inspect.Signature([inspect.Parameter(name, kind, default=default) for name, default in known])

    def ask(self, what, held, name=None, args=(), kwargs=None):
        """What came of it at the other end.  Raises: the exception that it raised there, or one like it."""
        around = Around()
        with around.off():
            return self._ask(around, what, held, name, args, kwargs or {})

    def _ask(self, around, what, held, name, args, kwargs):
        generators, filled = list(_generators(args, kwargs)), list(_containers([args, kwargs]))
        state = torch.get_rng_state().numpy(), torch.is_grad_enabled(), around.what(self._keep)
        self._send("ask", (what, held, name, args, kwargs, *state), [args, kwargs])
        while True:
            reply = self.link.receive()
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
                (torch.set_rng_state, *(g.set_state for g in generators)), reply["random"], strict=True
            ):
                set_state(state)
            torch.set_grad_enabled(reply.get("grad") is not False)
            for module, trains in zip(_modules(args, kwargs), reply.get("trains") or [], strict=False):
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
        self.link.send({kind: data, "changed": self.table.changes()})

    def _keep(self, thing):
        """The number of something that stays here."""
        number = next((n for n, kept in enumerate(self.kept) if kept is thing), len(self.kept))
        self.kept[number:] = self.kept[number:] or [thing]
        return number

    def _called_back(self, reply, around):
        try:
            args = [self._lifted(value) for value in reply["args"]]
            kwargs = {name: self._lifted(value) for name, value in reply["kwargs"].items()}
            thing = self.kept[reply["back"]]
            _refuse_what_is_private(reply["what"], thing, reply["name"])
            with around.on():
                answer = True, _done(reply["what"], thing, reply["name"], args, kwargs)
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
        if isinstance(thing, torch.Tensor) and self.table.number(thing) is not None:
            return "given", self.table.number(thing)
        if isinstance(thing, torch.storage.TypedStorage) and thing._untyped_storage.device.type == "cpu":
            return self._storage(thing._untyped_storage, thing.dtype)
        if _stays(thing):
            number = self.remote._keep(thing)
            return "kept", number, tuple(sorted(_ABILITIES & {*dir(type(thing))})), type(thing).__name__
        return None

    def _storage(self, memory, dtype):
        """Memory is sent once in a message: views of it share it at the other end, too."""
        if (number := self.storages.get(memory.data_ptr())) is not None:
            return "storage", number, dtype, None
        self.storages[memory.data_ptr()] = number = len(self.storages)
        return "storage", number, dtype, torch.empty(0, dtype=torch.uint8).set_(memory).numpy().tobytes()


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


def _generators(args, kwargs):
    return (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Generator))


def _modules(args, kwargs):
    given = (value for value in (*args, *kwargs.values()) if issubclass(type(value), torch.nn.Module))
    return (module for whole in given for module in whole.modules())


def _containers(value):
    """Every list and dict in `value`, itself left out, which an answer may fill."""
    for item in value.values() if type(value) is dict else value:
        if type(item) in (list, dict):
            yield item
        if type(item) in (list, dict, tuple):
            yield from _containers(item)
        elif issubclass(type(item), torch.nn.Module):  # what a probe's own modules note
            for inner in item.modules():
                yield from _containers({name: kept for name, kept in vars(inner).items() if name[0] != "_"})


def _items(container):
    return [*container.items()] if type(container) is dict else list(container)


def _are(some, others):
    """Whether two lists hold the same things, of pairs the same parts."""
    alike = ([*zip(a, b, strict=True)] if type(a) is tuple is type(b) and len(a) == len(b) else [(a, b)]
             for a, b in zip(some, others, strict=False))  # fmt: skip
    return len(some) == len(others) and all(a is b for pairs in alike for a, b in pairs)


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


def _done(what, target, name, args, kwargs):
    """What comes of doing `what` with `target`, at either end."""
    if what == "call":
        return target(*args, **kwargs)
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


# ---- the learner's side: what comes in is trusted


class Server:
    """Does with an answer what a Remote asks.

    Args:
        described: function of an exception that says what to tell the learner about it.
    """

    def __init__(self, link: Link, answer, described):
        self.link, self.described, self.held, self.theirs = link, described, [answer], {}
        self.table, self.graphs, self.storages, self.beside = Table(is_weak=True), [], {}, None

    def run(self) -> None:
        """Serve until the probe is through or gone."""
        with contextlib.suppress(ConnectionLost):
            while "ask" in (request := self.link.receive()):
                self._answer(request)

    def _answer(self, request, depth=0):
        what, held, name, args, kwargs, state, grad, watch = self._taken(request, "ask", slice(3, 5))
        torch.set_rng_state(torch.from_numpy(state))
        reply, before, was = {}, (len(self.held), self.table.n_own), (torch.is_grad_enabled(), self.beside)
        given = [(one, _items(one)) for one in _containers([args, kwargs])]
        self.beside = beside = Beside(self.table, self._patch, **watch)
        torch.set_grad_enabled(grad)
        try:
            with beside:
                value = (
                    self._backward(name, *args)
                    if what == "backward"
                    else _done(what, self.held[held or 0], name, args, kwargs)
                )
            reply["value"] = self.lower(value)
            del value
        except Exception as error:
            base = next(k.__name__ for k in type(error).__mro__ if getattr(builtins, k.__name__, None) is k)
            reply["error"] = [type(error).__name__, base, _text(error), self.described(error)]
        reply["trains"] = [module.training for module in _modules(args, kwargs)]
        reply["grad"], reply["noted"] = torch.is_grad_enabled(), beside.noted()
        reply["filled"] = [[n, self.lower(one)] for n, (one, items) in enumerate(given) if not _are(items, _items(one))]
        reply["changed"] = self.table.changes()
        reply["random"] = [torch.get_rng_state(), *(g.get_state() for g in _generators(args, kwargs))]
        # whether nothing here can hold on to what it was given
        reply["forgets"] = not depth and before == (1, 0) == (len(self.held), self.table.n_own) and not self.graphs
        if reply["forgets"]:
            self.table.clear()
        torch.set_grad_enabled(was[0])
        self.beside = was[1]
        self.link.send(reply)

    def _view(self, value):
        """`value` as a view of a shared tensor, if it is one."""
        if value.layout != torch.strided or value.device.type != "cpu" or not value.numel():
            return None
        memory = value.untyped_storage()
        number = self.table.number_of_memory(memory.data_ptr())
        is_small = value.numel() * value.element_size() <= memory.nbytes()  # not expanded
        if number is None or number < 0 or not is_small or self.table.tensor(number).dtype != value.dtype:
            return None
        return ("view", [self.table.keep(number), list(value.shape), list(value.stride()), value.storage_offset()])

    def _leaves(self, value):
        """The numbers of the shared tensors that the graph of `value` leads to."""
        waiting, seen, found = [value.grad_fn], set(), set()
        while waiting:
            node = waiting.pop()
            if node is not None and node not in seen:
                seen.add(node)
                waiting += [before for before, _ in node.next_functions]
                found.add(self.table.number(node.variable) if hasattr(node, "variable") else None)
        return sorted(found - {None})

    def _backward(self, graph, slope, numbers):
        """The gradients of the shared tensors with these numbers; leaves that are not shared get theirs here."""
        shared = [t if t is not None and t.is_leaf else None for t in map(self.table.tensor, numbers)]
        before = [None if tensor is None else tensor.grad for tensor in shared]
        _set_gradients(shared, [None] * len(shared))
        try:
            self.graphs[graph].backward(slope, retain_graph=True)
            return [None if tensor is None else tensor.grad for tensor in shared]
        finally:
            _set_gradients(shared, before)

    def _patch(self, number):
        """What is called in place of a function that the probe has patched, and has under this number."""
        return _away(self, number, ("__call__",), "patched")

    def _taken(self, message, kind, part):
        """What the other end has sent; the tensors in this part of it are shared from now on, and changed as there."""
        unpickler = pickle.Unpickler(io.BytesIO(message[kind].numpy()))
        unpickler.persistent_load, self.storages = self._load, {}
        value = unpickler.load()
        self.table.add(list(value[part]))
        self.table.apply(message["changed"])
        self.table.release()
        self.storages = {}
        return value

    def _load(self, key):
        if key[0] == "held":
            return self.held[key[1]]
        if key[0] == "given":
            return self.table.tensor(key[1])
        if key[0] == "storage":
            return self._storage(*key[1:])
        if key[1] not in self.theirs:
            self.theirs[key[1]] = _away(self, *key[1:])
        return self.theirs[key[1]]

    def _storage(self, number, dtype, values):
        if number not in self.storages:
            memory = torch.frombuffer(bytearray(values), dtype=torch.uint8).clone() if values else torch.empty(0)
            self.storages[number] = memory.untyped_storage()
        return torch.storage.TypedStorage(wrap_storage=self.storages[number], dtype=dtype, _internal=True)

    def ask_back(self, what, number, name=None, args=(), kwargs=None):
        """What comes of it at the probe's end, with something that stays there.  Raises: what it raised there."""
        with self.beside.paused():
            lowered = {key: self.lower(value) for key, value in (kwargs or {}).items()}
            message = {"back": number, "what": what, "name": name, "args": [self.lower(value) for value in args]}
            message |= {"kwargs": lowered, "changed": self.table.changes(), "noted": self.beside.noted()}
            self.link.send(message)
            while "ask" in (reply := self.link.receive()):  # what it calls there asks something itself
                self._answer(reply, depth=1)
            fine, value = self._taken(reply, "answer", slice(2))
        if not fine:
            raise value
        return value

    def lower(self, value):
        """`value` as plain data: containers are tuples (kind, content), what is no data is held here."""
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str):
            return value
        if isinstance(value, torch.Tensor):
            if (number := self.table.number(value)) is not None:
                return ("given", self.table.keep(number))
            with torch._C.DisableTorchFunctionSubclass():
                copy = value.detach().as_subclass(torch.Tensor).clone()
                if not (value.requires_grad and value.is_floating_point()):
                    return self._view(value) or copy
                if value.is_leaf:
                    return ("given", self.table.own(value))
            self.graphs.append(value)
            return ("graph", [len(self.graphs) - 1, copy, self._leaves(value)])
        for base, exact in ((int, int.__int__), (float, float.__float__), (str, str.__str__)):
            if isinstance(value, base):  # a subclass could agree with everything
                return base.__new__(base, exact(value)) if base is not str else "".join(str.__iter__(value))
        if isinstance(value, numpy.ndarray):
            return ("array", torch.from_numpy(numpy.array(value, subok=False)))
        if isinstance(value, numpy.generic):
            return ("scalar", torch.from_numpy(numpy.array(value)))
        if kind is torch.Size:
            return ("size", [int(size) for size in value])
        if kind in (list, tuple, set, frozenset):
            return (kind.__name__, [self.lower(item) for item in value])
        if kind is dict:
            return ("dict", [[self.lower(key), self.lower(item)] for key, item in value.items()])
        if kind is range:
            return ("range", [value.start, value.stop, value.step])
        if kind is bytes:
            return ("bytes", torch.tensor(list(value), dtype=torch.uint8))
        if kind is torch.dtype:
            return ("dtype", str(value)[6:])
        if kind is torch.device:
            return ("device", str(value))
        if (number := getattr(kind, "_course_kept", None)) is not None:
            return ("kept", number)
        self.held.append(value)
        bases = [base.__name__ for base in kind.__mro__]
        return ("held", [len(self.held) - 1, kind.__name__, kind.__module__, bases])


def _away(server, number, abilities, name):
    """Something that stays in the probe's process, or a function that is called there; errors call it by its name."""

    def ability(name):
        what = _WHAT.get(name, name.strip("_"))
        return lambda self, *args, **kwargs: server.ask_back(what, number, None, args, kwargs)

    def get(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return server.ask_back("get", number, name)

    def set_(self, name, value):
        server.ask_back("set", number, name, (value,))

    body = {name: ability(name) for name in abilities} | {"__getattr__": get, "__setattr__": set_}
    return type(name, (), body | {"_course_kept": number})()


def _set_gradients(tensors, gradients):
    for tensor, gradient in zip(tensors, gradients, strict=True):
        if tensor is not None:
            tensor.grad = gradient


def _text(error):
    try:
        return str(error)[:2000]
    except Exception:  # the learner's own __str__
        return "(its message cannot be shown)"
