"""Known mistakes of exercise seed_worker, and right answers in other styles."""

import random

import numpy
import torch
from torch.utils.data import get_worker_info

from course.checks.engine import alternative, mistake


@mistake(
    "seed_worker",
    "dataset.rng is still the copy; np.random.seed does not reach it. Assign a new Generator to info.dataset.rng.",
)
def seeds_the_global_numbers(worker_id):
    if get_worker_info() is not None:
        numpy.random.seed(get_worker_info().seed % 2**32)


@mistake(
    "seed_worker", "The worker's id alone is the seed, and is the same in every epoch. Use get_worker_info().seed."
)
def id_alone(worker_id):
    if get_worker_info() is not None:
        get_worker_info().dataset.rng = numpy.random.default_rng(worker_id)


@mistake("seed_worker", "All workers get the same seed: that of the epoch, without the id. info.seed holds both.")
def seed_of_the_epoch(worker_id):
    info = get_worker_info()
    if info is not None:
        info.dataset.rng = numpy.random.default_rng(info.seed - info.id)


@mistake("seed_worker", "default_rng() without a seed cannot be repeated by anybody. Give it get_worker_info().seed.")
def seed_of_the_system(worker_id):
    if get_worker_info() is not None:
        get_worker_info().dataset.rng = numpy.random.default_rng()


@mistake(
    "seed_worker", "The seed is drawn from the copied rng, which is the same in all workers and epochs. Use info.seed."
)
def seed_from_the_copy(worker_id):
    if get_worker_info() is not None:
        dataset = get_worker_info().dataset
        dataset.rng = numpy.random.default_rng(dataset.rng.integers(2**32))


@mistake("seed_worker", "In the main process get_worker_info() is None. Do nothing there.")
def no_main_process(worker_id):
    info = get_worker_info()
    info.dataset.rng = numpy.random.default_rng(info.seed)


@mistake(
    "seed_worker",
    "That is no Generator of numpy, perhaps an old RandomState. Make one with numpy.random.default_rng(seed).",
)
def random_state(worker_id):
    if get_worker_info() is not None:
        get_worker_info().dataset.rng = numpy.random.RandomState(get_worker_info().seed % 2**32)


@alternative("seed_worker")
def number_of_torch(worker_id):
    if get_worker_info():
        drawn = torch.randint(2**62, (4,)).tolist()  # torch seeded its own numbers in this worker
        setattr(get_worker_info().dataset, "rng", numpy.random.Generator(numpy.random.PCG64(drawn)))  # noqa: B010


@alternative("seed_worker")
def initial_seed(worker_id):
    worker = get_worker_info()
    if worker is None:
        return
    worker.dataset.rng = numpy.random.default_rng([torch.initial_seed() - worker_id, worker_id])


@alternative("seed_worker")
def number_of_python(worker_id):
    for dataset in filter(None, [getattr(get_worker_info(), "dataset", None)]):
        dataset.rng = numpy.random.Generator(numpy.random.Philox(random.getrandbits(128)))
