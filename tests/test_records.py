"""Record files of unit 04 when a writer is killed and on a full disk: whole, or what they were."""

import errno
import os
import resource
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from conftest import ROOT
from numbered_rows import ROWS, Numbered

from course.datasets import regression
from course.notebook.solutions import load_solutions

UNIT = "04_fast_loading"
SMALL = 1 << 20  # bytes that a process may write when the disk is "full"


def shift_of(path, rows=ROWS):
    """The shift of the file at `path`, in which every row must be whole and at its place."""
    records = load_solutions(UNIT).Records(path)
    numbers = torch.arange(rows, dtype=torch.float32) + records.seed
    assert len(records) == rows
    assert torch.equal(records.x, numbers[:, None].expand_as(records.x)) and torch.equal(records.y, numbers)
    return records.seed


KILLED = """
import os, signal, sys
from functools import partial
from course.notebook.solutions import load_solutions
from numbered_rows import Numbered

kill = partial(os.kill, os.getpid(), signal.SIGKILL)
load_solutions("04_fast_loading").write_records(sys.argv[1], Numbered(1_000_000, at_end=kill))
"""


def test_a_killed_writer_leaves_the_old_file_and_a_hidden_one(tmp_path):
    path = tmp_path / "numbers.rec"
    load_solutions(UNIT).write_records(path, Numbered(0))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests")))}
    killed = subprocess.run([sys.executable, "-c", KILLED, path], env=environment)
    assert killed.returncode == -signal.SIGKILL and shift_of(path) == 0
    (other,) = (other.name for other in tmp_path.iterdir() if other != path)
    assert other.startswith(".")


def test_a_mapping_outlives_the_file_that_it_was_made_of(tmp_path):
    solutions, path = load_solutions(UNIT), tmp_path / "numbers.rec"
    solutions.write_records(path, Numbered(0, rows=50), writers=1)
    older = solutions.Records(path)
    solutions.write_records(path, Numbered(7, rows=60), writers=1)
    assert older.y.tolist() == list(range(50)) and shift_of(path, rows=60) == 7


def test_a_writer_without_room_changes_nothing(tmp_path):
    write_records, path = load_solutions(UNIT).write_records, tmp_path / "numbers.rec"
    write_records(path, Numbered(0))
    no_room = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (SMALL, SMALL))
    with pytest.raises(OSError) as info:
        write_records(path, Numbered(1_000_000, at_end=no_room))
    assert info.value.errno == errno.EFBIG
    assert shift_of(path) == 0 and os.listdir(tmp_path) == [path.name]


def test_real_data_gives_the_same_file_by_any_number_of_writers(tmp_path):
    solutions, source = load_solutions(UNIT), regression.prepare(1000, 30, data=tmp_path)
    files = [solutions.write_records(tmp_path / f"{n}.rec", source, writers=n).read_bytes() for n in (1, 2, 3)]
    assert files[0] == files[1] == files[2]
    records = solutions.Records(tmp_path / "3.rec")
    assert np.array_equal(records.x, source.x) and np.array_equal(records.y, source.y)
    assert (records.table.shape, records.seed) == ((1000, 32), source.seed)
