"""The books of the system: CPU seconds and memory of this process and its children."""

import math
import multiprocessing
import sys
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from course import usage

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


class Burner(Dataset):
    """Items that take 50 ms of CPU each."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        begin = time.process_time()
        while time.process_time() - begin < 0.05:
            pass
        return torch.zeros(1_000_000)


@linux
def test_the_cpu_time_of_workers_counts():
    loader = DataLoader(Burner(), 1, num_workers=1, multiprocessing_context="fork", persistent_workers=True)
    before, mine = usage.cpu_seconds(), time.process_time()
    assert len(list(loader)) == 8
    everything, mine = usage.cpu_seconds() - before, time.process_time() - mine
    assert everything - mine > 0.3  # 0.4 s are burnt, counted in steps of 10 ms


@linux
def test_memory_that_a_worker_shares_is_counted_once():
    held = torch.ones(25_000_000)  # 100 MB
    alone = usage.memory_bytes()
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
    child.start()
    try:
        together = usage.memory_bytes()
    finally:
        child.kill()
        child.join()
    assert held.nbytes < alone and together < alone + 0.5 * held.nbytes


def test_without_proc_the_answer_is_nan(monkeypatch):
    def missing(*args):
        raise FileNotFoundError

    monkeypatch.setattr(usage, "_pss", missing)
    assert math.isnan(usage.memory_bytes())
