"""A decoder gives the pixels of PIL, or says what is wrong; what the parts of unit 01 share."""

import importlib
import mmap
import os
import time
import types

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import ToTensor

from course.device import device
from course.errors import CourseError
from course.loading import loaders
from course.loading.loaders import JpegDecoder, Loader, aligned_buffers, jpeg_buffers


@pytest.fixture
def paths(tmp_path):
    rng = np.random.default_rng(0)
    files = [tmp_path / f"{i:02}.jpg" for i in range(21)]
    for path in files:
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(path)
    return files


def pil(path):
    with Image.open(path) as image:
        return ToTensor()(image.convert("RGB"))


def test_a_decoder_writes_the_pixels_of_pil_into_what_it_is_given(paths):
    Image.new("L", (30, 20), 77).save(paths[4])  # grey
    buffers = jpeg_buffers(paths, 2, 8)
    assert buffers.shape == (2, 8, 3, 20, 30) and buffers[0].is_contiguous(memory_format=torch.channels_last)
    decoder = JpegDecoder(paths)
    for slot, first in ((0, 3), (1, 11)):
        for row in range(8):
            decoder(first + row, buffers[slot, row])
        assert torch.equal(buffers[slot], torch.stack([pil(path) for path in paths[first : first + 8]]))


def test_a_broken_or_missing_file_and_an_image_of_another_size_are_named(paths):
    paths[1].write_bytes(b"no image")
    paths[2].write_bytes(b"")
    paths[3].unlink()
    Image.new("RGB", (31, 20)).save(paths[4])
    words = "cannot be read as a JPEG", "cannot be read as a JPEG", "cannot be read", "is 31x20 pixels, but the batch "
    for i, said in enumerate(words, 1):
        with pytest.raises(CourseError, match=f"{paths[i]}.*{said}"):
            JpegDecoder(paths)(i, torch.empty(3, 20, 30))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 1024), (7, 501)])
def test_aligned_buffers_begin_at_memory_pages_and_do_not_overlap(rows, columns):
    buffers = aligned_buffers(3, rows, columns)
    for i, buffer in enumerate(buffers):
        assert buffer.shape == (rows, columns) and buffer.dtype == torch.float32 and buffer.is_contiguous()
        assert buffer.data_ptr() % mmap.PAGESIZE == 0
        assert buffer.is_pinned() == (device().type == "cuda")
        buffer.fill_(i)
    assert [buffer.unique().tolist() for buffer in buffers] == [[0], [1], [2]]


@pytest.mark.parametrize(("limit", "cores"), [("150000 100000", 1), ("200000 100000", 2), ("max 100000", 8), (None, 8)])
def test_cores_heed_the_quota_of_a_container(monkeypatch, tmp_path, limit, cores):
    if limit:
        (tmp_path / "cpu.max").write_text(limit)
    settings = importlib.import_module("course.device")
    monkeypatch.setattr(settings, "CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(settings.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert loaders.cores() == cores


def test_evenly_spaced_keeps_images_from_first_to_last(paths):
    dataset = types.SimpleNamespace(paths=list(range(21)))
    assert loaders.evenly_spaced(dataset, 4) is dataset and dataset.paths == [0, 5, 10, 15]
    assert loaders.evenly_spaced(dataset, 9).paths == [0, 5, 10, 15]


def test_forked_workers_know_what_cannot_be_pickled_and_outlive_a_pass():
    batches = loaders.forked(list(range(4)), 2, 2, collate_fn=lambda items: (os.getpid(), items))
    (a, first), (b, second) = batches
    assert len({a, b, os.getpid()}) == 3 and [first, second] == [[0, 1], [2, 3]]
    assert {pid for pid, _ in batches} == {a, b}
    assert {*loaders.forked(range(4), 2, collate_fn=lambda items: os.getpid())} == {os.getpid()}


def ahead(fill, work, buffers):
    """Two fills before the first is handed out, as a thread would; `ahead.ended` counts ends."""
    try:
        filled = [fill(item, buffers[k % len(buffers)]) for k, item in zip(range(len(buffers)), work, strict=False)]
        yield from filled
        for k, item in enumerate(work[len(buffers) :]):
            yield fill(item, buffers[k % len(buffers)])
    finally:
        ahead.ended += 1


def row_loader(buffers=1, rows=8, n=21):
    """A Loader of batches of 4 of `n` rows (i, i, i, -1), whose order in epoch e begins with row e."""
    table = torch.arange(float(n))[:, None].expand(n, 4).clone()
    table[:, 3] = -1
    return Loader(
        lambda epoch: torch.arange(n).roll(-epoch),
        lambda index, out: out[: len(index)].copy_(table[index]),
        ahead,
        [torch.empty(rows, 4) for _ in range(buffers)],
        columns=2,
        batch=4,
    )


@pytest.mark.parametrize("buffers", [1, 2])
def test_a_loader_brings_each_row_once_with_its_y_and_counts_epochs(buffers):
    loader, ahead.ended = row_loader(buffers), 0
    for epoch in (0, 1):
        batches = [(x.clone(), y.clone()) for x, y in loader]
        assert [len(y) for _, y in batches] == [4, 4, 4, 4, 4, 1] and len(loader) == 6
        labels = torch.cat([y for _, y in batches])
        assert torch.equal(labels, torch.arange(21.0).roll(-epoch))
        assert all(x.shape[1] == 2 and (x == y[:, None]).all() for x, y in batches)
    assert ahead.ended == (2 if buffers == 2 else 0)


def test_a_loader_has_one_running_epoch_and_closes_what_reads_ahead():
    loader, ahead.ended = row_loader(2), 0
    old = iter(loader)
    next(old)
    new = iter(loader)
    assert ahead.ended == 1 and next(old, None) is None and next(new)[1][0] == 1
    new.close()
    assert ahead.ended == 2
    with pytest.raises(ValueError, match="cannot be cut into batches of 4"):
        row_loader(rows=6)


def test_effective_cores_compare_speeds_and_never_exceed_the_cores(monkeypatch):
    made = {1: [10.0, 10.0, 10.0], 2: [17.0, 19.0, 30.0]}
    monkeypatch.setattr(loaders, "_items_per_second", lambda data, n, seconds: made[n].pop(0))
    monkeypatch.setattr(loaders, "cores", lambda: 2)
    assert loaders.effective_cores(None, rounds=1) == 1.7
    assert loaders.effective_cores(None, rounds=1) == 1.9
    assert loaders.effective_cores(None, rounds=1) == 2.0
    monkeypatch.setattr(loaders, "cores", lambda: 1)
    assert loaders.effective_cores(None) == 1.0


def test_the_costs_of_one_worker_are_those_of_one_more_pass():
    class Slow(list):
        def __getitem__(self, i):
            time.sleep(0.001)
            return super().__getitem__(i)

    worker = loaders.OneWorker(Slow([torch.zeros(1)]), 1)
    for costs in (worker.costs(), worker.costs()):
        assert 0 <= costs.cpu and costs.main > 0
        assert costs.wall >= 0.001, "its item takes a millisecond"


def test_items_are_made_in_forks_and_a_broken_dataset_is_a_sentence(capfd):
    assert loaders._items_per_second([torch.zeros(1)], 2, 0.02) > 0
    with pytest.raises(CourseError, match="try dataset"):
        loaders._items_per_second([], 2, 0.02)
    assert "ZeroDivisionError" in capfd.readouterr().err
