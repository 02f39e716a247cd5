"""The books of the system: CPU seconds and memory of this process and its children."""

import mmap
import sys
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from course.measure import usage

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
@pytest.mark.parametrize("persistent", [True, False])
def test_the_cpu_time_of_workers_counts_while_they_live_and_after(persistent):
    loader = DataLoader(Burner(), 1, num_workers=1, multiprocessing_context="fork", persistent_workers=persistent)
    before, mine = usage.cpu_seconds(), time.process_time()
    assert len(list(loader)) == 8
    everything, mine = usage.cpu_seconds() - before, time.process_time() - mine
    assert everything - mine > 0.3  # 0.4 s are burnt, counted in steps of 10 ms


@linux
def test_pages_of_a_file_are_not_private_memory_and_others_are(tmp_path):
    torch.zeros(1_000_000).numpy().tofile(tmp_path / "file")
    before = usage.private_bytes()
    mapped = torch.from_file(str(tmp_path / "file"), shared=False, size=1_000_000)
    mapped.sum()
    assert usage.private_bytes() - before < 1e6
    with mmap.mmap(-1, 40_000_000) as own:  # memory that nobody gave back before
        own.write(bytes(40_000_000))
        assert 39e6 < usage.private_bytes() - before < 130e6  # what is written lies in memory too, for a moment


@linux
def test_the_machine_is_at_least_as_busy_as_this_process():
    busy, own = usage.busy_seconds(), time.process_time()
    while time.process_time() - own < 0.3:
        pass
    assert usage.busy_seconds() - busy > 0.2
