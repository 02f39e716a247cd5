"""Device, scale and sizes: defaults, choices, what fits the machine, and one sentence for what cannot be."""

import sys

import pytest
import torch

from course.datasets import lfw, movielens, regression
from course.datasets.arrays import save_arrays
from course.device import device, own_gpus, scale
from course.errors import CourseError
from course.experiment_sizes import UNITS, at_scale, sizes
from course.notebook.registry import units
from course.system import fit


def test_defaults_follow_the_machine(monkeypatch):
    monkeypatch.delenv("COURSE_DEVICE", raising=False)
    monkeypatch.delenv("COURSE_SCALE", raising=False)
    cuda = torch.cuda.is_available()
    assert device().type == ("cuda" if cuda else "cpu")
    assert scale() == ("gpu" if cuda else "laptop")


@pytest.mark.parametrize("kind, found, own", [("cuda", 1, 0), ("cuda", 2, 2), ("cuda", 8, 8), ("cpu", 8, 0)])
def test_ranks_have_their_own_gpu_where_there_are_several(kind, found, own, monkeypatch):
    monkeypatch.setattr(sys.modules["course.device"], "device", lambda: torch.device(kind))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    assert own_gpus() == own


@pytest.mark.parametrize(
    "variable, value, words",
    [
        ("COURSE_DEVICE", "toaster", "COURSE_DEVICE is 'toaster', which torch cannot use"),
        ("COURSE_DEVICE", "cuda:99", "COURSE_DEVICE is 'cuda:99', which torch cannot use"),
        ("COURSE_SCALE", "huge", "COURSE_SCALE is 'huge'; it must be one of smoke, laptop, gpu"),
    ],
)
def test_an_impossible_choice_is_one_sentence(variable, value, words, monkeypatch):
    monkeypatch.setenv(variable, value)
    with pytest.raises(CourseError, match=words) as info:
        (device if variable == "COURSE_DEVICE" else scale)()
    assert "\n" not in str(info.value)
    assert info.value._render_traceback_() == [f"CourseError: {info.value}"]


def test_unknown_unit_is_named():
    units = "01_parallel_loading, 02_data_parallel, 03_large_batch, 04_fast_loading"
    with pytest.raises(CourseError, match=f"no unit is called '99_x'; the units are {units}"):
        sizes("99_x")


MUCH = {"disk": 1e13, "memory": 1e13, "gpu": 1e13}


def fitted(unit, free):
    return fit.fitted(unit, UNITS[unit].NEEDS, at_scale(unit, "gpu"), free)


def need(unit, resource):
    return UNITS[unit].NEEDS.resources[resource]


def test_every_unit_has_sizes_and_says_what_it_takes():
    assert list(UNITS) == units()
    for module in UNITS.values():
        assert {len(values) for values in module.SIZES.values()} == {3}
        assert module.NEEDS.resources.keys() <= fit.RESOURCES.keys()


@pytest.mark.parametrize("unit", UNITS)
def test_where_there_is_room_nothing_shrinks(unit):
    sizes, said = fitted(unit, MUCH)
    assert sizes == at_scale(unit, "gpu")
    assert len(said) == 1 and f"{unit} at gpu scale takes up to" in said[0] and "minutes" in said[0]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("resource", ["memory", "gpu"])
def test_sizes_shrink_to_what_is_free(unit, resource):
    needed, sizes = need(unit, resource), at_scale(unit, "gpu")
    if not needed.per:
        return
    free = 0.95 * needed.bytes(sizes)  # some of the memory is that of processes, which no size makes smaller
    small, said = fitted(unit, MUCH | {resource: free})
    assert needed.bytes(small) <= fit.KEPT_SHARE * free
    assert {name for name in sizes if small[name] != sizes[name]} <= {*needed.per}
    assert "sizes shrink" in said[1] and len(said) == 2


def bytes_in(folder):
    """Bytes of the files below `folder`, and a block for each folder in it."""
    return sum(path.stat().st_size if path.is_file() else 4096 for path in folder.rglob("*"))


def test_files_are_as_large_as_is_said(tmp_path):
    lfw.make_standin(tmp_path / "faces", 5, 30)
    per_image, people, images = (bytes_in(tmp_path / "faces") - 5 * 4096) / 30, 5749, 13_233
    disk = need("01_parallel_loading", "disk")
    traces = 7e6  # two of them, of unit 01
    assert disk.bytes({}) == pytest.approx(images * per_image + people * 4096 + traces, rel=0.1)
    ratings = movielens.make_standin(60, 400, 5000)
    save_arrays(tmp_path / "ratings.npz", **ratings)
    per_rating = need("03_large_batch", "disk").per["dataset"]
    assert (tmp_path / "ratings.npz").stat().st_size == pytest.approx(2000 + 5000 * per_rating, rel=0.02)
    loading = at_scale("04_fast_loading", "gpu")
    rows, written, columns = (loading[name] for name in ("rows", "rows_written", "columns"))
    files = regression.record_bytes(rows, columns) + regression.record_bytes(written, columns)
    assert need("04_fast_loading", "disk").bytes(loading) == pytest.approx(files, rel=0.01)


def test_what_cannot_shrink_enough_is_told():
    small, said = fitted("06_faster_training", MUCH | {"memory": 1e6})
    assert small == at_scale("06_faster_training", "gpu")
    assert said[-1] == "That is still too much of memory: expect it to fail, or set COURSE_SCALE=laptop."


def test_a_smaller_data_set_is_taken_where_memory_is_short():
    small, _ = fitted("03_large_batch", MUCH | {"memory": 1.3e9})
    assert small["dataset"] == "ml-100k"


def test_sizes_at_gpu_scale_say_what_they_take(monkeypatch, capsys):
    monkeypatch.setenv("COURSE_SCALE", "gpu")
    monkeypatch.setattr(fit, "free_bytes", lambda: {"disk": 1e12, "memory": 2e9})
    assert sizes("04_fast_loading").rows == 50_000
    assert "rows 200,000 -> 50,000" in capsys.readouterr().out
    monkeypatch.setenv("COURSE_SCALE", "laptop")
    sizes("04_fast_loading")
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(not fit.free_memory(), reason="this system does not say what is free")
def test_the_limit_of_a_container_counts_and_its_page_cache_does_not(monkeypatch, tmp_path):
    monkeypatch.setattr(fit, "CONTAINER", tmp_path)
    free = fit.free_memory()
    for name, text in (("max", "max"), ("current", "700"), ("stat", "anon 500\ninactive_file 200\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert fit.free_memory() == pytest.approx(free, rel=0.5), "no limit"
    (tmp_path / "memory.max").write_text("1000")
    assert fit.free_memory() == 500
