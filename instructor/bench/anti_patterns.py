"""Write what torch's anti-patterns find in a script: python -m instructor.bench.anti_patterns.

Six steps run under torch.profiler, from the start of the loader if there is one.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import _pattern_matcher as matcher
from torch.profiler import profile
from torch.utils.data import DataLoader

from course.checkup import script
from course.checkup.schedule import Enough

WARM_UP = 5  # steps
STEPS = 6  # with the profiler, and again without it
PATTERNS = (
    matcher.ExtraCUDACopyPattern,
    matcher.FP32MatMulPattern,
    matcher.OptimizerSingleTensorPattern,
    matcher.SynchronizedDataLoaderPattern,
    matcher.GradNotSetToNonePattern,
    matcher.Conv2dBiasFollowedByBatchNorm2dPattern,
    matcher.MatMulDimInFP16Pattern,
)


class Profiled:
    """Profiles the steps after the start of a loader, or after WARM_UP steps where there is none.

    As many steps that follow tell how long one takes without it.
    """

    def __init__(self) -> None:
        self.profiler = profile(with_stack=True, record_shapes=True, profile_memory=True)
        self._times: list[float] = []
        self._leader: list[torch.optim.Optimizer] = []
        self._first = -1  # the number of the step after which it began

    def start(self) -> None:
        """Begin to profile, once."""
        if self._first < 0:
            self._first = len(self._times)
            self.profiler.start()

    def stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Note a step.  Raises: Enough after the last."""
        self._leader.append(optimizer)
        if optimizer is not self._leader[0]:
            return
        self._times.append(time.perf_counter())
        if len(self._times) == WARM_UP:
            self.start()
        if len(self._times) == self._first + STEPS:
            self.profiler.stop()
        if self._first >= 0 and len(self._times) >= self._first + 2 * STEPS:
            raise Enough

    def cost(self) -> float:
        """The share by which a step got longer."""
        pairs = zip(self._times, self._times[1:], strict=False)
        taken = [after - before for before, after in pairs]
        end = self._first + STEPS
        profiled = statistics.median(taken[self._first : end - 1])
        return profiled / statistics.median(taken[end:]) - 1


def main(path: str, found: str) -> None:
    """Profile a script and write the names of the patterns, the most frequent first."""
    profiled = Profiled()
    iterate = DataLoader.__iter__

    def iterate_profiled(loader: DataLoader) -> Any:
        profiled.start()
        return iterate(loader)

    handle = register_optimizer_step_post_hook(profiled.stepped)
    read = script.find(path, is_module=False)
    with (
        script.as_main(read, []) as module,
        mock.patch.object(DataLoader, "__iter__", iterate_profiled),
    ):
        script.run(read.code, module)
    handle.remove()
    counts = {}
    for pattern in PATTERNS:
        one = pattern(profiled.profiler)
        matched = one.matched_events()
        if matched:
            counts[one.name] = len(matched)
    names = sorted(counts, key=lambda name: -counts[name])
    text = json.dumps({"patterns": names, "cost": profiled.cost()})
    Path(found).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
