"""Sizes at gpu scale fit the machine, and what they take is said before anything starts."""

import importlib

import pytest

from course import room
from course.datasets import lfw, movielens

device = importlib.import_module("course.device")  # the package has a function of this name
MUCH = {"disk": 1e13, "memory": 1e13, "gpu": 1e13}


def at_gpu_scale(unit):
    return {name: values[2] for name, values in device.SIZES[unit].items()}


def test_every_unit_says_what_it_takes():
    assert room.NEEDS.keys() == device.SIZES.keys()


@pytest.mark.parametrize("unit", room.NEEDS)
def test_where_there_is_room_nothing_shrinks(unit):
    sizes, said = room.fitted(unit, at_gpu_scale(unit), MUCH)
    assert sizes == at_gpu_scale(unit)
    assert len(said) == 1 and f"{unit} at gpu scale takes up to" in said[0] and "minutes" in said[0]


@pytest.mark.parametrize("unit", room.NEEDS)
@pytest.mark.parametrize("resource", ["memory", "gpu"])
def test_sizes_shrink_to_what_is_free(unit, resource):
    needs, sizes = room.NEEDS[unit], at_gpu_scale(unit)
    if resource not in needs.shrinks:
        return
    taken = room._takes(needs, sizes)[resource]
    free = 0.95 * taken  # some of the memory is that of processes, which no size makes smaller
    small, said = room.fitted(unit, sizes, MUCH | {resource: free})
    assert room._takes(needs, small)[resource] <= room.KEPT * free
    assert {name for name in sizes if small[name] != sizes[name]} <= {*needs.shrinks[resource]}
    assert "sizes shrink" in said[1] and len(said) == 2


def bytes_in(folder):
    """Bytes of the files below `folder`, and a block for each folder in it."""
    return sum(path.stat().st_size if path.is_file() else 4096 for path in folder.rglob("*"))


def test_files_are_as_large_as_is_said(tmp_path):  # the record file: test_regression.py
    lfw.make_standin(tmp_path / "faces", 5, 30, progress=False)
    assert bytes_in(tmp_path / "faces") == pytest.approx(room.face_bytes(5, 30), rel=0.1)
    ratings = movielens.make_standin(60, 400, 5000)
    movielens.save(tmp_path / "ratings.npz", **ratings, version=1)
    assert (tmp_path / "ratings.npz").stat().st_size == pytest.approx(room.rating_bytes(5000), rel=0.02)


def test_the_sets_have_their_published_sizes():
    assert movielens.SIZES.items() <= room.RATINGS.items() and room.RATINGS["tiny"] == movielens.STANDINS["tiny"]
    assert room.FACES["tiny"] == lfw.STANDINS["tiny"]


def test_what_cannot_shrink_enough_is_told():
    small, said = room.fitted("06_faster_training", at_gpu_scale("06_faster_training"), MUCH | {"memory": 1e6})
    assert small == at_gpu_scale("06_faster_training")
    assert said[-1] == "That is still too much of memory: expect it to fail, or set COURSE_SCALE=laptop."


def test_a_smaller_data_set_is_taken_where_memory_is_short():
    small, _ = room.fitted("03_large_batch", at_gpu_scale("03_large_batch"), MUCH | {"memory": 8e9})
    assert small["dataset"] == "ml-1m"


def test_sizes_at_gpu_scale_say_what_they_take(monkeypatch, capsys):
    monkeypatch.setenv("COURSE_SCALE", "gpu")
    monkeypatch.setattr(room, "free_bytes", lambda: {"disk": 1e12, "memory": 16e9})
    assert device.sizes("04_fast_loading").rows == 250_000
    assert "rows 1,000,000 -> 250,000" in capsys.readouterr().out
    monkeypatch.setenv("COURSE_SCALE", "laptop")
    device.sizes("04_fast_loading")
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(not room.free_memory(), reason="this system does not say what is free")
def test_the_limit_of_a_container_counts_and_its_page_cache_does_not(monkeypatch, tmp_path):
    monkeypatch.setattr(room, "CONTAINER", tmp_path)
    free = room.free_memory()
    for name, text in (("max", "max"), ("current", "700"), ("stat", "anon 500\ninactive_file 200\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert room.free_memory() == pytest.approx(free, rel=0.5), "no limit"
    (tmp_path / "memory.max").write_text("1000")
    assert room.free_memory() == 500
