"""Checks on a CUDA device that is not there (pretend_cuda.py): the pretence itself, then the answers of the course."""

import copy
import io

import pytest
import torch
from exercises import EXERCISES, starts_processes
from pretend_cuda import CPU, SEEN, pretend_cuda
from torch import nn

from course.checks.engine import CheckFailed

CUDA = torch.device("cuda", 0)
# what the pretence cannot carry, and why
NOT_CARRIED = {
    "Prefetcher": "copies in a thread of its own, and a mode holds in one thread",
    "parallel_apply": "runs replicas in threads, and a mode holds in one thread",
    "to_device": "its probe brings a tensor subclass, and a tensor cannot be two",
    "evaluate_fast": "its probe brings a tensor subclass, and a tensor cannot be two",
}
NOT_CARRIED_ALTERNATIVES = NOT_CARRIED | {
    "gather": "the operations that it counts are made inside of the pretence as well",
    "quasi_random_order": "the lines of Python that it counts are those of the pretence as well",
    "flat_attention": "nested tensors want a device that torch knows",
}
SECONDS = {"LossScaler", "quasi_random_order", "BucketBatchSampler", "lr_range_test"}  # for the last tier


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


def test_outside_of_the_block_there_is_none():
    with pretend_cuda():
        pass
    assert torch.cuda.is_available() is (torch.cuda.device_count() > 0)
    assert type(torch.Generator()) is torch.Generator


REFUSED = {
    "two devices in one operation": (lambda x: x + torch.ones(3), RuntimeError, "at least two devices, cuda:0 and cpu"),
    "a module and its input": (lambda x: nn.Linear(3, 2)(x), RuntimeError, "at least two devices"),
    "numpy": (lambda x: x.numpy(), TypeError, "can't convert cuda:0 device type tensor to numpy"),
    "numpy of an array": (lambda x: __import__("numpy").asarray(x), TypeError, "can't convert cuda:0"),
    "a generator of the CPU": (
        lambda x: torch.randn(3, device="cuda", generator=torch.Generator()), RuntimeError, "Expected a 'cuda' device"),
    "a generator of CUDA for the CPU": (
        lambda x: torch.randn(3, generator=torch.Generator("cuda")), RuntimeError, "Expected a 'cpu' device"),
    "an index on CUDA into the CPU": (
        lambda x: torch.arange(3)[x.long()], RuntimeError, "indices should be either on cpu or on the same device"),
    "a mask of the CPU in masked_fill": (
        lambda x: x.masked_fill(torch.ones(3, dtype=torch.bool), 0), RuntimeError, "at least two devices"),
    "a mask of the CPU in where": (
        lambda x: torch.where(torch.ones(3) > 0, x, x), RuntimeError, "at least two devices"),
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
    "a deep copy": copy.deepcopy,
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_cuda_takes_is_taken(cuda, name):
    assert TAKEN[name](torch.ones(3, device=cuda)).is_cuda


def test_a_model_trains_there_as_on_the_cpu():
    def losses(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        x, found = torch.randn(16, 4).to(device), []
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast(torch.device(device).type, torch.bfloat16):
                loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found, copy.deepcopy(model).state_dict()

    expected, _ = losses("cpu")
    with pretend_cuda():
        found, state = losses("cuda")
        assert all(value.is_cuda for value in state.values())
        file = io.BytesIO()
        torch.save({"a": state["0.weight"]}, file)
    assert found == pytest.approx(expected, rel=1e-2)


CARRIED = [exercise for exercise in EXERCISES if not starts_processes(exercise) and exercise.name not in NOT_CARRIED]


def test_nearly_every_exercise_is_carried():
    in_this_process = [exercise for exercise in EXERCISES if not starts_processes(exercise)]
    assert {*NOT_CARRIED} <= {exercise.name for exercise in in_this_process}
    assert len(CARRIED) > 0.95 * len(in_this_process)


def marked(exercises):
    later = {exercise.name: [pytest.mark.all] for exercise in exercises if exercise.name in SECONDS}
    return [pytest.param(e, id=f"{e.unit[:2]}-{e.name}", marks=later.get(e.name, [])) for e in exercises]


@pytest.mark.parametrize("exercise", marked(CARRIED))
def test_the_reference_passes_on_cuda(cuda, exercise):
    found, here = exercise.outcome(exercise.reference(), cuda, 0), exercise.expected(CPU, 0)
    assert found.raised is None, found.raised.text
    assert list(found.facts) == list(here.facts)


@pytest.mark.all
@pytest.mark.parametrize("exercise", marked([e for e in CARRIED if e.name not in NOT_CARRIED_ALTERNATIVES]))
def test_the_first_alternative_passes_on_cuda(cuda, exercise):
    verdict = exercise.judge(exercise.alternatives()[0], device=cuda)
    assert verdict.correct, verdict.report


def test_a_tensor_left_on_the_cpu_is_told(cuda):
    exercise = next(e for e in EXERCISES if e.name == "segment_max")

    def left_on_the_cpu(values, lengths):
        owner = torch.arange(len(lengths)).repeat_interleave(lengths.cpu())
        lowest = values.new_full((len(lengths), values.shape[1]), -float("inf"))
        return lowest.scatter_reduce(0, owner[:, None].expand_as(values), values, "amax")

    with pytest.raises(CheckFailed, match="Expected all tensors to be on the same device"):
        exercise(left_on_the_cpu, device=cuda)
