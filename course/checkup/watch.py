"""Watch a training from outside: which phase each moment of a step belongs to.

A step ends when the first optimizer that was seen has stepped. After some WARM ones, steps are
TIMED, cut into phases, or FREE, with nothing but a clock, which TIMED ones are held against; they
are drawn at random, so that no rhythm of a loader's workers meets them. Then some are LOOKED at by
a thread that finds lines of code, and the last are COUNTED: see counted.py. What is found is in the
fields of Watch; facts.py reads them.

torch's own hooks are used where there are some; backward, batches and transfers have none and are
patched. Leaving the block puts everything back.
"""

import collections
import functools
import multiprocessing.process
import random
import threading
import time
import weakref
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.optim import optimizer as optim
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loading

from course.checkup.counted import COUNT, Counted
from course.checkup.lines import Sampler, this_line
from course.checkup.patches import Hook, Patches
from course.checkup.phases import (
    BACKWARD,
    CODE,
    COMMUNICATION,
    COUNTED,
    DATA,
    EVALUATION,
    FORWARD,
    FREE,
    LOOKED,
    OPTIMIZER,
    TIMED,
    TRANSFER,
    WARM,
    Step,
)
from course.checkup.tensors import tensors_in

COLLECTIVES = "barrier all_reduce reduce broadcast all_gather all_gather_into_tensor reduce_scatter_tensor".split()
WARM_UP, ENOUGH = 5, 12  # steps: at the beginning, and the fewest that are timed
# seconds of looking at lines, 12 to 400 steps; steps of it if several ranks train
LOOK, LOOK_RANKS = (
    0.5,
    40,
)


class Enough(BaseException):
    """Ends the training once the check-up has seen enough; no `except Exception` of a script
    catches it.
    """


