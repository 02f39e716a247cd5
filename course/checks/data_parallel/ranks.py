"""Facts that ranks find: an answer called in every rank, and what came of it put together."""

from course.checks.compare import plain
from course.distributed import counted, run_ranks, wire_bytes

HANG = 8  # seconds after which ranks that wait for each other are ended


def each_rank(values):
    """{"rank 0": ..., "rank 1": ...} of values in the order of ranks."""
    return {f"rank {rank}": value for rank, value in enumerate(values)}


def together(answers):
    """(fact, {rank: what came of it there}) for each fact; `answers` are the dicts of the ranks."""
    for fact in answers[0]:
        yield fact, each_rank(facts[fact] for facts in answers)


def results_in_ranks(answer, *inputs):
    """For each of `inputs`, a list of the arguments of each rank: (result, operations, bytes sent) of each rank."""
    found = run_ranks(_results, len(inputs[0]), answer, inputs, backend="gloo", timeout=HANG)
    return list(zip(*found, strict=True))


def _results(rank, world_size, answer, inputs):
    found = []
    for of_ranks in inputs:
        with counted() as traffic:
            before = wire_bytes()
            result = answer(*of_ranks[rank])
            sent = 0 if before is None else wire_bytes() - before
        found.append([plain(result), traffic.calls(), sent])
    return found
