"""Probe of exercise seed_worker."""

import itertools
import random
from collections.abc import Iterable, Sequence
from unittest import mock

import numpy
import torch
from torch.utils.data import Dataset, get_worker_info
from torch.utils.data._utils import worker

from course.checks.parallel_loading.workers import epochs
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.randomness import random_state

MANY = 400  # seeds cut to fewer than 10,000 values then agree somewhere
# seeds that are so far apart agree in their last 6 decimal digits and in their last 16 bits
LAST_DIGITS = 2**16 * 5**6
FEW = 4
Draws = list[list[float]]  # of worker 0 and of worker 1, in an epoch


class _Drawing(Dataset):
    """Item i is [id of the worker, a draw of the dataset's Generator].

    The draw is -1 if the rng is not a Generator.
    """

    def __init__(self, n: int, seed: int) -> None:
        self.n = n
        self.rng = numpy.random.default_rng(20260101 + seed)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> torch.Tensor:
        draw = self.rng.random() if isinstance(self.rng, numpy.random.Generator) else -1.0
        return torch.tensor([get_worker_info().id, draw], dtype=torch.float64)


@exercise(changes_inputs=True, starts_processes=True, returns_no_number=True)
def seed_worker(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The numbers that two workers draw in two epochs."""
    n = 12 + 4 * (seed % 3)
    # somewhere in the streams: to seed them as they were at the start is noticed
    random.random()
    numpy.random.random()
    torch.rand(1)
    before = random_state()
    result = answer(0)
    yield "in the main process: does nothing, returns None", type(result).__name__
    yield "and leaves the random numbers of the main process", random_state() == before
    dataset = _Drawing(n, seed)
    first, second = _draws(answer, dataset, seed, n_epochs=2)
    (again,) = _draws(answer, dataset, seed)
    (other,) = _draws(answer, dataset, seed + 1)
    unseeded = _Drawing(n, seed).rng.random(n).tolist()
    on = unseeded[:2]  # what laws are tried on: other numbers at every seed
    everything = _joined(first) + _joined(second) + _joined(again) + _joined(other)
    yield "rng is a numpy Generator in each worker", tried(min(everything) >= 0, on)
    is_replaced = _disjoint([first[0][0], first[1][0]], unseeded)
    yield "the rng that was copied is replaced in each worker", tried(is_replaced, on)
    are_new = len(set(first[0])) == len(first[0])
    yield "a worker does not repeat itself", tried(are_new, on)
    are_other = _disjoint(first[0], first[1])
    yield "the two workers draw different numbers", tried(are_other, on)
    new_in_second = _disjoint(_joined(first), _joined(second))
    yield "the second epoch does not repeat the first", tried(new_in_second, on)
    yield "the same generator of the loader, the same numbers", tried(again == first, on)
    new_in_other = _disjoint(_joined(other), _joined(first))
    yield "another generator of the loader, other numbers", tried(new_in_other, on)
    firsts = _first_draws(answer, dataset, seed)
    are_other = len({*firsts}) == len(firsts)
    yield "of many workers with other seeds, no two draw the same", tried(are_other, on)


def _draws(answer: Answer, dataset: _Drawing, loader_seed: int, n_epochs: int = 1) -> list[Draws]:
    """What both workers draw in each epoch."""
    generator = torch.Generator().manual_seed(loader_seed)
    draws = []
    for batches in epochs(
        dataset, n_epochs, batch_size=2, worker_init_fn=answer, generator=generator
    ):
        items = torch.cat(batches)
        workers = items[:, 0]
        draws.append([items[workers == worker, 1].tolist() for worker in (0, 1)])
    return draws


def _first_draws(answer: Answer, dataset: _Drawing, seed: int) -> list[float]:
    """The first draw in each of many workers that are pretended, in this process."""
    rng = random.Random(seed)
    seeds = [rng.getrandbits(62) for _ in range(MANY)]
    seeds += [seeds[0] + number * LAST_DIGITS for number in range(1, FEW)]
    before = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    try:
        return [_first_draw(answer, dataset, worker_seed) for worker_seed in seeds]
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        numpy.random.set_state(before[2])


def _first_draw(answer: Answer, dataset: _Drawing, worker_seed: int) -> float:
    """The first draw in a worker with this seed, which also seeds the global numbers there."""
    own = _Drawing(dataset.n, 0)
    torch.default_generator.manual_seed(worker_seed)
    random.seed(worker_seed)
    numpy.random.seed(numpy.random.SeedSequence(worker_seed).generate_state(4))
    info = worker.WorkerInfo(id=0, num_workers=2, seed=worker_seed, dataset=own)
    with mock.patch.object(worker, "_worker_info", info):
        answer(0)
    return own.rng.random() if isinstance(own.rng, numpy.random.Generator) else -1.0


def _joined(draws: Draws) -> list[float]:
    """The draws of both workers, one after the other."""
    return list(itertools.chain.from_iterable(draws))


def _disjoint(these: Sequence[float], those: Iterable[float]) -> bool:
    return set(these).isdisjoint(those)
