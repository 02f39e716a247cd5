"""The ladder of unit 06: training steps of FashionCNN, each with one change more than before.

A change that stays out of a rung leaves everything else as it is, so two rungs differ by it alone.
"""

import copy
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.device import scale
from course.measure.comparison import Comparison, compare_measured
from course.measure.compiling import compiled
from course.measure.timing import now
from course.training.models import FashionCNN

BASELINE = "baseline"
CONTROL = "nothing changed"
NO_BIAS = "no useless bias"
CHANNELS_LAST = "channels last"
FUSED = "fused optimizer"
HALF = "16 bits"
CHANGES = (NO_BIAS, CHANNELS_LAST, FUSED, HALF)  # each rung adds one
COMPILED = "compiled model"  # on top of all CHANGES
WARM_UP_STEPS = 3  # a compiled model compiles its backward pass in the first


class Rung:
    """A training step with `changes` on `batches`, one after the other.

    Two Rungs start from the same weights if `seed` is the same.

    Args:
        changes: names in CHANGES or COMPILED.

    Attributes:
        reason: why it cannot be measured, "" if it can.
        compile_seconds: until the compiled model has made its first step, 0 if nothing is compiled.
        done: steps that were made.
    """

    def __init__(
        self,
        changes: Sequence[str],
        batches: Sequence[tuple[Tensor, Tensor]],
        device: torch.device,
        seed: int = 0,
    ):
        torch.manual_seed(seed)
        self.changes = changes
        self.device = device
        self.model = FashionCNN(dropout=0.0).to(device)
        if NO_BIAS in changes:
            self._drop_biases()
        layout = torch.channels_last if CHANNELS_LAST in changes else torch.contiguous_format
        self.model.to(memory_format=layout)
        self.batches = [(x.to(memory_format=layout), y) for x, y in batches]
        fused = FUSED in changes or None  # None: what torch takes by itself
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=fused)
        self.dtype = half_dtype(device)
        self.scaler = torch.amp.GradScaler(device.type) if self.dtype == torch.float16 else None
        self.forward = self.model
        self.step = self.plain
        self.done = 0
        self.reason = ""
        self.compile_seconds = 0.0
        if COMPILED in changes:
            self._compile()
        if not self.reason:
            seconds = self.steps(WARM_UP_STEPS - self.done)
            if self.compile_seconds:
                self.compile_seconds += seconds

    def _drop_biases(self) -> None:
        """Remove the biases that a BatchNorm subtracts, without a change of what it computes."""
        for layer, norm in itertools.pairwise(self.model.convolutions):
            if isinstance(norm, nn.BatchNorm2d):
                norm.running_mean -= layer.bias.detach()
                layer.bias = None

    def plain(self, x: Tensor, y: Tensor) -> None:
        """One training step."""
        half = HALF in self.changes
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=half):
            loss = F.cross_entropy(self.forward(x), y)
        if half and self.scaler:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self.optimizer.step()

    def _compile(self) -> None:
        # half a minute on two cores, which no training of the notebook pays back
        if scale() == "laptop":
            self.reason = "it compiles for too long; measured at gpu scale"
            return
        before = copy.deepcopy(self.model.state_dict())
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=HALF in self.changes):
            made = compiled(self.model, self.batches[0][0])
        self.model.load_state_dict(before)  # this forward pass moved the running statistics
        self.forward = made.call
        self.reason = made.reason
        self.compile_seconds = made.seconds

    def steps(self, n: int) -> float:
        """Make n steps and return their seconds."""
        started = now(self.device)
        for _ in range(n):
            self.step(*self.batches[self.done % len(self.batches)])
            self.done += 1
        return now(self.device) - started


def half_dtype(device: torch.device) -> torch.dtype:
    """bfloat16; float16 on a GPU without units for bfloat16."""
    older = device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.float16 if older else torch.bfloat16


def ladder(batches: Sequence[tuple[Tensor, Tensor]], device: torch.device) -> dict[str, Rung]:
    """{name: Rung}: baseline, the same again, the changes added one by one, the model compiled."""
    changes = {BASELINE: (), CONTROL: ()}
    for number, name in enumerate(CHANGES):
        changes[name] = CHANGES[: number + 1]
    changes[COMPILED] = (*CHANGES, COMPILED)
    return {name: Rung(made, batches, device) for name, made in changes.items()}


def timed(
    rungs: dict[str, Rung], steps: int, seconds: float = 60.0, progress: bool = True
) -> Comparison:
    """The Comparison of the Rungs, by seconds per step; those with a reason are left out.

    Each run makes `steps` steps. The base runs twice per round, once as BASELINE and once as
    CONTROL, so that all Rungs make as many steps.
    """
    rungs[CONTROL].steps(steps)  # as the others warm up
    baselines = itertools.cycle((rungs[BASELINE], rungs[CONTROL]))
    names = [name for name, rung in rungs.items() if not rung.reason and name != CONTROL]

    def seconds_per_step(name: str) -> float:
        rung = next(baselines) if name == BASELINE else rungs[name]
        return rung.steps(steps) / steps

    return compare_measured(names, seconds_per_step, seconds=seconds, progress=progress)


def compared(rungs: dict[str, Rung], timed_rungs: Comparison) -> dict[str, Comparison | str]:
    """{name: Comparison of the Rung with the one before it, or why it could not be measured}."""
    found = {}
    before = BASELINE
    for name, rung in rungs.items():
        if rung.reason:
            found[name] = rung.reason
        elif name not in (BASELINE, CONTROL):
            found[name] = timed_rungs.pair(before, name)
            before = name
    return found
