"""What a task forbids refuses however it is reached, and comes back when it is given back."""

import functools
import pickle

import numpy
import pytest
import torch
from exercises import EXERCISES

from instructor.jail.forbidden import Forbidden, source_files

CPU = torch.device("cpu")
SCALER = "torch.amp.GradScaler"
FORBIDDING = [e for e in EXERCISES if e.forbids and not e.starts_processes]


@pytest.fixture
def without():
    """without(path, ...) takes these away until the test ends."""
    undo = []
    yield lambda *paths: undo.append(Forbidden(paths))
    for each in reversed(undo):
        each.give_back()


def test_a_class_refuses_however_it_is_reached(without):
    made, kept = torch.amp.GradScaler("cpu"), [torch.amp.GradScaler]
    subclass = type("Mine", (torch.amp.GradScaler,), {})
    copied = type("Copied", (), dict(vars(torch.amp.GradScaler)))
    without(SCALER)
    ways = [lambda: torch.amp.GradScaler("cpu"), lambda: kept[0]("cpu"), lambda: subclass("cpu"), lambda: copied("cpu"),
            lambda: pickle.loads(b"ctorch.amp.grad_scaler\nGradScaler\n.")("cpu"), lambda: made.scale(torch.ones(1)),
            lambda: functools.reduce(getattr, ["amp", "GradScaler"], torch)("cpu")]  # fmt: skip
    for way in ways:
        with pytest.raises(RuntimeError, match="the task does not allow torch.amp.GradScaler"):
            way()


def test_what_was_forbidden_comes_back():
    Forbidden((SCALER, "torch.nn.functional.gelu", "torch.optim")).give_back()
    x = torch.ones(2, requires_grad=True)
    assert torch.amp.GradScaler("cpu").scale(x).shape == x.shape and torch.nn.functional.gelu(x).shape == x.shape
    torch.optim.SGD([x], lr=1.0).step()


def test_what_is_written_in_c_refuses_in_lists_defaults_closures_and_as_an_operator(without):
    gelu = torch.nn.functional.gelu
    kept, by_default, in_closure = [gelu], lambda x, f=gelu: f(x), functools.partial(lambda f, x: f(x), x=torch.ones(1))
    shares = [numpy.shares_memory]
    without("torch.nn.functional.gelu", "numpy.shares_memory")
    for way in (kept[0], by_default, torch.nn.functional.gelu, torch.nn.GELU(), torch.ops.aten.gelu):
        with pytest.raises(RuntimeError, match="does not allow torch.nn.functional.gelu"):
            way(torch.ones(1))
    for way in (shares[0], numpy.shares_memory):
        with pytest.raises(RuntimeError, match="does not allow numpy.shares_memory"):
            way(numpy.ones(2), numpy.ones(2))
    assert in_closure(f=torch.sigmoid)


def test_private_operators_of_torch_that_do_the_same_refuse(without):
    import torch._refs.nn.functional as functions

    def fused(p):
        options = dict(weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0, nesterov=False, maximize=False)
        torch._fused_sgd_([p], [p], [], is_first_step=True, **options)

    fused(torch.ones(1))
    without("torch.nn.functional.gelu", "torch.optim")
    for way in (torch.ops.aten.gelu_, functions.gelu, fused):
        with pytest.raises(RuntimeError, match="the task does not allow torch"):
            way(torch.ones(1))


def test_a_whole_module_refuses_and_what_has_only_its_name_does_not(without):
    without("torch.optim", "torch.nn.utils")
    with pytest.raises(RuntimeError, match="does not allow torch.optim"):
        torch.optim.AdamW([torch.ones(1, requires_grad=True)])
    with pytest.raises(RuntimeError, match="does not allow torch.nn.utils"):
        torch.nn.utils.clip_grad_norm_([torch.ones(1, requires_grad=True)], 1.0)
    assert torch.nn.Linear(1, 1)(torch.ones(1)).shape == (1,)


def test_nothing_is_covered_inside_a_covered_folder():
    """bubblewrap makes no room then, and a part would lose all its points."""
    files = source_files(("torch.optim.lr_scheduler.CyclicLR", "torch.optim", SCALER))
    assert sum("optim" in file for file in files) == 1 and len(files) > 1


@pytest.mark.parametrize("exercise", FORBIDDING, ids=lambda e: e.name)
def test_a_probe_beside_the_answer_does_without_what_is_forbidden(exercise):
    before, forbidden = exercise.at(CPU).expected(), Forbidden(exercise.forbids)
    try:
        assert before.same(exercise.at(CPU).run(exercise.reference()))
    finally:
        forbidden.give_back()
