"""Functions that were exchanged are seen and put back; settings and a module's own memory are left alone."""

import os

import pytest
import torch

from course.checks import engine
from course.grading.sandbox.tamper import Snapshot


@pytest.fixture
def before():
    snapshot = Snapshot()
    yield snapshot
    snapshot.restore()


def test_nothing_is_changed_where_nothing_was_touched(before):
    assert before.changed() == []


@pytest.mark.parametrize("owner, name", [(torch, "equal"), (os, "getpid"), (torch.Tensor, "any"), (engine, "differs"),
                                         (engine.Exercise, "verdict")])  # fmt: skip
def test_an_exchanged_function_is_named_and_put_back(owner, name, before):
    was = getattr(owner, name)
    setattr(owner, name, lambda *args: True)
    assert before.changed() == [f"{owner.__name__}.{name}"]
    before.restore()
    assert getattr(owner, name) is was and before.changed() == []


def test_a_removed_function_comes_back(before):
    was = torch.equal
    del torch.equal
    assert before.changed() == ["torch.equal"]
    before.restore()
    assert torch.equal is was


def test_a_name_that_hides_an_inherited_one_is_removed(before):
    assert "numel" not in vars(torch.Tensor)
    torch.Tensor.numel = lambda self: 10**9
    assert before.changed() == ["Tensor.numel"]
    before.restore()
    assert torch.zeros(3).numel() == 3 and "numel" not in vars(torch.Tensor)


def test_settings_and_new_names_of_modules_are_no_changes(before):
    was = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark, os.of_a_test = not was, print
    assert before.changed() == []
    torch.backends.cudnn.benchmark = was
    del os.of_a_test


def test_other_code_in_the_same_function_is_seen_and_put_back():
    before, own = Snapshot(), engine.Exercise.outcome.__code__
    engine.Exercise.outcome.__code__ = (lambda self, *args: None).__code__
    assert before.changed() == ["course.checks.engine.Exercise.outcome"]
    before.restore()
    assert engine.Exercise.outcome.__code__ is own and before.changed() == []


def test_an_attribute_of_a_check_is_seen_and_put_back():
    from course.checks import large_batch as check

    before = Snapshot()
    check.LARS.outcome = check.LARS.probe = print
    assert len(before.changed()) == 2
    before.restore()
    assert before.changed() == [] and check.LARS.probe is not print
