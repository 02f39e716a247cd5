"""The learner's end of remote.py: does with an answer what a probe in another process asks, and says what came of it.

What comes in is the probe's, and trusted; what goes out is plain data (checks/wire.py).
"""

import builtins
import contextlib
import io
import pickle
import socket
import sys
import threading
import traceback

import numpy
import torch

from course.checks.engine import unchanged_inputs
from course.grading.sandbox.beside import Beside
from course.grading.sandbox.link import Link
from course.grading.sandbox.ranks import Buffer, Group
from course.grading.sandbox.remote import containers, done, generators, modules
from course.grading.sandbox.shared import Table
from course.grading.sandbox.transport import ConnectionLost
from course.network import group_of_thread, of_rank, position, threads_have_groups

PATIENCE = 0.2  # seconds in which a rank's thread must notice that its probe is through
_WHAT = {"__getitem__": "item"}


class Server:
    """Does with an answer what a Remote asks.

    Args:
        described: function of an exception that says what to tell the learner about it.
        restore: is called before a function of the probe's runs here.
    """

    caught = Exception  # what ends a call and not the server

    def __init__(self, link: Link, answer, described, restore=lambda: None):
        self.link, self.described, self.held, self.theirs = link, described, [answer], {}
        self.table, self.graphs, self.storages, self.beside = Table(is_weak=True), [], {}, None
        self.restore = restore
        self.ranks = {}  # the RankServer that was the last one with this number

    def run(self) -> None:
        """Serve until the probe is through or gone."""
        with contextlib.suppress(ConnectionLost), threads_have_groups():
            while not (request := self.link.receive()).get("end"):
                if "rank" in request:
                    self.ranks[request["rank"][0]] = RankServer(self, *request["rank"])
                elif "where" in request:
                    self.link.send({"where": self.ranks[request["where"]].where()})
                else:
                    self._answer(request)

    def is_busy(self) -> bool:
        """Whether the code of a rank goes on, although its probe is through."""
        for rank in self.ranks.values():
            rank.thread.join(timeout=PATIENCE)
        return any(rank.thread.is_alive() for rank in self.ranks.values())

    def _answer(self, request, depth=0):
        what, held, name, args, kwargs, state, grad, watch = self._taken(request, "ask", slice(3, 5))
        torch.set_rng_state(torch.from_numpy(state))
        if what == "beside":
            self.restore()
        reply, before, was = {}, (len(self.held), self.table.owned()), (torch.is_grad_enabled(), self.beside)
        given = [(one, _items(one)) for one in containers([args, kwargs])]
        self.beside = beside = Beside(self.table, self._patch, **watch)
        torch.set_grad_enabled(grad)
        try:
            with beside:
                value = (
                    self._backward(name, *args)
                    if what == "backward"
                    else done(what, self.held[held or 0], name, args, kwargs)
                )
                self.finish()
            reply["value"] = self.lower(value)
            del value
        except self.caught as error:
            reply["error"] = self._as_data(error)
        reply["trains"] = [module.training for module in modules(args, kwargs)]
        reply["grad"], reply["noted"] = torch.is_grad_enabled(), beside.noted()
        reply["filled"] = [[n, self.lower(one)] for n, (one, items) in enumerate(given) if not _are(items, _items(one))]
        reply["changed"] = self.table.changes()
        reply["random"] = [torch.get_rng_state(), *(g.get_state() for g in generators(args, kwargs))]
        # whether nothing here can hold on to what it was given
        reply["forgets"] = not depth and before == (1, 0) == (len(self.held), self.table.owned()) and not self.graphs
        if reply["forgets"]:
            self.table.clear()
        torch.set_grad_enabled(was[0])
        self.beside = was[1]
        self.link.send(reply)

    def finish(self):
        """Do what is left to do when a call is through."""

    def _as_data(self, error):
        base = next(k.__name__ for k in type(error).__mro__ if getattr(builtins, k.__name__, None) is k)
        return [type(error).__name__, base, _text(error), self.described(error)]

    def _view(self, value, of_own=False):
        """`value` as a view of a shared tensor, if it is one; of one of the learner's side only if that may be."""
        if value.layout != torch.strided or value.device.type != "cpu" or not value.numel():
            return None
        memory = value.untyped_storage()
        number = self.table.number_of_memory(memory.data_ptr())
        is_small = value.numel() * value.element_size() <= memory.nbytes()  # not expanded
        if number is None or (number < 0 and not of_own) or not is_small:
            return None
        if self.table.tensor(number).dtype != value.dtype or self.table.was_resized(number):
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
        before_that, self.table.withheld = self.table.withheld, numbers  # the probe must not see that
        try:
            self.graphs[graph].backward(slope, retain_graph=True)
            return [None if tensor is None else tensor.grad for tensor in shared]
        finally:
            _set_gradients(shared, before)
            self.table.withheld = before_that

    def _patch(self, number):
        """What is called in place of a function that the probe has patched, and has under this number."""
        return _away(self, number, ("__call__", "__hash__"), "patched")

    def _taken(self, message, kind, part):
        """What the other end has sent; the tensors in this part of it are shared from now on, and changed as there."""
        unpickler = pickle.Unpickler(io.BytesIO(message[kind].numpy()))
        unpickler.persistent_load, self.storages = self._load, {}
        value = unpickler.load()
        self.table.add(list(value[part]))
        self.table.apply(message["changed"])
        self.table.release(list(value[part]))
        self.storages = {}
        return value

    def _load(self, key):
        if key[0] == "held":
            return self.held[key[1]]
        if key[0] == "answer":  # as the probe has it: whether what it returns and changes is looked at
            return unchanged_inputs(self.held[0]) if key[1] else self.held[0]
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
            message["random"] = torch.get_rng_state()
            self.link.send(message)
            while "ask" in (reply := self.link.receive()):  # what it calls there asks something itself
                self._answer(reply, depth=1)
            fine, value = self._taken(reply, "answer", slice(2))
            torch.set_rng_state(reply["random"])
        if not fine:
            raise value
        return value

    def lower(self, value):
        """`value` as plain data: containers are tuples (kind, content), what is no data is held here."""
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str):
            return value
        if isinstance(value, torch.Tensor):
            has_graph = value.requires_grad and not value.is_leaf
            if not has_graph and (number := self.table.number(value)) is not None:
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
        if isinstance(value, tuple) and _is_named(kind):
            return ("named", [kind.__module__, kind.__name__, [self.lower(item) for item in tuple.__iter__(value)]])
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


