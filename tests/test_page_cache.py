"""A dropped file comes from the disk again, and is counted; traffic is counted as worked out by hand."""

import os

import pytest
import torch

from course.measure.page_cache import HEADER, Reads, drop_cached, limited, map_rows
from course.measure.traffic import Traffic

ROWS, STRIDE = 64, 4096


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(bytes(HEADER) + torch.arange(ROWS * STRIDE // 4, dtype=torch.float32).numpy().tobytes())
    return path


def test_rows_of_a_mapping_are_right_also_after_the_file_was_dropped(path):
    mapping, table = map_rows(path, ROWS, STRIDE)
    want = torch.arange(ROWS * STRIDE // 4, dtype=torch.float32).view(ROWS, -1)
    assert torch.equal(table, want)
    assert drop_cached(path, mapping) == hasattr(os, "posix_fadvise")
    assert torch.equal(table, want)


def test_limited_fills_and_drops_between_fills_once_the_room_is_used_up(path, monkeypatch):
    calls, fetched = [], iter([0, 0, 30, 60, 60, 90, 120, 120])
    monkeypatch.setattr("course.measure.page_cache.reads", lambda: Reads(float(next(fetched)), 0))
    monkeypatch.setattr("course.measure.page_cache.drop_cached", lambda *files: calls.append("drop"))
    fill = limited(lambda index, buffer: calls.append((index, buffer)), 40, path)
    for index in range(5):
        fill(index, "buffer")
    assert [call if call == "drop" else call[0] for call in calls] == [0, 1, "drop", 2, 3, "drop", 4]


def test_traffic_of_a_step_is_what_the_text_says():
    x, mean, w = torch.rand(8, 100), torch.rand(100), torch.rand(100)
    with Traffic() as naive:
        z = x - mean
        z @ w
    assert [(o.name, o.read, o.written, o.new) for o in naive.operations] == [
        ("sub", 3200 + 400, 3200, 3200), ("mv", 3200 + 400, 32, 32)]  # fmt: skip
    assert (naive.read, naive.written) == (7200, 3232)
    out, rows = torch.empty(4, 100), torch.tensor([3, 1, 5, 0])
    with Traffic() as gathered:
        torch.index_select(x, 0, rows, out=out).view(-1)
        out.sub_(mean).zero_()
    assert [(o.name, o.read, o.written, o.new) for o in gathered.operations] == [
        ("index_select", 1600 + 32, 1600, 0), ("sub_", 1600 + 400, 1600, 0), ("zero_", 0, 1600, 0)]  # fmt: skip
