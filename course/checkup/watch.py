"""Watch a training from outside: what it does in each step, and how long that takes.

A step ends when the first optimizer that was seen has stepped. Three parts do the work: the Clock
cuts a step into phases, the Schedule says which kind the next step is, and the Hooks are what is
changed in torch. Leaving the block puts everything back.
"""

import collections
import sys
import time
from collections.abc import Callable

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course.checkup import limits
from course.checkup.clock import Clock
from course.checkup.counted import Counted
from course.checkup.hooks import Hooks
from course.checkup.lines import Sampler, is_users
from course.checkup.patches import Patches
from course.checkup.phases import COUNTED, FREE, LOOKED, WARM, Step
from course.checkup.ready import world_size
from course.checkup.schedule import Enough, Schedule
from course.checkup.seen import Seen
from course.measure.roofline import gpu_util

RANKS_STEPS = 2  # after which it is known how many ranks there are
BACKWARDS_ALONE = 40  # backward passes without an optimizer, after which they end a step
SWALLOWED_MAX = 5  # times that a script may catch Enough and keep training


class Watch:
    """Everything that is seen, in the block `with Watch(...) as watch:`.

    The block ends by Enough when enough was seen, or when it takes too long.

    Args:
        steps: how many are watched at least, after some that warm up.
        minutes: after which it ends; ignored if several ranks train.
        at_end: called when enough was seen, while the script still has its data open, and torch
            is as it was.
        last_resort: called if the script continues after Enough, or cannot be ended; it must end
            the process.
    """

    sampler: Sampler  # finds lines of code; there is one inside the block and after it

    def __init__(
        self,
        steps: int = 60,
        minutes: float = 3.0,
        at_end: Callable[[], None] | None = None,
        last_resort: Callable[[], None] | None = None,
    ) -> None:
        self.minutes = minutes
        self.clock = Clock()
        self.schedule = Schedule(steps, minutes)
        self.seen = Seen()
        self.counted = Counted(self.clock, self.seen)
        self.hooks = Hooks(
            self.clock,
            self.seen,
            self.counted,
            self._end_step,
            self._end_backward,
            self._optimizers_begin,
        )
        self._at_end = at_end
        self._last_resort = last_resort
        self._over_at: float | None = None  # when enough was seen, and the report is made
        self._is_open = False
        self._swallowed = 0
        self._after = Patches()  # what keeps a script from training after Enough

    @property
    def steps(self) -> list[Step]:
        """The steps that were seen."""
        return self.schedule.steps

    @property
    def is_over(self) -> bool:
        """Whether enough was seen, or time was over: what follows is not watched."""
        return self._over_at is not None or self._watchdog.has_raised

    @property
    def ran_out_of_time(self) -> bool:
        """Whether it was ended from outside, because no step ended in time."""
        return self._watchdog.has_raised

    def __enter__(self) -> "Watch":
        self.sampler = Sampler(lambda: self.clock.phase, self.seen.failures)
        self._watchdog = limits.Watchdog(Enough, self._limit, self._last_resort)
        self._trace = sys.gettrace()
        self.hooks.patches.undo.callback(self.sampler.end)
        self.hooks.install()
        self._is_open = True
        return self

    def __exit__(self, *error: object) -> None:
        self._watchdog.end()
        sys.settrace(self._trace)
        self._after.close()
        self.close()

    def close(self) -> None:
        """Put everything back, and settle what can be told only at the end."""
        if not self._is_open:
            return
        self._is_open = False
        self.clock.on = False
        self.counted.on = False
        self.hooks.remove()
        passes = self.hooks.forward.passes
        passes.settle(self.steps)
        found: collections.Counter[tuple[str, str]] = collections.Counter()
        for (phase, line), n in self.sampler.found.items():
            found[passes.resolved(phase), line] += n
        self.sampler.found = found

    def _limit(self) -> float | None:
        """When it ends from outside: long after it should have ended by itself."""
        if not self._is_open and self._over_at is None:
            return None  # what was seen is being looked at, which has its own limits
        if self._over_at is not None:
            return self._over_at + 60 * self.minutes
        if self.clock.first is None or self.schedule.ranks > 1:
            return None
        return self.clock.first + limits.TIMES * 60 * self.minutes

    def _end_step(self) -> None:
        """End a step and begin the next one.  Raises: Enough after the last."""
        try:
            self._go_on()
        except Enough:
            self._finish()
            raise

    def _go_on(self) -> None:
        step = self.clock.end_step()
        self.schedule.begin_at(self.clock.first or time.monotonic())
        self.schedule.add(step)
        self.hooks.forward.passes.end_step(step)
        if self.schedule.goes_on_free():  # the short way: nothing is attached to such steps
            self.clock.begin_step(FREE)
            return
        self._look_back(step)
        kind = self.schedule.next_kind()
        if kind != step.kind:
            self._prepare(kind)
        self.clock.begin_step(kind)

    def _look_back(self, step: Step) -> None:
        """Note what a step has left behind."""
        for seen in self.seen.optimizers.values():
            if step.kind in (WARM, COUNTED):
                seen.steps_max = max(seen.steps_max, seen.steps_now)
            seen.steps_now = 0
        if step.kind != COUNTED:  # in which we keep batches
            self.counted.habits.growth.note(len(self.steps))
        self.hooks.count_batch()
        self.hooks.forward.end_step()
        if len(self.steps) <= RANKS_STEPS:  # before any decision by a clock
            self.schedule.ranks = world_size()
            self.hooks.readiness.is_on = self.schedule.ranks > 1
            self.clock.follows_queue = self.schedule.ranks > 1 and not self.clock.cuda
        if self.counted.on:
            look = self.seen.failures.look
            look("what a step leaves behind", self.counted.end_step, self.seen.batch)

    def _prepare(self, kind: str) -> None:
        """Start what the first step of a kind needs."""
        self.sampler.look(kind == LOOKED)
        if kind == LOOKED and self.clock.cuda:
            self.seen.gpu_util = self.seen.failures.look("GPU-Util", gpu_util)
        if kind == COUNTED:
            self.counted.start(self.hooks.patches)

    def _end_backward(self) -> None:
        """End a step after backward, if no optimizer of torch.optim ever steps."""
        seen = self.seen
        if seen.ends_by_backward:
            self._end_step()
        elif not seen.optimizers and seen.backwards >= BACKWARDS_ALONE:
            if world_size() == 1:
                seen.ends_by_backward = True
                self._end_step()

    def _optimizers_begin(self) -> None:
        """Forget the steps if backward ended them: gradients were only accumulated so far."""
        if self.seen.ends_by_backward and not self.counted.on:
            self.seen.ends_by_backward = False
            self.schedule.restart()
            self.counted.habits.growth.restart()

    # ---- the end

    def _finish(self) -> None:
        """Look at what was seen while the script's data are still open, then end the script."""
        self.close()
        if self._at_end:
            self._at_end()
        self._over_at = time.monotonic()
        self._after.handle(register_optimizer_step_pre_hook(self._before_optimizer))
        self._after.replace(torch.autograd, "backward", self._no_backward)

    def _before_optimizer(self, optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        self._end_again()

    def _no_backward(self, original: Callable[..., None]) -> Callable[..., None]:
        def backward(*args: object, **kwargs: object) -> None:
            self._end_again()
            original(*args, **kwargs)

        return backward

    def _end_again(self) -> None:
        """End a script that has caught Enough and keeps training."""
        if not self.clock.is_in_thread():
            return
        self._swallowed += 1
        if self._swallowed > SWALLOWED_MAX and self._last_resort:
            self._last_resort()
        limits.raise_in_every_line(Enough, is_users)
        raise Enough
