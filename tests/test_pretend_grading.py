"""A class release is recorded, and submissions are graded with --cuda, on a CUDA device that is not there."""

import lzma
import os
import subprocess

import pytest
from conftest import ROOT
from exercises import EXERCISES
from pretend_cuda import pretend_cuda
from pretend_cuda_answers import PRETENDED
from submissions import answered, command, part_of

from course.grading.gradebook import scores
from course.publish import build, release
from course.system.files import write_text

SEGMENT_MAX = next(e for e in EXERCISES if e.name == "segment_max")


def test_a_class_release_has_facts_of_both_devices(monkeypatch):
    monkeypatch.setattr(release, "exercises", lambda unit: [SEGMENT_MAX])
    with pretend_cuda():
        of_cpu, of_cuda = release.recorded_facts(SEGMENT_MAX.unit).items()
    assert [name.partition(".")[2] for name, _ in (of_cpu, of_cuda)] == ["cpu.facts", "cuda.facts"]
    assert [b', "cuda"]' in lzma.decompress(facts) for _, facts in (of_cpu, of_cuda)] == [False, True]


@pytest.mark.all  # it imports all that a learner's code may want
def test_submissions_are_graded_on_the_device(tmp_path):
    unit, part, inbox = SEGMENT_MAX.unit, part_of("segment_max", SEGMENT_MAX.unit), tmp_path / "inbox"
    for learner, more in (
        ("ann", ""),
        ("eve", "\nright = segment_max\nsegment_max = lambda *args: right(*args).cpu()"),
    ):
        nb = answered(part, ["segment_max"], unit)
        next(cell for cell in nb.cells if build.grade_id(cell) == "segment_max").source += more
        write_text(inbox / learner / unit / f"{part}.ipynb", build.text_of(nb))
    call = command(inbox, "--unit", unit, "--course", tmp_path, "--cuda", "--feedback")
    done = subprocess.run(call, cwd=ROOT, env=os.environ | PRETENDED, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    reached = {
        learner: {name.split("-")[0]: score for name, (score, _) in cells.items() if score}
        for learner, cells in scores(unit, tmp_path).items()
    }
    assert [*reached["ann"]] == ["segment_max"] and reached["eve"] == {}
    page = tmp_path / "feedback" / "eve" / unit / f"{part}.html"
    assert "is on device cpu" in page.read_text()