class RankServer(Server):
    """Serves an answer, in a thread of its own, as one virtual rank of the probe calls it.

    torch.distributed has a default group there whose operations are done at the probe's end (ranks.py).
    """

    caught = BaseException  # SystemExit, which ends a rank, too

    def __init__(self, server, number, size):
        (descriptor,) = server.link.descriptors
        super().__init__(Link(socket.socket(fileno=descriptor)), server.held[0], server.described)
        self.number, self.buffers, self.under_way = number, [], {}
        self.group = Group(self._of_group, number, size)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        with self.link.socket, contextlib.suppress(ConnectionLost), group_of_thread(self.group):
            while True:
                self._answer(self.link.receive())

    def where(self) -> str:
        """One line on where the rank's code is now."""
        frames = traceback.walk_stack(sys._current_frames().get(self.thread.ident))
        return position(self.number, [(f.f_code.co_filename, line, f.f_code.co_name) for f, line in frames])

    def ask_back(self, *asked, **options):
        self.group.told()
        return super().ask_back(*asked, **options)

    def finish(self):
        self.group.told()

    def _of_group(self, started, what, number):
        """What Operations answer; the tensors of what was started stay shared until somebody has waited for it."""
        found = super().ask_back("call", 0, None, (started, what, number))
        self.under_way |= {new: self.buffers for new, *_ in started}
        self.buffers = []
        if what == "wait":
            self.under_way.pop(number, None)
        return found

    def lower(self, value):
        if not isinstance(value, Buffer):
            return super().lower(value)
        tensor = value.tensor.detach()
        number = self.table.number_of_memory(tensor.untyped_storage().data_ptr())
        if tensor.numel() and (number is None or self.table.tensor(number).dtype != tensor.dtype):
            whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            number = self.table.own(whole, keeps=False)
        self.buffers.append(self.table.tensor(number))
        return self._view(tensor, of_own=True) or tensor.clone()

    def _as_data(self, error):
        return super()._as_data(of_rank(error, self.number))


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
    body["__hash__"] = object.__hash__ if "__hash__" in abilities else None
    return type(name, (), body | {"_course_kept": number})()


def _is_named(kind):
    """Whether it is a named tuple of a probe's module."""
    return kind.__module__.startswith("course.checks") and vars(sys.modules[kind.__module__]).get(kind.__name__) is kind


def _set_gradients(tensors, gradients):
    for tensor, gradient in zip(tensors, gradients, strict=True):
        if tensor is not None:
            tensor.grad = gradient


def _text(error):
    try:
        return str(error)[:2000]
    except Exception:  # the learner's own __str__
        return "(its message cannot be shown)"


def _items(container):
    return [*container.items()] if type(container) is dict else list(container)


def _are(some, others):
    """Whether two lists hold the same things, of pairs the same parts."""
    alike = ([*zip(a, b, strict=True)] if type(a) is tuple is type(b) and len(a) == len(b) else [(a, b)]
             for a, b in zip(some, others, strict=False))  # fmt: skip
    return len(some) == len(others) and all(a is b for pairs in alike for a, b in pairs)
