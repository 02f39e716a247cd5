"""Probe of exercise choose_workers."""

from course.checks.engine import exercise
from course.checks.probing.errors import error_and_message


@exercise(isolated=True)
def choose_workers(answer, device, seed):
    """The fewest that are nearly the best; seconds are halves and quarters, so that limits are met exactly."""
    work = 8.0 * (1 + seed % 3)
    line, flat, powers = (0.0, work, 0.0), (work / 4, work, 0.0), [1, 2, 4, 8, 16]
    chosen = answer(flat, 10 * work, powers)
    yield "returns a whole number", type(chosen).__name__
    yield "on the floor more workers gain nothing: take the fewest there", chosen
    yield "above the floor the best is the one with the most workers", answer(line, 10 * work, powers)
    yield "candidates in any order", answer(flat, 10 * work, [16, 2, 8, 4, 1])
    yield (
        "the overhead counts: 4 workers are nearly as good as 16",
        answer((0.0, work, 4 * work), 10 * work, powers, 0.05),
    )
    yield "slack of a half", answer((work * 3 / 16, work, 0.0), 10 * work, [1, 2, 4, 8], 0.5)
    yield "a prediction that meets the limit exactly is near enough", answer(line, 10 * work, [8, 6, 4], 1.0)
    yield "one just above the limit is not", answer(line, 10 * work, [8, 6, 4], 0.99)
    yield "without slack only equals of the best", answer(flat, 10 * work, powers, slack=0.0)
    tiny = tuple(x / 1000 for x in line)
    yield "slack is a share, not seconds", answer(tiny, work, powers)
    yield "slack is a share of the best, not of 0 workers", answer(line, 100 * work, [0, *powers], 0.05)
    yield "0 workers, when the main process alone is the fastest", answer(flat, work / 8, [0, *powers])
    yield "0 workers, when the main process is nearly as fast", answer(flat, work / 4 * 1.03, [4, 2, 0, 1])
    yield "0 workers are the slowest: not chosen", answer(flat, work, [0, *powers])
    yield "0 is no candidate: its seconds play no part", answer(line, work / 1000, powers)
    yield "0 is the only candidate", answer(flat, 10 * work, [0])
    yield "by default 0.05: a loss of 4 % is near enough", answer((0.0, 0.96, 0.48), 10.0, [13, 16, 12])
    yield "by default 0.05: one of 6 % is not", answer((0.0, 1.0, 0.0), 10.0, [100, 94])
    kind, message = error_and_message(answer, flat, work, [], none="no error")
    yield "no candidates: a ValueError", kind
    yield "its message contains the word candidates", "candidates" in message.lower()
