"""Known mistakes of exercise seed_worker, and right answers in other styles."""

import random

import numpy
import torch
from torch.utils.data import get_worker_info

from course.engine.known_answers import alternative

MISTAKES = {
    "seeds_the_global_numbers": (
        "dataset.rng is still the copy; np.random.seed does not reach it. Assign a new Generator to info.dataset.rng.",
        (
            "info.dataset.rng = np.random.default_rng(info.seed)",
            "np.random.seed(info.seed % 2**32)",
        ),
    ),
    "recipe_for_the_global_numbers": (
        "This seeds the global numbers, here and in the workers, and dataset.rng stays the copy. If info is not None, "
        "assign a new Generator to info.dataset.rng.",
        (
            "    if info is not None:\n        info.dataset.rng = np.random.default_rng(info.seed)",
            "    np.random.seed(torch.initial_seed() % 2**32)",
        ),
    ),
    "id_alone": (
        "The seed is made from the worker's id, or from the copied rng and the id: both are the same in every epoch. "
        "Use get_worker_info().seed.",
        ("(info.seed)", "(worker_id)"),
    ),
    "seed_of_the_epoch": (
        "All workers get the same seed: that of the epoch, without the id. info.seed holds both.",
        ("(info.seed)", "(info.seed - info.id)"),
    ),
    "seed_of_the_system": (
        "default_rng() without a seed gives other numbers in every run. Pass it get_worker_info().seed.",
        ("(info.seed)", "()"),
    ),
    "seed_from_the_copy": (
        "The seed is drawn from the copied rng, which is the same in all workers and epochs. Use info.seed.",
        ("(info.seed)", "(info.dataset.rng.integers(2**32))"),
    ),
    "few_seeds": (
        "The seed is cut to a few values, so some workers or epochs get the same one. Use the whole info.seed.",
        ("(info.seed)", "(info.seed % 1000)"),
    ),
    "no_main_process": (
        "In the main process get_worker_info() is None. Do nothing there.",
        ("    if info is not None:\n    ", ""),
    ),
    "random_state": (
        "That is not a NumPy Generator, perhaps an old RandomState. Make one with numpy.random.default_rng(seed).",
        ("default_rng(info.seed)", "RandomState(info.seed % 2**32)"),
    ),
}


@alternative
def number_of_torch(worker_id):
    if get_worker_info():
        drawn = torch.randint(2**62, (4,)).tolist()  # torch seeded its own numbers in this worker
        setattr(get_worker_info().dataset, "rng", numpy.random.Generator(numpy.random.PCG64(drawn)))  # noqa: B010


@alternative
def initial_seed(worker_id):
    worker = get_worker_info()
    if worker is None:
        return
    worker.dataset.rng = numpy.random.default_rng([torch.initial_seed() - worker_id, worker_id])


@alternative
def number_of_python(worker_id):
    for dataset in filter(None, [getattr(get_worker_info(), "dataset", None)]):
        dataset.rng = numpy.random.Generator(numpy.random.Philox(random.getrandbits(128)))
