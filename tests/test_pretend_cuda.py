"""Checks on a CUDA device that is not there (pretend_cuda.py): the pretence itself, then the answers of the course."""

import copy
import gc
import importlib
import json
import os
import pickle
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pretend_cuda_answers as answers
import pytest
import torch
import wrong_answers
from conftest import ROOT
from exercises import EXERCISES, stub, verdict
from pretend_cuda import CPU, SEEN, pretend_cuda
from pretend_cuda_answers import PRETENDED
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from course.checks.engine import Outcome
from course.checks.expected import exercise_parts, load_definitions
from course.checks.wire import pack, unpack
from course.errors import CourseError
from course.units import parts, units

device_of_course = importlib.import_module("course.device")  # the package has a function of this name
RESULTS = ROOT / "docs" / "pretended-gpu.md"

CUDA = torch.device("cuda", 0)
SEGMENT_MAX = next(e for e in EXERCISES if e.name == "segment_max")


@pytest.fixture
def cuda():
    """A pretended CUDA device."""
    with pretend_cuda():
        yield CUDA


def test_python_sees_cuda(cuda):
    for x in (torch.ones(2, device="cuda"), torch.ones(2).cuda(), torch.tensor([1.0, 2.0], device=cuda),
              torch.ones(2).to("cuda:0"), torch.ones_like(torch.ones(2, device=cuda))):  # fmt: skip
        assert x.is_cuda and x.device == SEEN and x.device.type == "cuda"
        assert (x + 1).is_cuda and not x.cpu().is_cuda and x.cpu().device == CPU
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1


