"""The numbers of grading: one place for them, which the documents repeat as they are."""

import pickle
import re

import pytest
from conftest import ROOT
from traitlets.config import Config

from course.checks import data_parallel
from course.engine.limits import Limits
from course.errors import CourseError
from course.system.busy import PATIENCE
from instructor.grading.limits import DEFAULTS, LEARNER_NAME_CHARACTERS, OPTIONS, CourseGrading, as_table, configured
from instructor.jail.limits import JailLimits, ProcessLimits

GRADING = (ROOT / "docs/grading.md").read_text()
CLUSTER = (ROOT / "docs/grading-cluster.md").read_text()


def test_the_document_lists_all_numbers_with_their_defaults():
    assert as_table() in GRADING, f"put this into docs/grading.md:\n\n{as_table()}"


def test_the_numbers_in_the_text_are_those_of_the_program():
    short, long = Limits.seconds, data_parallel.train_ddp.limits.seconds
    for sentence in (
        f"up to {DEFAULTS.added_cells}, with {DEFAULTS.added_characters:,} characters per part",
        f"up to {PATIENCE:g} times its limit on the clock; gives a cell {DEFAULTS.patience_seconds:g} seconds more",
        f"a cell takes more than {DEFAULTS.cell_seconds:g} seconds, a check more than {short:g} or {long:g}",
        f"at most {LEARNER_NAME_CHARACTERS} letters",
    ):
        assert sentence in GRADING
    assert DEFAULTS.submission_minutes == 10 and "more than ten minutes (`--minutes`)" in GRADING
    assert f"`time` (minutes, default {DEFAULTS.task_minutes})" in CLUSTER
    assert f"`cpus_per_task` (default {DEFAULTS.task_cpus})" in CLUSTER


def test_the_documented_options_are_those_of_the_command():
    from instructor.grading.command import grade

    options = {option.name: option.opts for option in grade.params}
    assert {name: options[name] for name in OPTIONS} == {name: [option] for name, option in OPTIONS.items()}


def test_a_jail_has_the_same_numbers_with_and_without_a_configuration():
    assert CourseGrading().jail == JailLimits()


def test_what_is_configured_reaches_the_jail_and_other_machines():
    limits = configured(Config(CourseGrading={"processes": 9, "memory_gib": 0.5}), {"workers": 3})
    limits = pickle.loads(pickle.dumps(limits))  # as submitit sends it to a task
    assert limits.workers == 3 and limits.jail.shared.memory_bytes == 2**29
    assert limits.jail.per_process == ProcessLimits(processes=9)


@pytest.mark.parametrize(
    "values, said",
    [
        ({"memory_gb": 8}, "there is not; did you mean memory_gib?"),
        ({"colour": 8}, "there is not; docs/grading.md lists what there is."),
        ({"added_cells": 2.5}, "expected an int, not the float 2.5"),
        ({"cell_seconds": -1}, "should not be less than 0"),
    ],
)
def test_a_name_that_there_is_not_and_a_wrong_value_are_one_sentence(values, said):
    with pytest.raises(CourseError, match=re.escape(said)) as info:
        configured(Config(CourseGrading=values))
    assert "\n" not in str(info.value) and "CourseGrading" in str(info.value)


@pytest.mark.parametrize("section", ["CourseGradin", "courseGrading", "CoursGrading"])
def test_a_slip_in_the_name_of_the_section_is_told_and_nbgraders_own_sections_are_not(section):
    with pytest.raises(CourseError, match=f"sets c.{section}, which nothing reads; write c.CourseGrading."):
        configured(Config({section: Config(cell_seconds=100)}))
    configured(Config(CourseDirectory=Config(root="."), Execute=Config(timeout=120), HTMLExporter=Config()))
