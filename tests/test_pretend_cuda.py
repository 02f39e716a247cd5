"""Checks and grading on a CUDA device that is not there (pretend_cuda.py): the pretence, then what runs on it."""

import gc
import importlib
import json
import lzma
import os
import re
import subprocess
import sys

import pretend_cuda_answers as answers
import pytest
import torch
import wrong_answers
from conftest import ROOT
from exercises import EXERCISES, stub, verdict
from pretend_cuda import pretend_cuda
from pretend_cuda_answers import PRETENDED
from submissions import answered, command, part_of
from torch.utils.data import DataLoader

from course.checkup import schedule
from course.engine.outcome import Outcome
from course.engine.wire import pack, unpack
from course.errors import CourseError
from course.notebook.cells import grade_id
from course.notebook.registry import parts, units
from course.notebook.solutions import exercise_parts, load_definitions
from course.system.files import write_text
from instructor.authoring import masters
from instructor.bench import gpu_measures
from instructor.grading.gradebook import scores
from instructor.release import class_folder as release

device_of_course = importlib.import_module("course.device")  # the package has a function of this name
RESULTS = ROOT / "docs" / "pretended-gpu.md"

CUDA = torch.device("cuda", 0)
SEGMENT_MAX = next(e for e in EXERCISES if e.name == "segment_max")


@pytest.fixture
def cuda():
    """A pretended CUDA device."""
    with pretend_cuda():
        yield CUDA


