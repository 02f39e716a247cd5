"""The loaders that 04/5 judges: they deliver what their order says, and the shuffles keep their laws."""

import numpy as np
import pytest
import torch

import course
from course.loading import real_formats, shuffles
from course.notebook.solutions import load_solutions

ANSWERS = load_solutions("04_fast_loading")


@pytest.fixture
def sizes(monkeypatch):
    monkeypatch.setenv("COURSE_SCALE", "smoke")
    return course.sizes("04_fast_loading")


def test_every_format_delivers_its_order_and_the_right_data(sizes, tmp_path):
    formats = real_formats.token_formats(tmp_path, sizes, ANSWERS.quasi_random_order, ANSWERS.shuffle_buffer)
    tokens = np.fromfile(tmp_path / "tokens.bin", dtype=np.uint16).reshape(-1, sizes.judged_length)
    for loader in formats:
        delivered = []
        for data, numbers in loader.read(3):
            assert data.dtype == torch.int64
            assert torch.equal(data, torch.from_numpy(tokens[numbers.numpy()].astype(np.int64))), loader.name
            delivered += numbers.tolist()
        assert delivered == loader.order(3).tolist(), loader.name
        assert sorted(delivered) == list(range(sizes.judged_samples)), loader.name


def test_pictures_are_the_same_in_the_folder_and_in_shards(sizes, tmp_path):
    formats = real_formats.picture_formats(tmp_path, sizes, ANSWERS.shuffle_buffer)
    pictures = {}
    for loader in formats:
        delivered = []
        for data, numbers in loader.read(1):
            for picture, number in zip(data, numbers.tolist(), strict=True):
                assert torch.equal(pictures.setdefault(number, picture), picture), loader.name
            delivered += numbers.tolist()
        assert delivered == loader.order(1).tolist(), loader.name
    assert len(pictures) == sizes.judged_pictures


def test_bytes_read_are_those_of_the_files_or_unknown(sizes, tmp_path):
    loader = real_formats.token_formats(tmp_path, sizes, ANSWERS.quasi_random_order, ANSWERS.shuffle_buffer)[0]
    assert loader.nbytes == 2 * sizes.judged_samples * sizes.judged_length
    found = real_formats.read_with_little_room(loader, loader.nbytes / 4)
    assert np.isnan(found) or found >= 0


def test_a_dropped_file_is_given_back_by_its_mappings(sizes, tmp_path):
    loader = real_formats.token_formats(tmp_path, sizes, ANSWERS.quasi_random_order, ANSWERS.shuffle_buffer)[0]
    batches = loader.read(0)
    first = next(batches)[0]
    (mapping,) = real_formats._mappings
    real_formats._drop(loader.files)
    assert torch.equal(next(loader.read(0))[0], first)  # mapped again
    assert mapping in real_formats._mappings
    del mapping, batches
    assert not real_formats._mappings


def test_streamings_samples_stay_within_the_block():
    order = shuffles.streaming_order(4096, 64, 512, 0)
    assert sorted(order.tolist()) == list(range(4096))
    shards = (order // 64).tolist()
    for shard in range(64):
        places = [place for place, found in enumerate(shards) if found == shard]
        assert max(places) - min(places) < 1.25 * 512 + 64


def test_a_buffer_over_shuffled_shards_follows_its_rule():
    samples, shard, batch, buffer = 16_384, 128, 32, 1024
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        stream = shuffles.shard_order(samples, shard, rng).tolist()
        order = torch.tensor(list(ANSWERS.shuffle_buffer(stream, buffer, rng)))
        found.append(ANSWERS.batch_bias(torch.arange(samples), order, batch))
    assert np.mean(found) == pytest.approx(shuffles.buffer_rule(batch, shard, buffer), rel=0.2)


def test_a_library_that_is_missing_is_said_to_be_emulated():
    assert shuffles.source("no_such_library") == shuffles.EMULATED
    assert shuffles.source("torch").startswith("torch 2")
