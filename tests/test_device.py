"""Device and scale: defaults, choices, and one sentence for what cannot be."""

import pytest
import torch

from course.device import device, scale, sizes
from course.errors import CourseError


def test_defaults_follow_the_machine(monkeypatch):
    monkeypatch.delenv("COURSE_DEVICE", raising=False)
    monkeypatch.delenv("COURSE_SCALE", raising=False)
    cuda = torch.cuda.is_available()
    assert device().type == ("cuda" if cuda else "cpu")
    assert scale() == ("gpu" if cuda else "laptop")


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
