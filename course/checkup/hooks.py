"""What is changed in torch while a training is watched.

torch's own hooks are used where there are some; backward, batches, transfers and collectives have
none and are patched. Each tells the clock where its phase begins and ends, and writes down in
`seen` what it met.
"""

import functools
import multiprocessing.process
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import optimizer as optim
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loading

from course.checkup.clock import Clock
from course.checkup.counted import Counted
from course.checkup.forward import ForwardHooks
from course.checkup.patches import Patches
from course.checkup.phases import BACKWARD, CODE, COMMUNICATION, DATA, FORWARD, OPTIMIZER, TRANSFER
from course.checkup.ready import Readiness
from course.checkup.seen import Seen, SeenLoader, SeenOptimizer

COLLECTIVES = (
    "barrier",
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
)
DDP_BROADCAST = "_broadcast_coalesced"  # of buffers, at the start of a forward pass
STEPS_WITHOUT_LEADER = 16  # of another optimizer, until it is taken as the leader


class Hooks:
    """All hooks and patches; `remove` puts back what `install` has changed.

    Args:
        end_step: called when the first optimizer that was seen has stepped.
        end_backward: called after each backward pass.
        optimizers_begin: called before the first step of an optimizer.
    """

    def __init__(
        self,
        clock: Clock,
        seen: Seen,
        counted: Counted,
        end_step: Callable[[], None],
        end_backward: Callable[[], None],
        optimizers_begin: Callable[[], None],
    ) -> None:
        self.patches = Patches()
        self.forward = ForwardHooks(clock, seen, counted, self.patches)
        self.readiness = Readiness(clock, seen)
        self._clock = clock
        self._seen = seen
        self._counted = counted
        self._end_step = end_step
        self._end_backward = end_backward
        self._optimizers_begin = optimizers_begin
        # iterator -> its loader
        self._iterators: weakref.WeakKeyDictionary[Any, DataLoader] = weakref.WeakKeyDictionary()
        self._loader: DataLoader | None = None  # whose batch was served last

    def install(self) -> None:
        """Change torch."""
        patch = self.patches
        patch.replace(loading._BaseDataLoaderIter, "__next__", self._next)
        patch.replace(DataLoader, "__iter__", self._iter)
        patch.replace(torch.autograd, "backward", self._backward)
        patch.replace(torch.autograd, "grad", functools.partial(self._clock.timed, BACKWARD))
        patch.replace(optim.Optimizer, "zero_grad", self._zero_grad)
        patch.replace(torch, "compile", self._compile)
        patch.replace(multiprocessing.process.BaseProcess, "start", self._start_process)
        if self._clock.cuda:
            patch.replace(torch.Tensor, "to", self._transfer)
            patch.replace(torch.Tensor, "cuda", self._transfer)
        if dist.is_available():
            for name in COLLECTIVES:
                patch.replace(dist, name, functools.partial(self._collective, name))
            if hasattr(dist, DDP_BROADCAST):
                timed = functools.partial(self._clock.timed, COMMUNICATION)
                patch.replace(dist, DDP_BROADCAST, timed)
        patch.handle(optim.register_optimizer_step_pre_hook(self._before_optimizer))
        patch.handle(optim.register_optimizer_step_post_hook(self._after_optimizer))
        self.forward.install()

    def remove(self) -> None:
        """Put everything back."""
        self.patches.close()

    def count_batch(self) -> None:
        """Note that a step has used a batch of the loader that served last."""
        if self._loader is not None:
            loaders = self._seen.loaders
            loaders.setdefault(id(self._loader), SeenLoader(self._loader)).steps += 1

    # ---- data

    def _iter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def start(loader: DataLoader) -> Any:
            began = time.perf_counter()
            with self._clock.paused():  # so that workers, which are forked here, watch nothing
                iterator = original(loader)
            self._iterators[iterator] = loader
            self._clock.step.started += time.perf_counter() - began
            return iterator

        return start

    def _next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        timed = self._clock.timed(DATA, original)

        @functools.wraps(original)
        def following(iterator: Any) -> Any:
            is_first = iterator._num_yielded == 0
            began = time.perf_counter()
            batch = timed(iterator)
            if self._clock.is_in_thread() and not self._clock.is_paused:
                if is_first:
                    self._clock.step.started += time.perf_counter() - began
                self._loader = self._iterators.get(iterator)
                if self._clock.on or self._counted.on:
                    self._seen.batch = batch
            return batch

        return following

    def _transfer(self, original: Callable[..., Any]) -> Callable[..., Any]:
        timed = self._clock.timed(TRANSFER, original)

        @functools.wraps(original)
        def moved(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._clock.on and not tensor.is_cuda and self._clock.phase == CODE:
                return timed(tensor, *args, **kwargs)
            return original(tensor, *args, **kwargs)

        return moved

    def _start_process(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def start(process: multiprocessing.process.BaseProcess) -> Any:
            if not self._clock.is_paused:  # else it is a worker of a loader
                self._seen.processes += 1
            return original(process)

        return start

    # ---- backward, optimizers, communication, compilation

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        timed = self._clock.timed(BACKWARD, self.readiness.cut(original))
        mark = self._seen.failures.guarded("the graphs of losses", self._counted.mark_graph)

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self._seen.backwards += 1
            if self._counted.on:
                mark(tensors)
            result = timed(tensors, *args, **kwargs)
            if self._clock.is_in_thread() and not self._clock.is_paused:
                self._end_backward()
            return result

        return backward

    def _before_optimizer(self, optimizer: optim.Optimizer, args: tuple, kwargs: dict) -> None:
        if not self._clock.is_in_thread():
            return
        seen = self._seen
        one = seen.optimizers.setdefault(id(optimizer), SeenOptimizer(optimizer))
        one.steps_now += 1
        if seen.leader is None:
            seen.leader = weakref.ref(optimizer)
            self._optimizers_begin()
        elif optimizer is seen.leader():
            seen.leader_steps += 1
        elif self._steps_alone(one) >= STEPS_WITHOUT_LEADER:  # another training has begun
            seen.optimizers.pop(id(seen.leader()), None)
            seen.leader = weakref.ref(optimizer)
        if self._counted.on and optimizer is seen.leader():
            seen.failures.look("gradients", self._counted.read_gradients, optimizer)
        if self._clock.on:
            self._clock.enter(OPTIMIZER)

    def _steps_alone(self, one: SeenOptimizer) -> int:
        """The steps of an optimizer since the leader's last one."""
        if one.alone_since != self._seen.leader_steps:
            one.alone_since = self._seen.leader_steps
            one.alone = 0
        one.alone += 1
        return one.alone

    def _after_optimizer(self, optimizer: optim.Optimizer, args: tuple, kwargs: dict) -> None:
        if not self._clock.is_in_thread():
            return
        if self._clock.on and self._clock.phase == OPTIMIZER:
            self._clock.leave()
        if optimizer is self._seen.leader() and not self._seen.ends_by_backward:
            self._end_step()

    def _zero_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        timed = self._clock.timed(OPTIMIZER, original)

        @functools.wraps(original)
        def zero_grad(optimizer: optim.Optimizer, set_to_none: bool = True) -> Any:
            if not set_to_none:
                self._seen.zeroed += 1
            return timed(optimizer, set_to_none)

        return zero_grad

    def _collective(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        timed = self._clock.timed(COMMUNICATION, original)

        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            self.readiness.note_collective()
            if self._counted.on and self._clock.is_in_thread():
                self._counted.count_collective(name)
            return timed(*args, **kwargs)

        return collective

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            self._seen.compiled = True
            with self.forward.taken_away():  # what is compiled keeps nothing of ours
                result = original(model, *args, **kwargs)
            owner = getattr(model, "__self__", None)
            if isinstance(owner, torch.nn.Module):  # of Module.compile, which compiles __call__
                self._seen.note_model(owner)
                self.forward.end_finding()
            if model is not None and not isinstance(result, torch.nn.Module):
                result = self._clock.timed(FORWARD, result)
            return result

        return compile
