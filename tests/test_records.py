"""Record files of unit 04 when writers are killed and on a full disk: whole, or what they were."""

import contextlib
import errno
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from conftest import ROOT
from numbered_rows import ROWS, SMALL, Numbered
from walks import wait_until

from course.checks.expected import load_solutions
from course.datasets import regression

UNIT = "04_fast_loading"
KILLS = 5


def shift_of(path, rows=ROWS):
    """The shift of the file at `path`, in which every row must be whole and at its place."""
    records = load_solutions(UNIT).Records(path)
    numbers = torch.arange(rows, dtype=torch.float32) + records.seed
    assert len(records) == rows
    assert torch.equal(records.x, numbers[:, None].expand_as(records.x)) and torch.equal(records.y, numbers)
    return records.seed


WRITERS = """
    import itertools, multiprocessing, os, sys, time
    from multiprocessing.forkserver import _forkserver as server
    from course.checks.expected import load_solutions
    from numbered_rows import Numbered

    path, pids = sys.argv[1:]
    write_records = load_solutions("04_fast_loading").write_records
    write_records(path, Numbered(2_000_000))  # from here on ranks start at once
    print("ready", flush=True)

    def server_runs():
        "Whether a process can be started: what a killed writer half asked for may end the server, in a while."
        process = multiprocessing.get_context("forkserver").Process(target=int)
        try:
            process.start()
        except (EOFError, OSError):
            time.sleep(0.1)
            return False
        process.join()
        return True

    for line in sys.stdin:
        assert any(server_runs() for _ in range(100))
        writer = os.fork()
        if writer == 0:
            server.ensure_running = lambda: None  # it runs, as a child of another
            for shift in itertools.cycle([1_000_000, 2_000_000]):
                write_records(path, Numbered(shift, pids=pids))
        print(writer, flush=True)
        os.waitpid(writer, 0)
"""


def runs(pid):
    """True if there is such a process."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_a_killed_writer_leaves_an_old_file_or_a_new_one(tmp_path):
    folder, pids = tmp_path / "records", tmp_path / "pids"
    folder.mkdir(), pids.mkdir()
    path = folder / "numbers.rec"
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests")))}
    rng, seen, cut = random.Random(4), [], 0
    writers = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITERS), str(path), str(pids)],
        env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert writers.stdout.readline() == "ready\n"
        for kill in range(KILLS):
            writers.stdin.write("\n"), writers.stdin.flush()
            writer = int(writers.stdout.readline())
            reads = len(os.listdir(pids)) + 1 + kill % 4  # two a file
            wait_until(lambda reads=reads: len(os.listdir(pids)) >= reads, "reads", every=0.002)
            time.sleep(rng.uniform(0, 0.05))
            os.kill(writer, signal.SIGKILL)
            # ranks end with their parent
            wait_until(lambda: not any(runs(int(pid)) for pid in os.listdir(pids)), "their end", every=0.002)
            seen.append(shift_of(path))
            others = [other for other in folder.iterdir() if other != path]
            assert all(other.name.startswith(".") for other in others), "only a hidden file may be left"
            cut += bool(others)
            for other in others:
                other.unlink()
    finally:
        os.killpg(writers.pid, signal.SIGKILL)
        writers.communicate()
    assert set(seen) <= {1_000_000, 2_000_000}
    assert cut >= 1, "no kill came while a file was written: this test tests nothing"


def test_a_mapping_outlives_the_file_that_it_was_made_of(tmp_path):
    solutions, path = load_solutions(UNIT), tmp_path / "numbers.rec"
    solutions.write_records(path, Numbered(0, rows=50), writers=1)
    older = solutions.Records(path)
    solutions.write_records(path, Numbered(7, rows=60), writers=1)
    assert older.y.tolist() == list(range(50)) and shift_of(path, rows=60) == 7


@pytest.mark.parametrize("writers", [1, 2])
@pytest.mark.parametrize("full, number", [("raise", errno.ENOSPC), ("limit", errno.EFBIG)])
def test_a_writer_without_room_changes_nothing(tmp_path, writers, full, number):
    write_records, path = load_solutions(UNIT).write_records, tmp_path / "numbers.rec"
    write_records(path, Numbered(0))
    with pytest.raises(OSError) as info:
        write_records(path, Numbered(1_000_000, full=full), writers=writers)
    assert info.value.errno == number
    assert shift_of(path) == 0 and os.listdir(tmp_path) == [path.name]


def test_a_file_that_cannot_get_its_length_changes_nothing(tmp_path):
    write_records, path = load_solutions(UNIT).write_records, tmp_path / "numbers.rec"
    write_records(path, Numbered(0))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, before[1]))  # Python ignores the signal that goes with it
    try:
        with pytest.raises(OSError) as info:
            write_records(path, Numbered(1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert info.value.errno == errno.EFBIG
    assert shift_of(path) == 0 and os.listdir(tmp_path) == [path.name]


def test_real_data_gives_the_same_file_by_any_number_of_writers(tmp_path):
    solutions, source = load_solutions(UNIT), regression.prepare(1000, 30, data=tmp_path)
    files = [solutions.write_records(tmp_path / f"{n}.rec", source, writers=n).read_bytes() for n in (1, 2, 3)]
    assert files[0] == files[1] == files[2]
    records = solutions.Records(tmp_path / "3.rec")
    assert np.array_equal(records.x, source.x) and np.array_equal(records.y, source.y)
    assert (records.table.shape, records.seed) == ((1000, 32), source.seed)
