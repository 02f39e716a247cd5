"""What cannot be compiled is told with its reason; what can be computes the same."""

import math

import pytest
import torch

from course.measure import compiling


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
    assert "\n" not in made.reason and len(made.reason) <= compiling.LONGEST


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
