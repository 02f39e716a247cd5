"""Whether the process grows with each step."""

import os
import statistics

STEPS_LEFT_OUT = 3  # that fill caches
STEPS_MIN = 6
QUARTERS = 4


class Growth:
    """Bytes of the process after some steps."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, int]] = []  # (number of the step, bytes)

    def note(self, step: int) -> None:
        """Look at the process after a step."""
        if step >= STEPS_LEFT_OUT:
            self._seen.append((step, resident_bytes()))

    def restart(self) -> None:
        """Forget what was noted: the steps are counted from zero again."""
        self._seen.clear()

    def per_step(self) -> float:
        """Bytes per step, if each quarter of the steps has more than the one before; else 0."""
        n = len(self._seen)
        if n < STEPS_MIN:
            return 0.0
        means = []
        for quarter in range(QUARTERS):
            part = self._seen[n * quarter // QUARTERS : n * (quarter + 1) // QUARTERS]
            steps, sizes = zip(*part, strict=True)
            means.append((statistics.mean(steps), statistics.mean(sizes)))
        (first_step, first), (last_step, last) = means[0], means[-1]
        slope = (last - first) / max(1e-9, last_step - first_step)
        for (step, size), (next_step, next_size) in zip(means, means[1:], strict=False):
            if next_size - size < slope / 2 * (next_step - step):
                return 0.0
        return max(0.0, slope)


def resident_bytes() -> int:
    """Bytes of memory that the process holds; 0 where /proc does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
