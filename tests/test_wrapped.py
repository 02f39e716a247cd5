"""A result wrapped as an honest learner might wrap it counts in the grader as it does in the notebook."""

import collections
import functools
import inspect

import numpy
import pytest
import torch
from exercises import EXERCISES

from course.engine.outcome import Outcome
from course.engine.report import ReportOptions
from course.engine.wire import pack, unpack
from instructor.grading.submission import _outcome_in
from instructor.jail.reference import packed, unpacked
from instructor.jail.session import as_message

CPU = torch.device("cpu")


class Rows(list):
    """A list of a learner's own kind."""


def as_subclass(value):
    """`value` with dicts, tuples, lists and numbers in it as others that are equal to them."""
    if type(value) is dict:
        return collections.OrderedDict((key, as_subclass(item)) for key, item in value.items())
    if type(value) is tuple:
        names = [f"field{number}" for number in range(len(value))]
        return collections.namedtuple("Result", names)(*map(as_subclass, value))
    if type(value) is list:
        return Rows(map(as_subclass, value))
    scalars = {float: numpy.float64, int: numpy.int64, bool: numpy.bool_}
    try:
        return scalars[type(value)](value) if type(value) in scalars else value
    except OverflowError:
        return value


def as_generator(value):
    """A list as a generator, a tuple as a list, a dict as one with a default."""
    if type(value) is dict:
        return collections.defaultdict(int, value)
    return (item for item in value) if type(value) is list else list(value) if type(value) is tuple else value


def wrapped(answer, wrap):
    @functools.wraps(answer)
    def call(*args, **kwargs):
        return wrap(answer(*args, **kwargs))

    return call


FUNCTIONS = [
    pytest.param(e, marks=[pytest.mark.all] * e.starts_processes, id=e.name)
    for e in EXERCISES
    if inspect.isfunction(e.reference())
]


@pytest.mark.parametrize("wrap", [as_subclass, as_generator])
@pytest.mark.parametrize("exercise", FUNCTIONS)
def test_a_wrapped_result_counts_in_the_grader_as_in_the_notebook(exercise, wrap):
    judge = exercise.at(CPU)
    seen, expected = judge.run(wrapped(exercise.reference(), wrap)), judge.expected()
    sent, right = _outcome_in(unpack(pack(as_message(seen)))), Outcome(unpacked(packed(expected.facts)))
    here = judge.verdict(seen, ReportOptions(diagnose=False))
    there = judge.verdict(sent, ReportOptions(diagnose=False), expected=right)
    assert (there.correct, there.report) == (here.correct, here.report)
