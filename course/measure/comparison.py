"""Compare ways to do the same work: *the one way of the course*, with a control and an interval.

    result = compare({"one worker": slow, "two workers": fast})
    print(result)                            # a line per way: 1.90 times as fast (1.74 to 2.06)
    result.ratio("two workers").excludes(1, by=0.1)      # what a claim asks

All ways run once per round, in random order, because times of neighbouring runs are alike. The
first way runs twice: the ratio of the two is the control, and shows what this machine calls a
difference when there is none. Rounds continue until every interval is narrow enough for the
sentence. Whether an interval excludes 1 plays no part in stopping, so repeated looks raise no false
alarm.

The estimate is that of Hodges and Lehmann 1963, the median of the means of all pairs, on logarithms
of the ratios of a round; the interval is the one that belongs to Wilcoxon's signed rank test, which
assumes symmetry and nothing else.
"""

import functools
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from course.device import scale
from course.errors import CourseError
from course.measure.timing import now

CONFIDENCE = 0.95
FEWEST_VALUES = 6  # with fewer, no interval of 95 % exists
FEWEST_ROUNDS = 7
MOST_ROUNDS = 61
HALF_WIDTH = 0.05  # relative: enough for a sentence about 10 %
CONTROL = "the same again"
USUAL, CHANGED = "usual", "changed"  # the ways of a pair
NARROW, ROUNDS_OVER, TIME_OVER = "narrow enough", "rounds over", "time over"
# verdicts on a way
FASTER = "faster"
SLOWER = "slower"
SAME = "no difference of 5 %"
NOT_DECIDED = "not decided here"
NOT_MEASURED = "not measured here"  # of a way that this machine cannot take
SAME_WITHIN = (0.95, 1.05)
LEAST = 0.005  # a difference of less is called none: printed with two digits, it could not be seen
STEADY_BATCHES = 40  # of a pass over a loader, at least
SMOKE_BATCHES = 8  # at smoke scale, where no time is believed


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval of 95 % around it; the interval is infinite if it is unknown."""

    estimate: float
    low: float
    high: float

    def excludes(self, null: float, by: float = 0.0) -> bool:
        """True if the whole interval lies further than `by` from `null`, on either side."""
        return self.low > null + by or self.high < null - by

    def lies_within(self, low: float, high: float) -> bool:
        """True if the whole interval lies from `low` to `high`."""
        return low <= self.low and self.high <= high

    def scaled(self, factor: float) -> "Interval":
        """The Interval of `factor` times the quantity; `factor` is positive."""
        return Interval(factor * self.estimate, factor * self.low, factor * self.high)

    def inverted(self) -> "Interval":
        """The Interval of 1 over the quantity, which is positive."""
        return Interval(_inverse(self.estimate), _inverse(self.high), _inverse(self.low))

    def widened(self, factor: float) -> "Interval":
        """The Interval of a positive quantity, both ends moved outwards by `factor`, at least 1."""
        return Interval(self.estimate, self.low / factor, self.high * factor)

    @property
    def is_known(self) -> bool:
        """True if both ends are finite."""
        return math.isfinite(self.high - self.low)

    @property
    def why_unknown(self) -> str:
        """The words that stand for an interval that is unknown."""
        has_no_end = self.low in (0, -math.inf) and self.high == math.inf
        if has_no_end and math.isfinite(self.estimate):
            return f"no interval: fewer than {FEWEST_VALUES} runs"
        return "interval unknown: a run has no finite value"

    def shown(self, form: str = ".2f") -> str:
        """The estimate and the interval, each number in the format `form`."""
        if not self.is_known:
            return f"{self.estimate:{form}} ({self.why_unknown})"
        return f"{self.estimate:{form}} ({self.low:{form}} to {self.high:{form}})"

    def __str__(self) -> str:
        return self.shown()


@dataclass(frozen=True)
class Comparison:
    """Seconds of each way in each round, and why no further round was run.

    `seconds` is a float64 tensor (rounds,) per way; the first way is the base of all ratios.
    `control` is how many times as fast the base was as itself; a sound comparison has 1 within.
    `stopped` is NARROW, ROUNDS_OVER or TIME_OVER.
    """

    seconds: dict[str, torch.Tensor]
    control: Interval
    stopped: str

    @property
    def base(self) -> str:
        """The way that the others are compared with."""
        return next(iter(self.seconds))

    @property
    def rounds(self) -> int:
        """The number of rounds that count."""
        return len(self.seconds[self.base])

    def ratio(self, way: str, to: str | None = None) -> Interval:
        """How many times as fast as `to` `way` is (default: the base).

        The ratio of the base to another way is how many times as long that way takes. Where the
        control differs from 1, the interval is widened by as much: a machine that finds 4 % between
        equal ways proves no smaller difference between others.
        """
        found = ratio_interval(self.seconds[to or self.base], self.seconds[way])
        if not self.control.excludes(1):
            return found
        return found.widened(max(self.control.estimate, 1 / self.control.estimate))

    def time(self, way: str) -> Interval:
        """Seconds of `way`: the median of the base, times how many times as long `way` takes.

        So what is drawn or printed in seconds agrees with the ratios; the base has no width.
        """
        return self.ratio(self.base, way).scaled(self.median(self.base))

    def rate(self, way: str, amount: float) -> Interval:
        """`amount` per second, of a way whose run handles it; see `time`."""
        return self.ratio(way).scaled(amount / self.median(self.base))

    def pair(self, to: str, way: str) -> "Comparison":
        """The Comparison of these two ways alone, with the control of all."""
        both = {name: self.seconds[name] for name in (to, way)}
        return Comparison(both, self.control, self.stopped)

    def rounds_for(self, way: str, difference: float) -> int:
        """About how many rounds narrow the interval of `way` to half of a relative `difference`.

        An interval narrows with the square root of the rounds.
        """
        width = _relative_width(self.ratio(way))
        if not math.isfinite(width):
            return MOST_ROUNDS
        needed = self.rounds * (width / (difference / 2)) ** 2
        return max(FEWEST_ROUNDS, math.ceil(needed))

    def median(self, way: str) -> float:
        """The median of the seconds of `way`."""
        return self.seconds[way].quantile(0.5).item()

    def verdict(self, way: str, to: str | None = None) -> str:
        """FASTER, SLOWER, SAME or NOT_DECIDED; see `verdict_on`."""
        return verdict_on(self.ratio(way, to))

    def __str__(self) -> str:
        others = [way for way in self.seconds if way != self.base]
        width = max(len(way) for way in others)
        lines = [f"{way:{width}}  {self._sentence(way)}" for way in others]
        lines.append(f"control: {self.base} against itself {self.control}")
        lines.append(f"{self.rounds} rounds, {self.stopped}")
        return "\n".join(lines)

    def _sentence(self, way):
        return f"{self.ratio(way)} times as fast as {self.base}: {self.verdict(way)}"

    def draw(self, axes) -> None:
        """Draw a point and its interval per way into `axes`, with the control in grey."""
        rows = [(way, self.ratio(way), "C0") for way in self.seconds if way != self.base]
        rows.append((CONTROL, self.control, "0.5"))
        for height, (_, interval, color) in enumerate(rows):
            axes.plot([interval.low, interval.high], [height, height], color=color, lw=2)
            axes.plot(interval.estimate, height, "o", color=color)
        axes.axvline(1, color="0.8", zorder=0)
        axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
        axes.invert_yaxis()
        axes.set_xlabel(f"times as fast as {self.base}, interval of {CONFIDENCE:.0%}")


def verdict_on(ratio: Interval) -> str:
    """FASTER, SLOWER, SAME or NOT_DECIDED."""
    if ratio.excludes(1, by=LEAST):
        return FASTER if ratio.low > 1 else SLOWER
    return SAME if ratio.lies_within(*SAME_WITHIN) else NOT_DECIDED


def largest_gains(gains: Mapping[str, Interval]) -> list[str]:
    """The names of the ratios that are FASTER, without those that another surely exceeds."""
    proven = {name: gain for name, gain in gains.items() if verdict_on(gain) == FASTER}
    most_for_sure = max((gain.low for gain in proven.values()), default=0.0)
    return [name for name, gain in proven.items() if gain.high >= most_for_sure]


def furthest(intervals: Iterable[Interval]) -> Interval:
    """The Interval of a ratio, positive, one of whose ends is the furthest from 1 of all."""

    def distance(interval: Interval) -> float:
        if interval.low <= 0:
            return math.inf
        return max(abs(math.log(interval.low)), abs(math.log(interval.high)))

    return max(intervals, key=distance)


def compare(
    ways: Mapping[str, Callable[[], object]],
    *,
    device: torch.device | str = "cpu",
    half_width: float = HALF_WIDTH,
    fewest_rounds: int = FEWEST_ROUNDS,
    most_rounds: int = MOST_ROUNDS,
    seconds: float = 60.0,
    before_round: Callable[[int], object] | None = None,
    progress: bool = True,
) -> Comparison:
    """Time `ways`, functions without arguments that do the same work, against the first of them.

    Each way runs once before the clock counts.

    Args:
        device: is synchronised before the clock is read.
        half_width: relative half-width of every interval at which the rounds end.
        fewest_rounds, most_rounds: rounds at least and at most.
        seconds: no round begins later than this.
        before_round: called with the number of a round before it begins, 0 for the warm-up. Where
            it draws what all ways of the round work on, the intervals cover the draws, too.
        progress: whether to draw a bar to standard output.

    Raises: CourseError if there are fewer than two ways.
    """

    def measure(way: str) -> float:
        begin = now(device)
        ways[way]()
        return now(device) - begin

    return compare_measured(
        list(ways),
        measure,
        half_width=half_width,
        rounds=(fewest_rounds, most_rounds),
        seconds=seconds,
        before_round=before_round,
        progress=progress,
    )


def compare_pairs(
    pairs: Mapping[str, tuple[Callable[[], object], Callable[[], object]] | str],
    *,
    device: torch.device | str = "cpu",
    seconds: float = 10.0,
    progress: bool = True,
) -> "dict[str, Comparison | str]":
    """{name: Comparison of a usual way with a changed one, each pair with its own control}.

    Args:
        pairs: {name: (usual, changed)}, functions without arguments; or {name: reason} of what
            cannot be measured on this machine, which stays.
        seconds: that each pair takes, about; see `compare`.
    """
    found: dict[str, Comparison | str] = {}
    bar = tqdm(pairs.items(), "pairs", file=sys.stdout, leave=False, disable=not progress)
    for name, pair in bar:
        if isinstance(pair, str):
            found[name] = pair
            continue
        ways = {USUAL: pair[0], CHANGED: pair[1]}
        found[name] = compare(ways, device=device, seconds=seconds, progress=False)
    return found


def compare_measured(
    ways: Sequence[str],
    measure: Callable[[str], float],
    *,
    half_width: float = HALF_WIDTH,
    rounds: tuple[int, int] = (FEWEST_ROUNDS, MOST_ROUNDS),
    seconds: float = 60.0,
    before_round: Callable[[int], object] | None = None,
    progress: bool = False,
    clock: Callable[[], float] = time.monotonic,
    shuffler: random.Random | None = None,
) -> Comparison:
    """The Comparison of `ways` by `measure(way)`, the seconds of one run; see `compare`.

    Args:
        clock: tells when `seconds` are over.
        shuffler: draws the order of each round (default: that of Python).

    Raises: CourseError if there are fewer than two ways.
    """
    if len(ways) < 2:
        raise CourseError(f"a comparison needs two ways or more, found {len(ways)}.")
    prepare = before_round or (lambda number: None)
    prepare(0)
    for way in ways:
        measure(way)  # fills caches, starts workers, compiles
    draw = (shuffler or random).sample
    end = clock() + seconds
    table: dict[str, list[float]] = {way: [] for way in (*ways, CONTROL)}
    for number in _counted_rounds(rounds[1], progress):
        prepare(number)
        for name in draw(list(table), len(table)):
            table[name].append(measure(ways[0] if name == CONTROL else name))
        if number >= rounds[0]:
            if _widest(table, ways) <= half_width:
                return _comparison(table, ways, NARROW)
            if clock() > end:
                return _comparison(table, ways, TIME_OVER)
    return _comparison(table, ways, ROUNDS_OVER)


def _counted_rounds(most: int, progress: bool) -> Iterator[int]:
    """1, 2, …, `most`, with a bar."""
    numbers = range(1, most + 1)
    yield from tqdm(numbers, "rounds", file=sys.stdout, leave=False, disable=not progress)


def _widest(table, ways):
    """The largest half-width of the intervals of all ratios, the control among them."""
    base = torch.tensor(table[ways[0]], dtype=torch.float64)
    widths = []
    for name, taken in table.items():
        if name != ways[0]:
            interval = ratio_interval(base, torch.tensor(taken, dtype=torch.float64))
            widths.append(_relative_width(interval))
    return max(widths)


def _comparison(table, ways, stopped):
    seconds = {way: torch.tensor(table[way], dtype=torch.float64) for way in ways}
    again = torch.tensor(table[CONTROL], dtype=torch.float64)
    return Comparison(seconds, ratio_interval(seconds[ways[0]], again), stopped)


def ratio_interval(numerators: torch.Tensor, denominators: torch.Tensor) -> Interval:
    """The Interval of the ratio of two positive quantities that were measured in pairs."""
    logarithms = torch.log(numerators / denominators)
    interval = signed_rank_interval(logarithms.tolist())
    return Interval(*map(math.exp, (interval.estimate, interval.low, interval.high)))


def ratio_of_gains(one: Comparison, other: Comparison) -> Interval:
    """The Interval of how many times as large the gain of one pair is as that of another.

    Both are results of `compare_pairs`, which share no rounds. The estimate is the quotient of the
    two ratios that are printed.
    """
    return product(one.ratio(CHANGED), other.ratio(CHANGED).inverted())


def product(first: Interval, second: Interval) -> Interval:
    """The Interval of the product of two ratios that were measured independently.

    Source: Zou and Donner 2008, "Construction of confidence limits about effect measures: a general
    approach", on logarithms: distances to the limits add up in squares.
    """
    middle = first.estimate * second.estimate
    below = _distance(first.estimate, first.low, second.estimate, second.low)
    above = _distance(first.estimate, first.high, second.estimate, second.high)
    low = 0.0 if math.isinf(below) else middle / math.exp(below)
    high = math.inf if math.isinf(above) else middle * math.exp(above)
    return Interval(middle, low, high)


def _distance(estimate: float, limit: float, other: float, other_limit: float) -> float:
    """The distance of the limit of a product from its estimate, on a logarithmic scale."""
    numbers = (estimate, limit, other, other_limit)
    if min(numbers) <= 0 or math.isinf(max(numbers)):
        return math.inf
    return math.hypot(math.log(limit / estimate), math.log(other_limit / other))


def largest_difference(numbers: Sequence[Any], others: Sequence[Any]) -> float:
    """The largest absolute difference of two equally long lists of numbers, or of tuples."""
    one = torch.tensor(numbers, dtype=torch.float64)
    other = torch.tensor(others, dtype=torch.float64)
    return (one - other).abs().max().item()


def difference_interval(scores: Sequence[float], others: Sequence[float]) -> Interval:
    """The Interval of `scores` minus `others`, two trainings that share their seeds in pairs.

    With fewer than FEWEST_VALUES seeds the interval is unknown.
    """
    return signed_rank_interval([a - b for a, b in zip(scores, others, strict=True)])


def signed_rank_interval(differences: Sequence[float]) -> Interval:
    """The centre of paired differences and its interval of 95 %, without an assumed distribution.

    Source: Hollander, Wolfe and Chicken 2014, "Nonparametric Statistical Methods", section 3.3.
    """
    values = np.asarray(differences, dtype=np.float64)
    first, second = np.triu_indices(len(values))
    means = np.sort((values[first] + values[second]) / 2)
    left_out = ranks_left_out(len(values))
    if left_out is None:
        return Interval(float(np.median(means)), -math.inf, math.inf)
    low, high = means[left_out], means[len(means) - 1 - left_out]
    return Interval(float(np.median(means)), float(low), float(high))


@functools.cache
def ranks_left_out(n: int) -> int | None:
    """How many of the sorted means of `n` values lie below the interval; None if there is none.

    The signed rank statistic of n values takes each sum of a subset of 1, …, n equally often.
    """
    counts = np.ones(1)
    for rank in range(1, n + 1):
        longer = np.zeros(len(counts) + rank)
        longer[: len(counts)] += counts
        longer[rank:] += counts
        counts = longer
    below = np.cumsum(counts) / counts.sum()  # of a statistic of at most 0, 1, 2, …
    allowed = int(np.searchsorted(below, (1 - CONFIDENCE) / 2, side="right"))
    return allowed - 1 if allowed else None


def steady_batches(num_workers: int) -> int:
    """The batches of a pass that is in its steady state: a multiple of `num_workers`, 40 or more.

    A pass of 10 batches with 4 workers is as slow as one of 12: one worker makes three of them.
    At smoke scale 8 are enough.
    """
    each = max(num_workers, 1)
    fewest = SMOKE_BATCHES if scale() == "smoke" else STEADY_BATCHES
    return each * math.ceil(fewest / each)


def quotient(numerator: Interval, denominator: Interval) -> Interval:
    """The Interval of one ratio divided by another, which was measured in other rounds.

    The relative half-widths add as independent errors do: the root of the sum of their squares.
    """
    width = math.hypot(_relative_width(numerator), _relative_width(denominator))
    estimate = numerator.estimate * _inverse(denominator.estimate)
    if not math.isfinite(width):
        return Interval(estimate, 0.0, math.inf)
    return Interval(estimate, estimate * math.exp(-width), estimate * math.exp(width))


def _inverse(number: float) -> float:
    """1 over `number`; infinity for 0, which the CPU time of a short pass may be."""
    return 1 / number if number else math.inf


def _relative_width(interval):
    """Half of the width of an interval of a positive quantity, on its logarithm."""
    if not 0 < interval.low <= interval.high < math.inf:
        return math.inf
    return math.log(interval.high / interval.low) / 2
