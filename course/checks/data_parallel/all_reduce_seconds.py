"""Probe of exercise all_reduce_seconds."""

from course.checks.engine import exercise


@exercise(isolated=True)
def all_reduce_seconds(answer, device, seed):
    """Predicted seconds of three algorithms."""
    latency, bandwidth = (3 + seed % 7) * 1e-3, 1e9 * (1 + seed % 3)
    yield "is a dict with the three algorithms", sorted(answer(1000, 4, latency, bandwidth))

    def one(name, *cases):
        return {f"{n:,} bytes, {ranks} ranks": answer(n, ranks, latency, bandwidth)[name] for n, ranks in cases}

    for name in ("naive", "tree", "ring"):
        free = answer(1_000_000, 4, 0.0, bandwidth)[name]
        yield f"{name}: seconds that the bytes take, without latency", free
        yield f"{name}: seconds that the latency takes, with an empty tensor", answer(0, 4, latency, 1e9)[name]
        cases = [(n, ranks) for n in (4_000_000, 100_000_000) for ranks in (2, 8)]
        yield f"{name}: powers of two", one(name, *cases)
        yield f"{name}: other numbers of ranks", one(name, (4_000_000, 3), (4_000_000, 5 + seed % 3), (4_000_000, 100))
    fastest = {}
    for n in (100, 1_000_000_000):
        seconds = answer(n, 16, latency, bandwidth)
        fastest[f"{n:,} bytes"] = min(seconds, key=seconds.get)
    yield "the fastest of the three on 16 ranks", fastest
    yield "1 rank: nothing to wait for", answer(1000, 1, latency, bandwidth)
