"""Which kind the next step is, and when the check-up has seen enough.

After some WARM steps come TIMED and FREE ones, which TIMED ones are held against; they are drawn at
random, so that no rhythm of a loader's workers meets them. Then some are LOOKED at, and the last
are COUNTED. Where several ranks train, no decision depends on a clock: all must end after the same
step.
"""

import collections
import math
import random
import time

from course.checkup.phases import COUNTED, FREE, LOOKED, TIMED, WARM, Step

WARM_UP = 5  # steps
WARM_MAX = 0.2  # of the time
COUNTED_STEPS = 24
STEPS_MIN = 12  # that are timed, and that are looked at, unless half of the time has gone
TIMED_STEPS_LATE = 4  # are enough when half of the time has gone
LAST_TIMED_STEPS = 2  # are enough when all of it has gone
STEPS_MAX = 8  # times the steps that are wanted: then STEPS_MIN do not matter
LOOK_SECONDS = 0.5
LOOK_STEPS_LATE = 3  # are enough when half of the time has gone
LOOK_STEPS_MAX = 400
LOOK_STEPS_RANKS = 40  # where several ranks train
EVERY = 6  # one step in so many is timed, or in up to EVERY_MAX
EVERY_MAX = 24
CUTTING_MAX = 0.02  # share of the time that cutting steps into phases may take
MIDDLE_STEPS_MIN = 4  # steps of a kind whose median says how long it takes


class Enough(BaseException):
    """The check-up has seen enough; no `except Exception` of a script catches it."""


class Schedule:
    """Draws the kind of the next step from the `steps` that were seen.

    Args:
        steps: how many are TIMED or FREE at least.
        minutes: after which it ends; ignored if several ranks train.
    """

    def __init__(self, steps: int, minutes: float) -> None:
        self.wanted = steps
        self.minutes = minutes
        self.begin = math.inf  # when the training began
        self.half_time = math.inf
        self.end_time = math.inf
        self.steps: list[Step] = []
        self.ranks = 1
        self.ended = False  # by Enough, so in all ranks after the same step
        self._count: collections.Counter[str] = collections.Counter()  # of steps of each kind
        self._looked_seconds = 0.0
        self._every = EVERY
        self._free = 0  # FREE steps that follow, if there is time
        self._random = random.Random(0)

    def begin_at(self, begin: float) -> None:
        """Let the time begin: at the first sign of a training, for preparing takes what it takes.

        Args:
            begin: time.monotonic() of that sign.
        """
        if self.begin == math.inf:
            self.begin = begin
            self.half_time = self.begin + 30 * self.minutes
            self.end_time = self.begin + 60 * self.minutes

    def restart(self) -> None:
        """Forget the steps so far: they were none."""
        self.steps.clear()
        self._count.clear()
        self._free = 0

    def add(self, step: Step) -> None:
        """Note a step that has ended."""
        self.steps.append(step)
        self._count[step.kind] += 1
        if step.kind == LOOKED:
            self._looked_seconds += step.seconds

    def goes_on_free(self) -> bool:
        """Whether the next step is one of several FREE ones in a row; counts it."""
        if not self._free or self._is_after(self.half_time):
            return False
        self._free -= 1
        return True

    def next_kind(self) -> str:
        """The kind of the next step.  Raises: Enough after the last."""
        is_late = self._count[TIMED] >= LAST_TIMED_STEPS and self._is_after(self.end_time)
        counted = self._count[COUNTED]
        if counted >= COUNTED_STEPS or (is_late and counted):
            self.ended = True
            raise Enough
        if len(self.steps) < WARM_UP and not self._is_after(self._warm_until()):
            return WARM
        if counted or is_late:  # one step is counted in any case: it is what can be tried again
            return COUNTED
        if self._count[LOOKED]:
            return COUNTED if self._has_looked_enough() else LOOKED
        if self._has_timed_enough():
            return LOOKED
        if self.steps[-1].kind == FREE:
            return TIMED
        self._free = self._random.randrange(self._timed_every())
        return FREE if self._free else TIMED

    def _is_after(self, moment: float) -> bool:
        """Whether a moment is over; never where several ranks train."""
        return self.ranks == 1 and time.monotonic() >= moment

    def _warm_until(self) -> float:
        """When warming up ends, at the latest: slow steps need less of it."""
        return self.begin + WARM_MAX * 60 * self.minutes

    def _is_half(self) -> bool:
        """Whether half of the time has gone, and what is timed has to do."""
        return self._count[TIMED] >= TIMED_STEPS_LATE and self._is_after(self.half_time)

    def _has_timed_enough(self) -> bool:
        if self._is_half():
            return True
        measured = len(self.steps) - WARM_UP
        if measured < self.wanted:
            return False
        return self._count[TIMED] >= STEPS_MIN or measured >= STEPS_MAX * self.wanted

    def _has_looked_enough(self) -> bool:
        looked = self._count[LOOKED]
        if self.ranks > 1:
            return looked >= LOOK_STEPS_RANKS
        if looked >= LOOK_STEPS_MAX:
            return True
        wanted = LOOK_STEPS_LATE if self._is_half() else STEPS_MIN
        return self._looked_seconds > LOOK_SECONDS and looked >= wanted

    def _timed_every(self) -> int:
        """One step in about how many is timed: fewer where cutting it into phases takes long."""
        if self._count[TIMED] % 4 == 0 and self.ranks == 1:
            timed = self._median(TIMED)
            free = self._median(FREE)
            if timed and free:
                # each TIMED step has half as many FREE ones on average
                every = round(2 * (timed / free - 1) / CUTTING_MAX)
                self._every = min(EVERY_MAX, max(EVERY, every))
        return self._every

    def _median(self, kind: str) -> float | None:
        """The median of the seconds of a kind of steps, or None if they are few."""
        seconds = sorted(s.seconds for s in self.steps if s.kind == kind and not s.evaluated)
        return seconds[len(seconds) // 2] if len(seconds) >= MIDDLE_STEPS_MIN else None
