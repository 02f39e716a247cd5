"""What an answer reads and holds is measured from outside of its process, where its exercise says how much that is."""

import subprocess
import sys

import nbformat
import pytest
from submissions import alternatives_source, part_of, solved

from course.grading import submission
from course.grading.batch import find_right_answers
from course.grading.plan import Plan
from course.grading.sandbox.usage import Usage
from course.grading.sandbox.zygote import Zygote
from course.publish import build

UNIT = "04_fast_loading"
MEASURED = "Records", "gather", "PageReader", "make_data"
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
ELSEWHERE = """
import os, time
from pathlib import Path

told = os.pipe()


def helper():
    "Reads 50 MB more where the process that is asked does not see it."
    if not os.fork():
        with open("/dev/zero", "rb", buffering=0) as file:
            for _ in range(50):
                file.read(2**20)
        os.write(told[1], b"x")
        time.sleep(60)
    os.read(told[0], 1)


class PageReader(PageReader):
    helped = None  # the folder of the last check

    def fill(self, index, out):
        if PageReader.helped != Path(self.path).parent:  # once a check
            PageReader.helped = Path(self.path).parent
            helper()
        return super().fill(index, out)
"""
LARGE = """
import mmap

# memory that tracemalloc does not see
gathered = gather


def gather(*args, **kwargs):
    block = mmap.mmap(-1, 200_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
    return gathered(*args, **kwargs)
"""


@pytest.fixture(scope="module")
def one_zygote():
    with Zygote() as one:
        yield one


@pytest.fixture(scope="module")
def plan(one_zygote):
    """Of the measured exercises alone; what their right answers take is known."""
    plan = Plan(UNIT)
    for part in plan.parts.values():
        part.checks = {cell: check for cell, check in part.checks.items() if check.exercise.name in MEASURED}
    find_right_answers(plan.parts.values(), 1, one_zygote)
    return plan


def marks(plan, zygote, name, source=None, more=""):
    """[the Mark of each check of exercise `name`] of a submission with nothing but an answer to it.

    Args:
        source: the answer's; None takes the reference.
        more: what follows in the same cell.
    """
    part = plan.parts[part_of(name, UNIT)]
    notebook = nbformat.from_dict(solved(part.part, UNIT))
    notebook.cells = [c for c in notebook.cells if (build.grade_id(c) or "").split("-")[0] in ("setup", name)]
    answer = next(c for c in notebook.cells if build.grade_id(c) == name)
    answer.source = (source or answer.source) + more
    found, note = submission.run(part, notebook, zygote)
    assert not note
    return list(found.values())


@pytest.mark.parametrize(
    "name, more, said", [("PageReader", ELSEWHERE, "your code read 1"), ("gather", LARGE, "your code held ")]
)
def test_what_a_process_hides_costs_the_points_and_is_said(name, more, said, plan, one_zygote):
    for mark in marks(plan, one_zygote, name, more=more):
        assert not mark.score and f"{name}: not yet: seen from outside, {said}" in mark.report.replace("\n", " ")
        assert "far more than it needs" in mark.report.replace("\n", " ")


@pytest.mark.parametrize("name", MEASURED)
def test_right_answers_in_any_style_keep_their_points(name, plan, one_zygote):
    exercise = plan.parts[part_of(name, UNIT)].checks[f"{name}-visible"].exercise
    others = [f"{alternatives_source(exercise)}\n{name} = {answer.__name__}" for answer in exercise.alternatives()]
    for source in (None, *others):
        assert all(mark.score for mark in marks(plan, one_zygote, name, source))


def test_a_process_whose_name_is_no_text_is_measured_like_any_other():
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'\\xff', 0, 0, 0); print(flush=True); sys.stdin.read()"
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        process.stdout.readline()
        usage = Usage([process.pid])
        process.stdin.close()
    assert usage.read and usage.held[process.pid] and usage.highest[process.pid]
