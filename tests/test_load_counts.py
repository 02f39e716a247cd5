"""What load_counts counts, in this process and in forked workers."""

import multiprocessing

import pytest
from PIL import Image

from course.measure.load_counts import LoadCounts


@pytest.fixture
def path(tmp_path):
    Image.new("RGB", (64, 32)).save(tmp_path / "a.jpg")
    return tmp_path / "a.jpg"


def decode(path, side=None):
    with Image.open(path) as file:
        if side:
            file.draft("RGB", (side, side))
        file.convert("RGB").load()


@pytest.mark.parametrize("side, pixels", [(None, 64 * 32), (16, 32 * 16)])
def test_inside_of_the_block_a_file_is_opened_once_and_decoded_once_a_draft_in_part(path, side, pixels):
    with LoadCounts() as counts:
        decode(path, side)
    decode(path)
    assert (counts["files opened"], counts["pixels decoded"]) == (1, pixels)


def test_what_a_forked_process_does_counts_and_its_start_too(path):
    with LoadCounts() as counts:
        process = multiprocessing.get_context("fork").Process(target=decode, args=(path,))
        process.start()
        process.join()
    assert (counts["files opened"], counts["processes started"]) == (1, 1)


def test_a_watched_transform_counts_the_pixels_that_it_is_given():
    counts = LoadCounts()
    assert counts.watch(lambda picture: "done")(Image.new("RGB", (6, 4))) == "done"
    assert counts["pixels augmented"] == 24
