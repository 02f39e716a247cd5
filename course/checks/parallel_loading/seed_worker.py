"""Probe of exercise seed_worker."""

import numpy
import torch
from torch.utils.data import Dataset, get_worker_info

from course.checks.parallel_loading.workers import epochs
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.randomness import random_state


class _Drawing(Dataset):
    """Item i is [id of the worker, a draw of the dataset's Generator]; an rng that is no Generator
    draws -1.
    """

    def __init__(self, n):
        self.n, self.rng = n, numpy.random.default_rng(20260101)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        draw = self.rng.random() if isinstance(self.rng, numpy.random.Generator) else -1.0
        return torch.tensor([get_worker_info().id, draw], dtype=torch.float64)


def _passes(answer, n, n_epochs, loader_seed):
    generator = torch.Generator().manual_seed(loader_seed)
    return epochs(_Drawing(n), n_epochs, batch_size=2, worker_init_fn=answer, generator=generator)


@exercise(
    changes_inputs=True, starts_processes=True, same_facts_at_all_seeds=True, returns_no_number=True
)
def seed_worker(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The numbers that two workers draw in two epochs."""
    n = 12 + 4 * (seed % 3)

    def draws(loader_seed, n_epochs=1):
        """For each epoch the draws of worker 0 and of worker 1."""
        passes = _passes(answer, n, n_epochs, loader_seed)
        items = [torch.cat(batches) for batches in passes]
        return [[x[x[:, 0] == worker, 1].tolist() for worker in (0, 1)] for x in items]

    before = random_state()
    result = answer(0)
    yield "in the main process: does nothing, returns None", type(result).__name__
    yield "and leaves the random numbers of the main process", random_state() == before
    (first, second), (again,), (other,) = draws(seed, 2), draws(seed), draws(seed + 1)
    everything = [x for epoch in (first, second, again, other) for worker in epoch for x in worker]
    yield "rng is a numpy Generator in each worker", min(everything) >= 0
    start = _Drawing(n).rng.random(n).tolist()
    yield (
        "the rng that was copied is replaced in each worker",
        not {first[0][0], first[1][0]} & set(start),
    )
    yield "a worker does not repeat itself", len(set(first[0])) == len(first[0])
    yield "the two workers draw different numbers", not set(first[0]) & set(first[1])
    yield (
        "the second epoch does not repeat the first",
        not set(sum(first, [])) & set(sum(second, [])),
    )
    yield "the same generator of the loader, the same numbers", again == first
    yield (
        "another generator of the loader, other numbers",
        not set(sum(other, [])) & set(sum(first, [])),
    )
