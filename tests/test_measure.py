"""What is measured: seconds in turn, CPU time, memory, reads, pixels, and whether torch compiles here."""

import math
import mmap
import multiprocessing
import os
import sys
import time

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from course.measure import comparison, compiling, timing, usage
from course.measure.load_counts import LoadCounts
from course.measure.page_cache import HEADER, Reads, drop_cached, limited, map_rows
from course.measure.traffic import Traffic

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def burn(seconds):
    """Keep a processor busy, for seconds of this process."""
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        pass


@linux
@pytest.mark.parametrize("persistent", [True, False])
def test_the_cpu_time_of_workers_counts_while_they_live_and_after(persistent):
    loader = DataLoader(range(8), 1, collate_fn=lambda items: burn(0.05), num_workers=1,
                        multiprocessing_context="fork", persistent_workers=persistent)  # fmt: skip
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
    busy = usage.busy_seconds()
    burn(0.3)
    assert usage.busy_seconds() - busy > 0.2


@pytest.fixture
def picture(tmp_path):
    Image.new("RGB", (64, 32)).save(tmp_path / "a.jpg")
    return tmp_path / "a.jpg"


def decode(path, side=None):
    with Image.open(path) as file:
        if side:
            file.draft("RGB", (side, side))
        file.convert("RGB").load()


@pytest.mark.parametrize("side, pixels", [(None, 64 * 32), (16, 32 * 16)])
def test_inside_of_the_block_a_file_is_opened_once_and_decoded_once_a_draft_in_part(picture, side, pixels):
    with LoadCounts() as counts:
        decode(picture, side)
    decode(picture)
    assert (counts["files opened"], counts["pixels decoded"]) == (1, pixels)


def test_what_a_forked_process_does_counts_and_its_start_too(picture):
    with LoadCounts() as counts:
        process = multiprocessing.get_context("fork").Process(target=decode, args=(picture,))
        process.start()
        process.join()
    assert (counts["files opened"], counts["processes started"]) == (1, 1)


def test_a_watched_transform_counts_the_pixels_that_it_is_given():
    counts = LoadCounts()
    assert counts.watch(lambda picture: "done")(Image.new("RGB", (6, 4))) == "done"
    assert counts["pixels augmented"] == 24


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


def double(x):
    return 2 * x


def test_at_smoke_scale_nothing_is_compiled(monkeypatch):
    monkeypatch.setenv("COURSE_SCALE", "smoke")
    made = compiling.compiled(double, torch.ones(2))
    assert made.call is None and math.isnan(made.seconds) and "smoke" in made.reason


def test_without_a_compiler_the_reason_is_one_short_line(monkeypatch):
    def refuse(function, mode=None):
        def call(*example):
            raise RuntimeError("No working C++ compiler found: " + "g++ " * 50 + "\n\nSet TORCHDYNAMO_VERBOSE=1")

        return call

    monkeypatch.setenv("COURSE_SCALE", "laptop")
    monkeypatch.setattr(torch, "compile", refuse)
    made = compiling.compiled(double, torch.ones(2))
    assert made.call is None and made.reason.startswith("No working C++ compiler found")
    assert "\n" not in made.reason and len(made.reason) <= compiling.REASON_CHARACTERS_MAX


def test_a_compiled_function_was_called_with_the_example(monkeypatch):
    seen = []
    monkeypatch.setenv("COURSE_SCALE", "laptop")
    monkeypatch.setattr(torch, "compile", lambda function, mode=None: function)
    made = compiling.compiled(seen.append, 3)
    assert seen == [3] and made.call is not None and made.seconds >= 0 and made.reason == ""


@pytest.mark.all
def test_torch_compiles_here_or_says_why_not(monkeypatch):
    monkeypatch.setenv("COURSE_SCALE", "laptop")
    x = torch.arange(6.0)
    made = compiling.compiled(double, x)
    assert made.reason or torch.equal(made.call(x), 2 * x)


def test_a_line_gives_mean_sample_deviation_and_images_per_second():
    assert timing.timing_line(torch.tensor([1.0, 3.0]), 10, 200) == "2.000 ± 1.414 s for 10 batches, 1,000 images/s"
    assert timing.timing_line(torch.tensor([2.0]), 1, 3) == "2.000 s for 1 batches, 2 images/s"


def test_the_clock_stops_when_the_device_is_done(monkeypatch):
    events = []
    monkeypatch.setattr(torch.cpu, "synchronize", lambda device: events.append("wait"))
    ways = {"a": lambda: events.append("a"), "b": lambda: events.append("b")}
    comparison.compare(ways, progress=False, seconds=0, most_rounds=7)
    triples = [events[k : k + 3] for k in range(0, len(events), 3)]
    assert len(triples) == 2 + 7 * 3 and all(kind in (["wait", "a", "wait"], ["wait", "b", "wait"]) for kind in triples)


def test_lists_differ_by_their_largest_difference_in_any_number():
    schedule = [(0.1, 0.9), (0.2, 0.8)]
    assert comparison.largest_difference(schedule, schedule) == 0
    assert comparison.largest_difference(schedule, [(0.1, 0.9), (0.2, 0.85)]) == pytest.approx(0.05)
    assert comparison.largest_difference([1.0, 2.0], [1.0, 1.5]) == 0.5


def test_the_largest_gains_are_those_that_none_surely_exceeds():
    wide = comparison.Interval(3.0, 1.2, 5.0)
    narrow = comparison.Interval(2.5, 2.4, 2.6)
    smaller = comparison.Interval(2.0, 1.9, 2.1)
    gains = {"wide": wide, "narrow": narrow, "smaller": smaller}
    assert comparison.largest_gains(gains) == ["wide", "narrow"], "the narrow one is larger than 2.1 for sure"
    assert comparison.largest_gains({"none": comparison.Interval(1.0, 0.9, 1.1)}) == []
