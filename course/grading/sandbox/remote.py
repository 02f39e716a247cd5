"""A learner's answer in another process: a probe calls it as if it were here.  Only data comes back, nothing that runs.

    probe process:    answer = Remote(link); answer(torch.ones(3), step=2)      link = Link(socket)
    learner's process: Server(link, the_learners_function, described).run()

Arguments travel by value, functions of the probe by name: the learner's side calls them back.  A tensor that the answer
changed is changed here too, and the state of torch's random numbers goes to and fro, so that a probe sees what it would
see of an answer in its own process.  What comes back from the learner is numbers, strings, tensors and containers of
their exact types; anything else stays there and is reached by a `Held`, whose attributes, items and calls are asked for
one by one.
"""

import builtins
import contextlib
import io
import pickle
import types

import cloudpickle
import numpy
import torch

from course.checks.compare import same_values
from course.checks.engine import all_tensors
from course.checks.wire import WireError
from course.grading.sandbox.link import Link
from course.grading.sandbox.transport import ConnectionLost

# ---- the probe's side: what goes out is trusted and pickled, what comes in is data


class Remote:
    """The answer: callable, or, if a class was asked for, makes objects that stay at the other end."""

    def __init__(self, link: Link, is_class: bool = False):
        self.link, self.is_class, self.functions = link, is_class, []

    def __call__(self, *args, **kwargs):
        return self.ask("call", None, None, args, kwargs)

    def ask(self, what, held, name=None, args=(), kwargs=None):
        """What came of it at the other end.  Raises: the exception that it raised there, or one like it."""
        given, generators = list(all_tensors([args, kwargs or {}])), list(_generators(args, kwargs or {}))
        request = (what, held, name, args, kwargs or {}, torch.get_rng_state().numpy())
        self.link.send({"ask": torch.frombuffer(bytearray(self._pickled(request)), dtype=torch.uint8)})
        while True:
            reply = self.link.receive()
            if not isinstance(reply, dict):
                raise WireError("an answer that is none")
            if "back" in reply:
                self._called_back(reply)
                continue
            if reply.get("stopped"):
                raise self._exception([reply["stopped"][0], "Exception", "", reply["stopped"][1]])
            for set_state, state in zip(
                (torch.set_rng_state, *(g.set_state for g in generators)), reply["random"], strict=True
            ):
                set_state(state)
            for number, value in reply.get("changed") or []:
                if type(number) is int and 0 <= number < len(given) and isinstance(value, torch.Tensor):
                    if value.shape == given[number].shape and value.dtype == given[number].dtype:
                        given[number].data.copy_(value)
            if "error" in reply:
                raise self._exception(reply["error"])
            return self._lifted(reply.get("value"))

    def _pickled(self, value):
        out = io.BytesIO()
        _Pickler(out, self.functions).dump(value)
        return out.getvalue()

    def _called_back(self, reply):
        args = [self._lifted(value) for value in reply["args"]]
        kwargs = {name: self._lifted(value) for name, value in reply["kwargs"].items()}
        try:
            answer = True, self.functions[reply["back"]](*args, **kwargs)
        except Exception as error:
            answer = False, error
        self.link.send({"answer": torch.frombuffer(bytearray(self._pickled(answer)), dtype=torch.uint8)})

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
            return Held(self, *inner)
        raise WireError(f"a value of kind {str(kind)[:50]}")


class _Pickler(cloudpickle.Pickler):
    """Leaves out what is at the other end, and the probe's own functions, which are added to `functions`."""

    def __init__(self, file, functions):
        super().__init__(file)
        self.functions = functions

    def persistent_id(self, thing):
        if isinstance(thing, Held):
            return "held", thing._number
        if isinstance(thing, (types.FunctionType, types.MethodType)) and _is_a_probes(thing):
            self.functions.append(thing)
            return "back", len(self.functions) - 1
        return None


class Held:
    """Something that stays in the learner's process: what one does with it is done there."""

    def __init__(self, remote, number, label):
        self.__dict__.update(_remote=remote, _number=number, _label=str(label)[:200])

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
        return f"<{self._label} of the learner's>"


def _generators(args, kwargs):
    return (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Generator))


def _is_a_probes(function):
    return function.__module__.startswith(("course.checks", "__main__"))


# ---- the learner's side: what comes in is trusted


class Server:
    """Does with an answer what a Remote asks.

    Args:
        described: function of an exception that says what to tell the learner about it.
    """

    def __init__(self, link: Link, answer, described):
        self.link, self.described, self.held = link, described, [answer]

    def run(self) -> None:
        """Serve until the probe is through or gone."""
        with contextlib.suppress(ConnectionLost):
            while "ask" in (request := self.link.receive()):
                self._answer(request)

    def _answer(self, request):
        what, held, name, args, kwargs, state = self._unpickled(request["ask"])
        torch.set_rng_state(torch.from_numpy(state))
        given = [(t, t.detach().clone()) for t in all_tensors([args, kwargs])]
        reply = {}
        try:
            reply["value"] = self.lower(self._do(what, self.held[held or 0], name, args, kwargs))
        except Exception as error:
            base = next(k.__name__ for k in type(error).__mro__ if getattr(builtins, k.__name__, None) is k)
            reply["error"] = [type(error).__name__, base, _text(error), self.described(error)]
        reply["changed"] = [[n, t.detach().clone()] for n, (t, before) in enumerate(given) if not _same(t, before)]
        reply["random"] = [torch.get_rng_state(), *(g.get_state() for g in _generators(args, kwargs))]
        self.link.send(reply)

    def _do(self, what, target, name, args, kwargs):
        if what == "call":
            return target(*args, **kwargs)
        if what == "get":
            return getattr(target, name)
        if what == "set":
            return setattr(target, name, *args)
        if what == "item":
            return target[args[0]]
        if what == "enter":
            return target.__enter__()
        if what == "exit":
            return target.__exit__(None, None, None)
        return {"iter": iter, "next": next, "len": len}[what](target)

    def _unpickled(self, data):
        unpickler = pickle.Unpickler(io.BytesIO(data.numpy()))
        unpickler.persistent_load = lambda key: self.held[key[1]] if key[0] == "held" else self._back(key[1])
        return unpickler.load()

    def _back(self, number):
        """A function that the probe's side answers."""

        def ask_back(*args, **kwargs):
            lowered = {name: self.lower(value) for name, value in kwargs.items()}
            self.link.send({"back": number, "args": [self.lower(value) for value in args], "kwargs": lowered})
            while "ask" in (reply := self.link.receive()):  # that function asks something itself
                self._answer(reply)
            fine, value = self._unpickled(reply["answer"])
            if not fine:
                raise value
            return value

        return ask_back

    def lower(self, value):
        """`value` as plain data: containers are tuples (kind, content), what is no data is held here."""
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str):
            return value
        if isinstance(value, torch.Tensor):
            with torch._C.DisableTorchFunctionSubclass():
                return value.detach().as_subclass(torch.Tensor).clone()
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
        self.held.append(value)
        return ("held", [len(self.held) - 1, kind.__name__])


def _same(tensor, before):
    try:
        return same_values(tensor.detach(), before)
    except RuntimeError:  # its shape or dtype became another one
        return True


def _text(error):
    try:
        return str(error)[:2000]
    except Exception:  # the learner's own __str__
        return "(its message cannot be shown)"