REFUSED = {
    "two devices in one operation": (lambda x: x + torch.ones(3), RuntimeError, "at least two devices, cuda:0 and cpu"),
    "numpy": (lambda x: x.numpy(), TypeError, "can't convert cuda:0 device type tensor to numpy"),
    "a generator of the CPU": (
        lambda x: torch.randn(3, device="cuda", generator=torch.Generator()), RuntimeError, "Expected a 'cuda' device"),
    "a generator of CUDA for the CPU": (
        lambda x: torch.randn(3, generator=torch.Generator("cuda")), RuntimeError, "Expected a 'cpu' device"),
    "an index on CUDA into the CPU": (
        lambda x: torch.arange(3)[x.long()], RuntimeError, "indices should be either on cpu or on the same device"),
    "a mask of the CPU in masked_fill": (
        lambda x: x.masked_fill(torch.ones(3, dtype=torch.bool), 0), RuntimeError, "at least two devices"),
    "values of the CPU at a mask": (
        lambda x: x.__setitem__(x > 0, torch.zeros(3)), RuntimeError, "at least two devices"),
    "a number of the CPU that is written to": (
        lambda x: torch.tensor(0.0).add_(x.sum()), RuntimeError, "at least two devices"),
    "a number of the CPU in a stack": (
        lambda x: torch.stack([x[0], torch.tensor(1.0)]), RuntimeError, "at least two devices"),
    "rows of the CPU to an embedding": (
        lambda x: F.embedding(torch.tensor([0]), x[:, None]), RuntimeError, "at least two devices"),
    "a second GPU": (lambda x: x.to("cuda:1"), RuntimeError, "invalid device ordinal"),
    "a stream of the CPU": (lambda x: torch.cuda.Stream(device="cpu"), ValueError, "Expected a cuda device"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused(cuda, name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        call(torch.ones(3, device=cuda))


TAKEN = {
    "a number of the CPU": lambda x: x * torch.tensor(2.0),
    "an index of the CPU": lambda x: x[torch.tensor([0, 2])],
    "a copy from the CPU": lambda x: x.copy_(torch.zeros(3)),
    "a generator of its own": lambda x: torch.randn(3, device="cuda", generator=torch.Generator("cuda").manual_seed(1)),
    "a deep copy of a parameter with its gradient": lambda x: copy.deepcopy(_trained(x)).grad,
    "a mask of the CPU": lambda x: x[torch.ones(3, dtype=torch.bool)],
    "a number at a mask of the CPU": lambda x: x.index_put_((torch.ones(3, dtype=torch.bool),), torch.tensor(1.0)),
    "torch.tensor": lambda x: torch.tensor([1, 2], device="cuda"),
    "torch.full": lambda x: torch.full((2,), 3.0, device="cuda:0"),
    "cuda(0)": lambda x: torch.ones(2).cuda(0),
    "a tied parameter, which stays one": lambda x: _tied(x),
    "a pickled copy": lambda x: pickle.loads(pickle.dumps(x)),
}


def _tied(x):
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    moved = nn.ModuleList([first, second]).cuda()
    return moved[0].weight if moved[0].weight is moved[1].weight else x.cpu()


def _trained(x):
    parameter = nn.Parameter(x)
    (2 * parameter).sum().backward()
    return parameter


@pytest.mark.parametrize("name", TAKEN)
def test_what_cuda_takes_is_taken(cuda, name):
    assert TAKEN[name](torch.ones(3, device=cuda)).is_cuda


def test_a_thread_computes_there_too(cuda):
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(2, device="cuda") + 1))
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as pool:
        found.append(pool.submit(lambda: nn.Linear(2, 2).cuda()(found[0])).result())
    assert all(x.is_cuda for x in found)


def test_a_forked_child_cannot_compute_there(cuda):
    x = torch.ones(2, device="cuda")
    loader = DataLoader([0], num_workers=1, collate_fn=lambda items: x + 1)
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess"):
        next(iter(loader))


def test_pinned_memory_knows_that_it_is_pinned(cuda):
    for pinned in (torch.ones(3, pin_memory=True), torch.ones(3).pin_memory()):
        assert pinned.is_pinned() and pinned[1:].is_pinned() and not pinned.clone().is_pinned()
    assert not torch.ones(3).is_pinned() and not pinned.cuda(non_blocking=True).is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.ones(3, device="cuda").pin_memory()
    (batch,) = next(iter(DataLoader(TensorDataset(torch.ones(4)), 4, pin_memory=True)))
    assert batch.is_pinned()


def linear_under_autocast(dtype, value):
    """(dtype of a linear layer's output, of its gradient, of the loss)."""
    layer, x = nn.Linear(2, 2).cuda(), torch.ones(3, 2, device="cuda")
    with torch.autocast("cuda", dtype):
        output = layer(x)
        loss = value(output)
    loss.backward()
    return output.dtype, layer.weight.grad.dtype, loss.dtype


def test_autocast_casts_as_that_of_cuda_does(cuda):
    whole = torch.float32
    targets = torch.zeros(3, dtype=torch.int64, device="cuda")
    for asked, dtype in ((torch.bfloat16, torch.bfloat16), (torch.float16, torch.float16), (None, torch.float16)):
        assert linear_under_autocast(asked, lambda y: F.cross_entropy(y, targets)) == (dtype, whole, whole)
        assert linear_under_autocast(asked, lambda y: y.exp().sum()) == (dtype, whole, whole)
    assert linear_under_autocast(torch.bfloat16, lambda y: y.relu().amax()) == (torch.bfloat16, whole, torch.bfloat16)
    with torch.autocast("cuda", torch.bfloat16), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(torch.rand(3, device="cuda"), torch.ones(3, device="cuda"))
    with torch.autocast("cuda", torch.bfloat16), torch.autocast("cuda", enabled=False):
        assert (
            not torch.is_autocast_enabled("cuda") and (torch.ones(2, 2).cuda() @ torch.ones(2, 2).cuda()).dtype == whole
        )


def test_autocast_of_one_device_leaves_the_other_alone(cuda):
    here, there = torch.ones(2, 2), torch.ones(2, 2, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        assert torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
        assert ((here @ here).dtype, (there @ there).dtype) == (torch.float32, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert ((here @ here).dtype, (there @ there).dtype) == (torch.bfloat16, torch.float32)


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
    record = unpack(pack(exercise.record(cuda)))
    assert any(isinstance(value, torch.Tensor) and value.is_cuda for value in record["expected"].values())
    assert Outcome(record["expected"]).same(exercise.expected(cuda, 0))
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
            seen = exercise._kept_outcome(wrong, on_cuda, 0)  # run once: some keep lists, addresses, or a thread's turn
            verdict = exercise.verdict(seen, on_cuda, 0)
            words = " ".join(" ".join(verdict.report).split())
            assert not verdict.correct and " ".join(advice.split()) in words, (name, words)
    gc.collect()  # so that they are closed here and not during another test


# kind of bug -> (exercise, text of its reference, what the bug puts there, words of the message)
BUGS = {
    "numpy": ("pad_batch", "x[mask] = values", "x[mask] = torch.from_numpy(values.numpy())", "can't convert cuda:0"),
    "a result on the CPU": ("accumulated_step", "return total", "return total.cpu()", "expected 'cuda'"),
    "autocast of the CPU": ("amp_step", "autocast(labels.device.type,", "autocast('cpu',", " NO "),
    "a tensor of the CPU in a thread": (
        "parallel_apply", "return replica(part)", "return replica(part.cpu() if hasattr(part, 'cpu') else part)",
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
    call = [sys.executable, "-W", "ignore", "-m", "course.benchmarks.gpu_measures", f"{unit}/{part}", str(rows)]
    done = subprocess.run(call, cwd=ROOT, env=os.environ | PRETENDED, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    ran, _, total = dict(json.loads(rows.read_text()))["cells that ran"].partition(" of ")
    assert ran == total
