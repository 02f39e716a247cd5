"""Probe of exercise WorkerWitness."""

import os

import torch
from torch.utils.data import Dataset

from course.checks.parallel_loading.workers import epochs
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import kind


@exercise()
def WorkerWitness(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The witness, asked in the main process and in workers."""
    n = 9 + seed % 4
    size = 2 + seed % 2
    main = os.getpid()
    dataset = answer(n)
    yield "its length is n", len(dataset)
    item = dataset[n - 1]
    yield "an item is an int64 tensor of 3 numbers", kind(item)
    yield "the first number of item i is i", [dataset[i][0].item() for i in range(n)]
    yield "in the main process the worker's id is -1", item[1].item()
    yield "in the main process, the main process's id", item[2].item() == main

    (batches,) = epochs(dataset, num_workers=0, batch_size=size)
    yield "a loader without workers: who makes each batch", _workers_of(batches)
    all_in_main = all(bool((batch[:, 2] == main).all()) for batch in batches)
    yield "a loader without workers: all in the main process", all_in_main

    batches, processes = _in_workers(dataset, size)
    items = torch.cat(batches)
    yield "two workers: the items come in order", items[:, 0]
    yield "two workers: who makes each batch", _workers_of(batches)
    none_in_main = not (items[:, 2] == main).any()
    yield "two workers: no item is made in the main process", tried(none_in_main, n)
    yield "two workers are two processes", tried(len(items[:, 2].unique()), n)
    right = torch.equal(items[:, 2], processes[items[:, 1]])
    yield "the id of the process is that of the worker", tried(right, n)


def _workers_of(batches: list[torch.Tensor]) -> list[list[int]]:
    """The id of the worker of each item of each batch."""
    return [batch[:, 1].tolist() for batch in batches]


def _in_workers(dataset: Dataset, size: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """(the batches of an epoch with two workers, the id of the process of each worker)."""
    processes = torch.zeros(2, dtype=torch.int64).share_memory_()

    def report(worker_id: int) -> None:
        processes[worker_id] = os.getpid()

    (batches,) = epochs(dataset, batch_size=size, worker_init_fn=report)
    return batches, processes.clone()
