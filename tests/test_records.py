"""Record files of unit 04: whole or what they were, refused if broken, read page by page."""

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
from course.loading.loaders import aligned_buffers
from course.loading.page_reader import PageReader
from course.loading.records import HEADER, Records, row_stride, write_records

SMALL = 1 << 20  # bytes that a process may write when the disk is "full"


def shift_of(path, rows=ROWS):
    """The shift of the file at `path`, in which every row must be whole and at its place."""
    records = Records(path)
    numbers = torch.arange(rows, dtype=torch.float32) + records.seed
    assert len(records) == rows
    assert torch.equal(records.x, numbers[:, None].expand_as(records.x)) and torch.equal(records.y, numbers)
    return records.seed


KILLED = """
import os, signal, sys
from functools import partial
from course.loading.records import write_records
from numbered_rows import Numbered

kill = partial(os.kill, os.getpid(), signal.SIGKILL)
write_records(sys.argv[1], Numbered(1_000_000, at_end=kill))
"""


def test_a_killed_writer_leaves_the_old_file_and_a_hidden_one(tmp_path):
    path = tmp_path / "numbers.rec"
    write_records(path, Numbered(0))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests")))}
    killed = subprocess.run([sys.executable, "-c", KILLED, path], env=environment)
    assert killed.returncode == -signal.SIGKILL and shift_of(path) == 0
    (other,) = (other.name for other in tmp_path.iterdir() if other != path)
    assert other.startswith(".")


def test_a_mapping_outlives_the_file_that_it_was_made_of(tmp_path):
    path = tmp_path / "numbers.rec"
    write_records(path, Numbered(0, rows=50))
    older = Records(path)
    write_records(path, Numbered(7, rows=60))
    assert older.y.tolist() == list(range(50)) and shift_of(path, rows=60) == 7


def test_a_writer_without_room_changes_nothing(tmp_path):
    path = tmp_path / "numbers.rec"
    write_records(path, Numbered(0))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    no_room = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (SMALL, hard))
    try:
        with pytest.raises(OSError) as info:
            write_records(path, Numbered(1_000_000, at_end=no_room))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert info.value.errno == errno.EFBIG
    assert shift_of(path) == 0 and os.listdir(tmp_path) == [path.name]


def test_a_record_file_holds_the_rows_of_real_data(tmp_path):
    source = regression.prepare(1000, 30, data=tmp_path)
    records = Records(write_records(tmp_path / "3.rec", source))
    assert np.array_equal(records.x, source.x) and np.array_equal(records.y, source.y)
    assert (records.table.shape, records.seed) == ((1000, 32), source.seed)
    records.table[0] = 7
    assert np.array_equal(Records(tmp_path / "3.rec").x, source.x), "a mapping is private"


def test_the_stride_is_a_power_of_two_or_whole_memory_pages():
    assert [row_stride(columns) for columns in (1, 3, 20, 1023, 1024, 2500)] == [8, 16, 128, 4096, 8192, 12288]


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda content: content[:-4], "has .* bytes, its header asks for"),
        (lambda content: content.replace(b"records-1", b"records-2"), "course-records-2"),
        (lambda content: content.replace(b'"seed"', b'"sown"'), "has no key 'seed'"),
        (lambda content: b"x" * HEADER + content[HEADER:], "not a record file"),
    ],
)
def test_a_broken_record_file_is_refused_with_its_path(tmp_path, change, words):
    path = write_records(tmp_path / "numbers.rec", Numbered(0, rows=20))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=words) as info:
        Records(path)
    assert str(path) in str(info.value)


@pytest.fixture
def pages(tmp_path):
    """A file of 20 pages of 50 rows, the last one short, and its rows."""
    rows = 20 * 50 - 3
    path = write_records(tmp_path / "numbers.rec", Numbered(0, rows=rows))
    return path, Records(path).table


def shuffled(*pages, rows):
    wanted = torch.cat([torch.arange(50 * page, min(50 * page + 50, rows)) for page in pages])
    return wanted[torch.randperm(len(wanted))]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_reader_of_pages_puts_each_row_where_the_index_says(pages, threads):
    path, table = pages
    with PageReader(path, len(table), 512, 50, threads=threads) as reader:
        for wanted in (shuffled(7, 2, 11, rows=len(table)), shuffled(19, 0, rows=len(table)), torch.arange(0)):
            out = torch.full((200, 128), 7.0)
            assert torch.equal(reader.fill(wanted, out), table[wanted])
            assert (out[len(wanted) :] == 7).all()


def test_a_reader_of_long_pages_makes_several_calls(pages):
    path, table = pages
    wanted = torch.randperm(len(table))
    with PageReader(path, len(table), 512, 5000) as reader:
        assert torch.equal(reader.fill(wanted, torch.empty(len(table), 128)), table[wanted])


def test_a_reader_refuses_what_it_cannot_read(pages):
    path, table = pages
    out = torch.empty(200, 128)
    with PageReader(path, len(table), 512, 50) as reader:
        for wanted in (torch.arange(49), torch.arange(51), torch.arange(1, 51), torch.full((50,), 3)):
            with pytest.raises(ValueError, match="not all rows of some pages"):
                reader.fill(wanted, out)
        with pytest.raises(ValueError, match="do not fit"):
            reader.fill(torch.arange(50), torch.empty(49, 128))
        os.truncate(path, HEADER + 60 * 512)
        with pytest.raises(EOFError, match="page 1 is cut off"):
            reader.fill(torch.arange(50, 100), out)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.fill(torch.arange(50), out)


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no O_DIRECT")
def test_direct_reads_need_whole_blocks(pages):
    path, table = pages
    with pytest.raises(ValueError, match="not whole blocks"):
        PageReader(path, len(table), 512, 50, direct=True)
    try:
        reader = PageReader(path, len(table) // 8, 4096, 5, direct=True)
    except OSError:
        pytest.skip("this file system has no O_DIRECT")
    (memory,) = aligned_buffers(1, 6, 1024)
    with reader:
        assert torch.equal(reader.fill(torch.arange(5), memory).view(-1, 128), table[:40])
        with pytest.raises(ValueError, match="multiple of 4096"):
            reader.fill(torch.arange(5), memory.view(-1)[16 : 16 + 5 * 1024].view(5, 1024))
