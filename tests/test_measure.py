"""What is measured: seconds in turn, CPU time, memory, reads, pixels, and whether torch compiles here."""

import math
import mmap
import multiprocessing
import os
import random
import sys
import time

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from course.measure import compiling, timing, usage
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
    def refuse(function):
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
    monkeypatch.setattr(torch, "compile", lambda function: function)
    made = compiling.compiled(seen.append, 3)
    assert seen == [3] and made.call is not None and made.seconds >= 0 and made.reason == ""


@pytest.mark.all
def test_torch_compiles_here_or_says_why_not(monkeypatch):
    monkeypatch.setenv("COURSE_SCALE", "laptop")
    x = torch.arange(6.0)
    made = compiling.compiled(double, x)
    assert made.reason or torch.equal(made.call(x), 2 * x)


def test_a_sweep_shuffles_each_round_and_leaves_global_random_numbers_alone():
    calls, state = [], random.getstate()
    seconds = timing.sweep(lambda setting: calls.append(setting) or len(calls), [[1], [1], [2], [3]], 4, seed=3)
    rounds = [calls[k : k + 4] for k in range(0, 16, 4)]
    assert all(sorted(settings) == [[1], [1], [2], [3]] for settings in rounds) and any(f != rounds[0] for f in rounds)
    assert seconds.shape == (4, 4) and seconds.dtype == torch.float64 and random.getstate() == state
    assert sorted(seconds.flatten().tolist()) == list(range(1, 17)) and seconds.amax(0).tolist() == [4, 8, 12, 16]


def test_every_loader_has_one_pass_more_than_is_counted(capsys):
    passes = []

    def seconds_per_pass(loader, n_batches, repeats, warmup):
        passes.append((loader, n_batches, repeats, warmup))
        return torch.tensor([float(len(passes))])

    seconds = timing.time_in_turn([range(3), range(5)], 2, seconds_per_pass, progress=False)
    assert sorted(seconds.flatten().tolist()) == [3.0, 4.0, 5.0, 6.0]  # passes 1 and 2 warmed up
    assert passes[:2] == [(range(3), 3, 1, 0), (range(5), 5, 1, 0)] and len(passes) == 6
    assert capsys.readouterr() == ("", "")
    timing.time_in_turn([range(3)], 1, seconds_per_pass, n_batches=2)
    assert passes[-1] == (range(3), 2, 1, 0)


def test_speedup_pairs_the_rounds():
    seconds = torch.tensor([[2.0, 6.0, 4.0], [1.0, 2.0, 4.0]])
    assert timing.speedup(seconds, 1) == "2.00 (1.00 to 3.00)"
    assert timing.speedup(seconds, 0, base=1) == "0.50 (0.33 to 1.00)"


def test_a_line_gives_mean_sample_deviation_and_images_per_second():
    assert timing.timing_line(torch.tensor([1.0, 3.0]), 10, 200) == "2.000 ± 1.414 s for 10 batches, 1,000 images/s"
    assert timing.timing_line(torch.tensor([2.0]), 1, 3) == "2.000 s for 1 batches, 2 images/s"


def test_microseconds_gives_the_results_in_order():
    us, results = timing.microseconds(str, [1, 2])
    assert us > 0 and results == ["1", "2"]


def test_pairs_take_turns_and_each_way_begins_in_every_other_round(capsys):
    calls = []
    pairs = {name: (lambda n=name: calls.append(n), lambda n=name: calls.append(n.upper())) for name in "ab"}
    compared = timing.compare_in_turn(pairs | {"c": "needs CUDA"}, 2, progress=False)
    assert "".join(calls) == "aAbB" + "AaBb" + "aAbB"  # the first four warm up
    assert list(compared) == ["a", "b", "c"]
    assert compared["a"].seconds.shape == (2, 2) and compared["a"].seconds.min() > 0
    assert compared["c"].verdict == timing.NOT_MEASURED and str(compared["c"]) == "not measured here: needs CUDA"
    assert math.isnan(compared["c"].ratio) and capsys.readouterr() == ("", "")


def test_three_quarters_of_the_rounds_must_gain_more_than_the_margin():
    def comparison(*ratios):
        return timing.Comparison(torch.tensor([[ratio, 1.0] for ratio in ratios], dtype=torch.float64))

    assert comparison(1.5, 1.03, 2.0, 1.03, 0.5).verdict == timing.HELPED  # one disturbed round of five
    assert comparison(1.5, 1.01, 2.0, 1.03, 0.5).verdict == timing.NOT_DECIDED
    assert comparison(0.9, 1.01, 1.02).verdict == timing.DID_NOT_HELP
    assert comparison(0.5).verdict == comparison(0.9, 0.97, 1.01, 0.9, 0.9).verdict == timing.SLOWER
    assert str(comparison(1.5, 1.01, 2.0, 3.0, 0.5)) == " 1.50 (1.01 to 2.00)  not decided here"
    assert [comparison(ratio).helped for ratio in (2.0, 0.5)] == [True, False]
    assert comparison(0.5, 1.5).helped is None and timing.Comparison(torch.zeros(0, 2), "needs CUDA").helped is None


def test_a_gain_within_the_spread_of_the_control_is_not_decided(monkeypatch):
    monkeypatch.setattr(timing, "_seconds", lambda call, device: {0: 1.1, 1: 1.0}[call])
    pairs = {"same": (0, 1), "a": (0, 1)}  # both 1.1 times as fast
    assert timing.compare_in_turn(pairs, 2, progress=False)["a"].verdict == timing.HELPED
    held = timing.compare_in_turn(pairs, 2, progress=False, control="same")
    assert abs(held["a"].noise - 0.1) < 1e-9 and held["a"].verdict == timing.NOT_DECIDED
    slower = {"same": (1, 0), "a": (0, 1)}  # a control that seems slower is noise as well
    assert timing.compare_in_turn(slower, 2, progress=False, control="same")["a"].verdict == timing.NOT_DECIDED


def test_the_clock_stops_when_the_device_is_done(monkeypatch):
    events = []
    monkeypatch.setattr(torch.cpu, "synchronize", lambda device: events.append("wait"))
    timing.compare_in_turn({"a": (lambda: events.append("a"), lambda: events.append("b"))}, 1, progress=False)
    assert events == ["wait", "a", "wait", "wait", "b", "wait"] + ["wait", "b", "wait", "wait", "a", "wait"]
