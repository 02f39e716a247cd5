"""Functions that were exchanged are seen and put back; settings and a module's own memory are left alone."""

import os
import sys
import types

import pytest
import torch

from course.checks import large_batch
from course.engine import judge
from instructor.jail.tamper import Snapshot


@pytest.fixture
def before():
    snapshot = Snapshot()
    yield snapshot
    snapshot.restore()


def test_nothing_is_changed_where_nothing_was_touched(before):
    assert before.changed() == []


@pytest.mark.parametrize(
    "owner, name",
    [(torch, "equal"), (os, "getpid"), (torch.Tensor, "any"), (torch.Tensor, "numel"), (judge, "run_probe"),
     (judge.Judge, "verdict")],
)  # fmt: skip
def test_an_exchanged_function_is_named_and_put_back(owner, name, before):
    """Also one that is inherited: its new name in the class goes."""
    was, has = getattr(owner, name), name in vars(owner)
    setattr(owner, name, lambda *args: True)
    assert before.changed() == [f"{owner.__name__}.{name}"]
    before.restore()
    assert getattr(owner, name) is was and before.changed() == [] and (name in vars(owner)) is has


def test_another_module_under_the_name_of_the_checks_is_seen_and_put_back(before):
    name, was = large_batch.__name__, sys.modules[large_batch.__name__]
    sys.modules[name] = types.ModuleType(name)
    assert before.changed() == [f"sys.modules['{name}']"]
    before.restore()
    assert sys.modules[name] is was and before.changed() == []


def test_a_removed_function_comes_back(before):
    was = torch.equal
    del torch.equal
    assert before.changed() == ["torch.equal"]
    before.restore()
    assert torch.equal is was


def test_settings_and_new_names_of_modules_are_no_changes(before):
    was = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark, os.of_a_test = not was, print
    assert before.changed() == []
    torch.backends.cudnn.benchmark = was
    del os.of_a_test


def test_other_code_in_the_same_function_is_seen_and_put_back():
    before, own = Snapshot(), judge.Judge.outcome.__code__
    judge.Judge.outcome.__code__ = (lambda self, *args: None).__code__
    assert before.changed() == ["course.engine.judge.Judge.outcome"]
    before.restore()
    assert judge.Judge.outcome.__code__ is own and before.changed() == []


def test_what_a_probe_finds_in_its_module_is_seen_and_put_back(before):
    probe = large_batch.LossScaler.probe.__globals__
    probe["all"], probe["torch"], probe["_Setting"].scale_of = print, os, print
    here = large_batch.LossScaler.probe.__module__
    assert sorted(before.changed()) == ["_Setting.scale_of", f"{here}.all", f"{here}.torch"]
    before.restore()
    assert "all" not in probe and probe["torch"] is torch and probe["_Setting"].scale_of is not print


def test_torchs_hook_around_the_step_of_an_optimizer_is_no_change():
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # torch imports its compiler with the first one
    before, kind = Snapshot(), large_batch.LossScaler.probe.__globals__["CountingSGD"]
    kind([torch.zeros(1)], lr=0.1).step()
    assert before.changed() == []


def test_an_attribute_of_a_check_is_seen_and_put_back():
    before = Snapshot()
    large_batch.LARS.at = large_batch.LARS.probe = print
    assert len(before.changed()) == 2
    before.restore()
    assert before.changed() == [] and large_batch.LARS.probe is not print


@pytest.mark.parametrize("owner", [large_batch.scaled_lr, large_batch, torch], ids=["exercise", "checks", "module"])
def test_an_exchanged_class_of_an_object_is_seen_and_put_back_first(owner, before):
    was = type(owner)
    lies = {"outcome": lambda *args: None, "__setattr__": lambda *args: None, "__dict__": property(lambda self: {})}
    other = type("Other", (was,), lies)
    object.__setattr__(owner, "__class__", other)
    (name,) = before.changed()
    assert name.endswith(".__class__")
    before.restore()
    assert type(owner) is was and before.changed() == []
