"""Watch a training from outside: what it does in each step, and how long that takes.

A step ends when the first optimizer that was seen has stepped. Three parts do the work: the Clock
cuts a step into phases, the Schedule says which kind the next step is, and the Hooks are what is
changed in torch. Leaving the block puts everything back.
"""

import torch.distributed as dist

from course.checkup.clock import Clock
from course.checkup.counted import Counted
from course.checkup.hooks import Hooks
from course.checkup.lines import Sampler
from course.checkup.phases import COUNTED, FREE, LOOKED, WARM, Step
from course.checkup.schedule import Schedule
from course.checkup.seen import Seen

FINDING_STEPS = 2  # in which the models that the script calls are found


class Watch:
    """Everything that is seen, in the block `with Watch(...) as watch:`.

    The block ends by Enough when enough was seen.

    Args:
        steps: how many are watched at least, after some that warm up.
        minutes: after which it ends; ignored if several ranks train.
    """

    sampler: Sampler  # finds lines of code; there is one inside the block and after it

    def __init__(self, steps: int = 60, minutes: float = 3.0) -> None:
        self.minutes = minutes
        self.clock = Clock()
        self.schedule = Schedule(steps, minutes)
        self.seen = Seen()
        self.counted = Counted(self.clock, self.seen)
        self.hooks = Hooks(self.clock, self.seen, self.counted, self._end_step)

    @property
    def steps(self) -> list[Step]:
        """The steps that were seen."""
        return self.schedule.steps

    def __enter__(self) -> "Watch":
        self.sampler = Sampler(lambda: self.clock.phase)
        self.hooks.patches.undo.callback(self.sampler.end)
        self.hooks.install()
        return self

    def __exit__(self, *error: object) -> None:
        self.clock.on = False
        self.counted.on = False
        self.hooks.remove()

    def _end_step(self) -> None:
        """End a step and begin the next one.  Raises: Enough after the last."""
        step = self.clock.end_step()
        self.schedule.add(step)
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
        if len(self.steps) == FINDING_STEPS:
            if dist.is_available() and dist.is_initialized():
                self.schedule.ranks = dist.get_world_size()
            self.hooks.attach_to_models()
        if self.counted.on:
            self.counted.end_step(self.seen.batch)

    def _prepare(self, kind: str) -> None:
        """Start what the first step of a kind needs."""
        self.sampler.look(kind == LOOKED)
        if kind == COUNTED:
            self.counted.start(self.hooks.patches)