REFUSED = {
    "two devices in one operation": (lambda x: x + torch.ones(3), RuntimeError, "at least two devices, cuda:0 and cpu"),
    "numpy": (lambda x: x.numpy(), TypeError, "can't convert cuda:0 device type tensor to numpy"),
    "a generator of the CPU": (
        lambda x: torch.randn(3, device="cuda", generator=torch.Generator()), RuntimeError, "Expected a 'cuda' device"),
    "a generator of CUDA for the CPU": (
        lambda x: torch.randn(3, generator=torch.Generator("cuda")), RuntimeError, "Expected a 'cpu' device"),
    "an index on CUDA into the CPU": (
        lambda x: torch.arange(3)[x.long()], RuntimeError, "indices should be either on cpu or on the same device"),
    "a second GPU": (lambda x: x.to("cuda:1"), RuntimeError, "invalid device ordinal"),
    "a stream of the CPU": (lambda x: torch.cuda.Stream(device="cpu"), ValueError, "Expected a cuda device"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused(cuda, name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        call(torch.ones(3, device=cuda))


def test_a_forked_child_cannot_compute_there(cuda):
    x = torch.ones(2, device="cuda")
    loader = DataLoader([0], num_workers=1, collate_fn=lambda items: x + 1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess"):
        next(iter(loader))


def test_the_course_takes_the_device_by_default(cuda, monkeypatch):
    monkeypatch.delenv("COURSE_SCALE", raising=False)
    assert device_of_course.device() == torch.device("cuda") and device_of_course.scale() == "gpu"
    assert device_of_course.machine().startswith("a GPU that is not there")


def test_a_second_gpu_is_refused_in_one_sentence(cuda, monkeypatch):
    monkeypatch.setenv("COURSE_DEVICE", "cuda:1")
    with pytest.raises(CourseError, match=r"'cuda:1', which torch cannot use \(CUDA error: invalid device ordinal\)"):
        device_of_course.device()


def test_what_is_recorded_for_a_class_comes_back_on_the_device(cuda):
    exercise = SEGMENT_MAX
    record = unpack(pack(exercise.at(cuda).record()))
    assert any(isinstance(value, torch.Tensor) and value.is_cuda for value in record["expected"].values())
    assert Outcome(record["expected"]).same(exercise.at(cuda).expected())
    assert [name for name, *_ in record["mistakes"]] == [known.name for known in exercise.mistakes()]


# ---- the answers of the course


def ids(exercise):
    return f"{exercise.unit[:2]}-{exercise.name}"


def tiers(exercises):
    """pytest.params: what takes seconds on the pretended device is left to the last tier."""
    return [pytest.param(e, id=ids(e), marks=[pytest.mark.all] * (e.name in answers.SECONDS)) for e in exercises]


@pytest.fixture
def on_cuda(exercise):
    """A pretended CUDA device that is fit for the check of `exercise`."""
    with answers.pretended_for(exercise):
        yield CUDA


@pytest.mark.parametrize("exercise", tiers(EXERCISES))
def test_the_reference_passes_and_others_are_told(on_cuda, exercise):
    assert answers.refusal(exercise, exercise.reference(), on_cuda) is None
    assert not verdict(exercise, stub(exercise), on_cuda).begun
    message = wrong_answers.refusal(exercise, "cpu", on_cuda)
    assert not message or re.search("cuda|device|CUDA", message), message


@pytest.mark.all
@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_alternatives_pass(on_cuda, exercise):
    for answer in exercise.alternatives():
        if (exercise.name, answer.__name__) not in answers.NOT_CARRIED:
            assert answers.refusal(exercise, answer, on_cuda) is None, answer.__name__


@pytest.mark.all
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that a mistake leaves open
@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_mistakes_keep_their_words_on_cuda(on_cuda, exercise):
    for name, advice, wrong in exercise.mistakes():
        if (exercise.name, name) not in answers.NOT_CARRIED:
            judge = exercise.at(on_cuda)
            seen = judge.run_once(wrong)  # once: some keep lists, addresses, or a thread's turn
            verdict = judge.verdict(seen)
            words = " ".join(" ".join(verdict.report).split())
            assert not verdict.correct and " ".join(advice.split()) in words, (name, words)
    gc.collect()  # so that they are closed here and not during another test


# kind of bug -> (exercise, text of its reference, what the bug puts there, words of the message)
BUGS = {
    "numpy": ("pad_batch", "x[mask] = values", "x[mask] = torch.from_numpy(values.numpy())", "can't convert cuda:0"),
    "a result on the CPU": ("accumulated_step", "return total", "return total.cpu()", "expected 'cuda'"),
    "autocast of the CPU": ("amp_step", "autocast(labels.device.type,", "autocast('cpu',", " NO "),
    "a tensor of the CPU in a thread": (
        "data_parallel", "return replica(part)", "return replica(part.cpu() if hasattr(part, 'cpu') else part)",
        "found at least two devices"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BUGS)
def test_a_bug_in_a_reference_is_caught(cuda, kind, tmp_path):
    name, right, wrong, words = BUGS[kind]
    exercise = next(e for e in EXERCISES if e.name == name)
    master = exercise_parts(exercise.unit)[name].read_text()
    assert right in master, "the reference has changed: mend the bug"
    path = tmp_path / "master.py"
    path.write_text(master.replace(right, wrong))
    message = answers.refusal(exercise, getattr(load_definitions(path), name), cuda)
    assert message and words in message, message


@pytest.mark.all
def test_the_table_of_what_passes_is_current():
    assert answers.table() in RESULTS.read_text(), "run python tests/pretend_cuda_answers.py --write"


@pytest.mark.all
@pytest.mark.parametrize("unit, part", [(unit, part) for unit in units() for part in parts(unit)])
def test_the_experiments_of_a_part_run_there(unit, part, tmp_path):
    if (unit, part) == answers.PART_NOT_CARRIED:
        pytest.skip("nested tensors want a device that torch knows")
    rows = tmp_path / "rows.json"
    call = [sys.executable, "-W", "ignore", "-m", "instructor.bench.gpu_measures", f"{unit}/{part}", str(rows)]
    done = subprocess.run(call, cwd=ROOT, env=os.environ | PRETENDED, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    ran, _, total = dict(json.loads(rows.read_text()))["cells that ran"].partition(" of ")
    assert ran == total


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
        next(cell for cell in nb.cells if grade_id(cell) == "segment_max").source += more
        write_text(inbox / learner / unit / f"{part}.ipynb", masters.text_of(nb))
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


def test_the_check_up_tells_the_phases_of_a_training_on_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "LOOK_SECONDS", 0.02)
    rows = gpu_measures.Rows(tmp_path / "rows.json")
    with pretend_cuda():
        gpu_measures.checkup(rows)
    measured = dict(rows)
    assert {f"check-up: {name}, % of a step" for name in ("data", "transfer", "forward", "backward")} <= measured.keys()
    assert "check-up: advice" in measured