class Watch:
    """Everything that is seen, in the block `with Watch(...) as watch:`.

    Args:
        steps: how many are TIMED or FREE at least.
        minutes: after which it ends; ignored if several ranks train, which must end after the same
            step.
    """

    def __init__(self, steps: int = 60, minutes: float = 3.0):
        self.wanted, self.minutes, begin = steps, minutes, time.monotonic()
        # at half, what is timed has to do
        self.half, self.until = (
            begin + 30 * minutes,
            begin + 60 * minutes,
        )
        self.steps, self.kinds, self.every, self.free = [], collections.Counter(), 6, 0
        self.on = self.counting = self.starting = False
        self.thread, self.looked = threading.get_ident(), 0.0
        self.stack, self.mark, self.pieces, self.begin = [CODE], 0.0, [], time.perf_counter()
        self.now_step, self.own = Step(WARM), []  # seconds of ours between steps
        self.random = random.Random(0)
        # the first one; id -> [optimizer, steps in the current step, most]
        self.leader, self.optimizers = (
            None,
            {},
        )
        self.models, self.calls = {}, {}  # id -> module called by the script; id -> Call
        self.iterators, self.served, self.loader, self.batch = (
            weakref.WeakKeyDictionary(),
            {},
            None,
            None,
        )
        self.forwards = self.backwards = self.zeroed = self.processes = 0
        # line -> forward passes that evaluate and record a graph
        self.graphs = collections.Counter()
        self.compiled = False
        self.counted = Counted(self)
        self.cuda, self.ranks = torch.cuda.is_available(), 1
        self.ended = False  # by Enough, so in all ranks after the same step
        self._patches = Patches()

    # ---- phases

    def clock(self):
        """The time of the processor, or an event in the queue of the GPU."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def enter(self, phase):
        now = self.clock()
        self.pieces.append((self.stack[-1], self.mark, now))
        self.stack.append(phase)
        self.mark = now

    def leave(self):
        now = self.clock()
        self.pieces.append((self.stack[-1], self.mark, now))
        self.mark = now
        if len(self.stack) > 1:  # else a step has ended inside the phase
            self.stack.pop()

    def here(self):
        """Whether this thread is timed now."""
        return self.on and threading.get_ident() == self.thread

    def phase(self, name, function):
        """`function`, whose time in timed steps is that of the phase `name`."""

        @functools.wraps(function)
        def timed(*args, **kwargs):
            if not self.on or threading.get_ident() != self.thread:
                return function(*args, **kwargs)
            self.enter(name)
            try:
                return function(*args, **kwargs)
            finally:
                self.leave()

        return timed

    # ---- the block

    def __enter__(self):
        patch = self._patches
        self.sampler = Sampler(lambda: self.stack[-1])
        patch.undo.callback(self.sampler.end)
        patch.replace(loading._BaseDataLoaderIter, "__next__", self._next)
        patch.replace(DataLoader, "__iter__", self._iter)
        patch.replace(torch.autograd, "backward", self._backward)
        patch.replace(torch.autograd, "grad", functools.partial(self.phase, BACKWARD))
        patch.replace(optim.Optimizer, "zero_grad", self._zero_grad)
        patch.replace(torch, "compile", self._compile)
        patch.replace(multiprocessing.process.BaseProcess, "start", self._process)
        if self.cuda:
            for name in ("to", "cuda"):
                patch.replace(torch.Tensor, name, self._transfer)
        for name in COLLECTIVES if dist.is_available() else ():
            patch.replace(dist, name, functools.partial(self._collective, name))
        patch.handle(optim.register_optimizer_step_pre_hook(self._before_optimizer))
        patch.handle(optim.register_optimizer_step_post_hook(self._after_optimizer))
        self._discover()
        return self

    def __exit__(self, *error):
        self.on = self.counting = False
        self._patches.close()

    # ---- forward: the modules that the script calls are found in the first steps, then each has
    # hooks of its own

    def _discover(self):
        depth = 0

        def before(module, args):
            nonlocal depth
            if threading.get_ident() == self.thread:
                depth += 1
                if depth == 1 and id(module) not in self.models:
                    self.models[id(module)] = module

        def after(module, args, output):
            nonlocal depth
            if threading.get_ident() == self.thread:
                depth -= 1

        modules = torch.nn.modules.module
        self._global = [
            modules.register_module_forward_pre_hook(before),
            modules.register_module_forward_hook(after, always_call=True),
        ]
        self._patches.undo.callback(self._discovered)

    def _discovered(self):
        while self._global:
            self._global.pop().remove()

    def _attach(self, module):
        if id(module) not in self.calls:
            self.calls[id(module)] = None
            before, after = Hook(self._before_forward), Hook(self._after_forward)
            self._patches.handle(module.register_forward_pre_hook(before, with_kwargs=True))
            self._patches.handle(
                module.register_forward_hook(after, with_kwargs=True, always_call=True)
            )

    def _before_forward(self, module, args, kwargs):
        evaluates = not (torch.is_grad_enabled() and module.training)
        if threading.get_ident() != self.thread or not (self.on or evaluates):
            return
        if self.on:
            self.enter(EVALUATION if evaluates else FORWARD)
        self._began = time.perf_counter()

    def _after_forward(self, module, args, kwargs, output):
        if threading.get_ident() != self.thread:
            return
        evaluates = not (torch.is_grad_enabled() and module.training)
        if self.on and self.stack[-1] in (EVALUATION, FORWARD):
            self.leave()
        if evaluates:
            self.now_step.evaluated += time.perf_counter() - self._began
            if torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in(output)):
                self.graphs[this_line()] += 1
        self.forwards += not evaluates
        if self.counting and not evaluates:
            self._keep_call(module, args, kwargs, output)

    def _keep_call(self, module, args, kwargs, output):
        """Remember what is needed to run this forward and backward again: arguments, and gradients
        of the outputs.
        """
        if not any(True for _ in module.parameters()):
            return
        call, kind = Call(module, args, kwargs), "cuda" if self.cuda else "cpu"
        if torch.is_autocast_enabled(kind):
            call.autocast = torch.get_autocast_dtype(kind)
        for t in tensors_in(output):
            call.shapes.append(tuple(t.shape))
            if t.requires_grad and t.grad_fn is not None:
                t.register_hook(functools.partial(call.gradients.__setitem__, len(call.shapes) - 1))
        self.calls[id(module)] = call

    # ---- backward, optimizers

    def _backward(self, original):
        timed = self.phase(BACKWARD, original)

        @functools.wraps(original)
        def backward(tensors, *args, **kwargs):
            self.backwards += 1
            if self.counting:
                self.counted.mark_graph(tensors)
            return timed(tensors, *args, **kwargs)

        return backward

    def _before_optimizer(self, optimizer, args, kwargs):
        if threading.get_ident() != self.thread:
            return
        if self.leader is None or self.leader() is None:
            self.leader = weakref.ref(optimizer)
        seen = self.optimizers.setdefault(id(optimizer), [optimizer, 0, 0])
        seen[1] += 1
        if self.counting and optimizer is self.leader():
            self.counted.read_gradients(optimizer)
        if self.on:
            self.enter(OPTIMIZER)

    def _after_optimizer(self, optimizer, args, kwargs):
        if threading.get_ident() != self.thread:
            return
        if self.on and self.stack[-1] == OPTIMIZER:
            self.leave()
        if optimizer is self.leader():
            self._boundary()

    def _zero_grad(self, original):
        timed = self.phase(OPTIMIZER, original)

        @functools.wraps(original)
        def zero_grad(optimizer, set_to_none=True):
            self.zeroed += not set_to_none
            return timed(optimizer, set_to_none)

        return zero_grad

    # ---- data, transfers, communication, compilation

    def _iter(self, original):
        @functools.wraps(original)
        def start(loader):
            began, on = time.perf_counter(), self.on
            # so that workers, which are forked here, watch nothing
            self.on, self.starting = (
                False,
                True,
            )
            try:
                iterator = original(loader)
            finally:
                self.on, self.starting = on, False
            self.iterators[iterator] = loader
            self.now_step.started += time.perf_counter() - began
            return iterator

        return start

    def _next(self, original):
        timed = self.phase(DATA, original)

        @functools.wraps(original)
        def following(iterator):
            first, began = iterator._num_yielded == 0, time.perf_counter()
            batch = timed(iterator)
            if threading.get_ident() == self.thread:
                if first:
                    self.now_step.started += time.perf_counter() - began
                self.loader = self.iterators.get(iterator)
                if self.on or self.counting:
                    self.batch = batch
            return batch

        return following

    def _transfer(self, original):
        timed = self.phase(TRANSFER, original)

        @functools.wraps(original)
        def moved(tensor, *args, **kwargs):
            if self.on and not tensor.is_cuda and self.stack[-1] == CODE:
                return timed(tensor, *args, **kwargs)
            return original(tensor, *args, **kwargs)

        return moved

    def _collective(self, name, original):
        timed = self.phase(COMMUNICATION, original)

        @functools.wraps(original)
        def collective(*args, **kwargs):
            if self.counting and threading.get_ident() == self.thread:
                self.counted.collectives[name, this_line()] += 1
            return timed(*args, **kwargs)

        return collective

    def _compile(self, original):
        @functools.wraps(original)
        def compile(model=None, *args, **kwargs):
            result = original(model, *args, **kwargs)
            self.compiled = True
            self._discovered()  # hooks on all modules would be compiled, too
            if isinstance(result, torch.nn.Module):
                self.models[id(result)] = result
                self._attach(result)
            elif model is not None:
                result = self.phase(FORWARD, result)
            return result

        return compile

    def _process(self, original):
        @functools.wraps(original)
        def start(process):
            self.processes += not self.starting
            return original(process)

        return start

    # ---- from step to step

    def _boundary(self):
        """End a step and begin the next one, of a kind that is drawn; raise Enough after the
        last.
        """
        if self.cuda:
            torch.cuda.synchronize()
        now, step = time.perf_counter(), self.now_step
        step.seconds = now - self.begin
        if step.kind == TIMED:
            self.pieces.append((self.stack[-1], self.mark, self.clock()))
            step.pieces = self._read_clock(self.pieces)
        self.steps.append(step)
        self.kinds[step.kind] += 1
        if self.free and (
            self.ranks > 1 or time.monotonic() < self.half
        ):  # the short way: nothing is attached to it
            self.free -= 1
            self.now_step = Step(FREE)
            self.begin = time.perf_counter()
            self.own.append(self.begin - now)
            return
        self._after_step()
        kind = self._kind()
        self.on, self.pieces, self.stack[:] = kind != FREE, [], [CODE]
        self.now_step = Step(kind)
        self.begin = time.perf_counter()
        if kind in (TIMED, FREE):
            self.own.append(self.begin - now)
        self.mark = self.clock()

    def _read_clock(self, pieces):
        if not self.cuda:
            return pieces
        torch.cuda.synchronize()
        zero = pieces[0][1]
        return [
            (name, zero.elapsed_time(a) / 1000, zero.elapsed_time(b) / 1000)
            for name, a, b in pieces
        ]

    def _after_step(self):
        for seen in self.optimizers.values():
            if self.now_step.kind in (WARM, COUNTED):
                seen[2] = max(seen[1:])
            seen[1] = 0
        if self.loader is not None:
            self.served[id(self.loader)] = (
                self.loader,
                self.served.get(id(self.loader), (None, 0))[1] + 1,
            )
        if len(self.steps) == 2:
            self.ranks = (
                dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
            )
            self._discovered()
            for module in list(self.models.values()):
                self._attach(module)
        if self.now_step.kind == LOOKED:
            self.looked += self.now_step.seconds
        if self.counting:
            self.counted.end_step(self.batch)

    def _kind(self):
        n, timed, counted = len(self.steps), self.kinds[TIMED], self.kinds[COUNTED]
        late = timed >= 2 and time.monotonic() > self.until and self.ranks == 1
        if counted >= COUNT or late and counted:
            self.ended = True
            raise Enough
        half = timed >= 4 and time.monotonic() > self.half and self.ranks == 1
        if n < WARM_UP:
            return WARM
        if counted:
            return COUNTED
        if late:  # one step is counted in any case: it is what can be tried again
            return self._begin_counting()
        if looked := self.kinds[LOOKED]:
            several = (
                self.looked > LOOK and (looked >= ENOUGH or half and looked >= 3) or looked >= 400
            )
            enough = looked >= LOOK_RANKS if self.ranks > 1 else several
            return self._begin_counting() if enough else LOOKED
        if (
            half
            or n >= WARM_UP + self.wanted
            and (timed >= ENOUGH or n >= WARM_UP + 8 * self.wanted)
        ):
            self.sampler.look(True)
            return LOOKED
        if self.now_step.kind == FREE:
            return TIMED
        self.free = self.random.randrange(self._rarely())
        return FREE if self.free else TIMED

    def _begin_counting(self):
        self.sampler.look(False)
        self.counting = True
        self.counted.start(self._patches)
        return COUNTED

    def _rarely(self):
        """One step in about how many is timed: fewer where cutting a step into phases takes much of
        it.
        """
        if self.kinds[TIMED] % 4 == 0 and self.ranks == 1:
            timed, free = (self._middle(kind) for kind in (TIMED, FREE))
            if timed and free:
                self.every = min(24, max(6, round(2 * (timed / free - 1) / 0.02)))
        return self.every

    def _middle(self, kind):
        seconds = sorted(
            step.seconds for step in self.steps if step.kind == kind and not step.evaluated
        )
        return seconds[len(seconds) // 2] if len(seconds) >= 4 else None

    def all_optimizers(self):
        return [(most, optimizer) for optimizer, _, most in self.optimizers.values()]


@dataclass
class Call:
    """One call of a module, so that it can be run again."""

    module: torch.nn.Module
    args: tuple
    kwargs: dict
    shapes: list = field(default_factory=list)
    gradients: dict = field(default_factory=dict)  # place among the output's tensors -> gradient
    autocast: torch.dtype | None = None  # in which the script called it
