"""What the script has switched on, and what it does tensor by tensor: seen in the last steps.

Anomaly detection, threads, argument checks of distributions, loops over parameters, reductions of
DDP, and what torch.compile had to do again.
"""

import collections
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributions import Distribution
from torch.nn.parallel import DistributedDataParallel

from course.checkup import facts
from course.checkup.clock import Clock
from course.checkup.facts import Calls
from course.checkup.growth import Growth
from course.checkup.lines import is_users, lines_of_loop, this_line
from course.checkup.patches import Patches
from course.checkup.phases import CODE
from course.device import cores

# methods that a loop over parameters calls, such as that of a moving average
LOOPED = ("add_", "mul_", "lerp_", "copy_", "sub_", "clamp_", "norm")
CALLS = 5  # most frequent ones
AMPERE = 8  # the first generation of GPUs with TF32
OPTIMIZERS = os.path.join("torch", "optim", "")  # are compiled again as their state begins
TORCHS_MODULE = os.path.join("_dynamo", "external_utils.py")  # what calls a module without source
RESUMED = "torch_dynamo_resume_in_"  # a function that continues after a graph break


class Habits:
    """Counts in the last steps, until `patches` are put back."""

    def __init__(self, clock: Clock) -> None:
        self.anomaly = False
        self.growth = Growth()
        self._clock = clock
        self._loops: collections.Counter[tuple[str, str]] = collections.Counter()
        self._paths: dict[str, str] = {}  # line of such a call -> its file
        self._looping = 0.0  # seconds in these
        self._reductions = 0
        self._checking = 0.0  # seconds in argument checks

    def start(self, patches: Patches) -> None:
        """Count from now on."""
        for name in LOOPED:
            patches.replace(torch.Tensor, name, functools.partial(self._count_loop, name))
        patches.replace(Distribution, "__init__", self._timed_check)
        patches.replace(Distribution, "_validate_sample", self._timed_check)
        if torch.distributed.is_available():
            patches.replace(DistributedDataParallel, "forward", self._count_reduction)

    def note_backward(self) -> None:
        """Note how a backward pass is made."""
        self.anomaly = self.anomaly or torch.is_anomaly_enabled()

    def found(self, steps: int, cuda: bool) -> facts.Habits:
        """What was seen in so many steps."""
        each = max(1, steps)
        loops = [Calls(name, at, n / each) for (name, at), n in self._loops.most_common(CALLS)]
        loop_lines = {}
        for call in loops:
            loop_lines[call.line] = lines_of_loop(self._paths[call.line], call.line)
        recompiles, breaks = _compilations()
        return facts.Habits(
            anomaly=self.anomaly,
            threads=torch.get_num_threads(),
            cores=cores(),
            processes=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
            float32_matmul=cuda and _has_tf32() and not _uses_tf32(),
            distributions=self._checking / each,
            loops=loops,
            looping=self._looping / each,
            loop_lines=loop_lines,
            reductions=self._reductions / each,
            recompiles=recompiles,
            breaks=breaks,
            growth=self.growth.per_step(),
        )

    def _count_loop(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        clock = self._clock

        @functools.wraps(original)
        def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if clock.phase == CODE and clock.is_in_thread() and not clock.is_paused:
                path = sys._getframe(1).f_code.co_filename
                if is_users(path):
                    line = this_line()
                    self._loops[f".{name}()", line] += 1
                    self._paths[line] = path
                    began = time.perf_counter()
                    try:
                        return original(tensor, *args, **kwargs)
                    finally:
                        self._looping += time.perf_counter() - began
            return original(tensor, *args, **kwargs)

        return counted

    def _timed_check(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A part of torch.distributions that does little but check arguments."""
        is_inside = False  # one may call another

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_inside
            if is_inside:
                return original(*args, **kwargs)
            is_inside = True
            begin = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                is_inside = False
                self._checking += time.perf_counter() - begin

        return timed

    def _count_reduction(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def counted(model: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
            if model.require_backward_grad_sync and torch.is_grad_enabled():
                self._reductions += 1
            return original(model, *args, **kwargs)

        return counted


def _has_tf32() -> bool:
    return torch.cuda.get_device_capability()[0] >= AMPERE


def _uses_tf32() -> bool:
    return torch.get_float32_matmul_precision() != "highest"


def _compilations() -> tuple[dict[str, int], list[str]]:
    """What torch.compile did again, and why; and the lines at which its graphs end."""
    if "torch._dynamo.utils" not in sys.modules:
        return {}, []
    times: collections.Counter[str] = collections.Counter()  # by where it was
    reasons: dict[str, str] = {}  # the first, by where it was
    breaks: dict[str, None] = {}
    for name, path, line, why in _metrics():
        file = os.path.basename(path)
        if name.startswith(RESUMED):
            if is_users(path):
                breaks[f"{file}:{name.rpartition('_')[2]}"] = None
        elif why:
            at = "a module of torch" if path.endswith(TORCHS_MODULE) else f"{file}:{line}"
            times[at] += 1
            reasons.setdefault(at, why.partition(": ")[2].splitlines()[0])
    return {f"{at}: {reasons[at]}": n for at, n in times.items()}, list(breaks)


def _metrics() -> Iterator[tuple[str, str, int, str]]:
    """(function, file, line, why again or "") of each compilation, but those of optimizers."""
    from torch._dynamo.utils import get_compilation_metrics

    for one in get_compilation_metrics():
        path = one.co_filename or ""
        if OPTIMIZERS not in path:
            yield one.co_name or "", path, one.co_firstlineno or 0, one.recompile_reason or ""
