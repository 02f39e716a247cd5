"""A probe and the answer in two processes: the same facts as in one, and nothing but data comes back."""

import contextlib
import io
import os
import re
import socket
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import ROOT
from exercises import EXERCISES
from forked_answers import CPU, exercise_of, of_the_checks, outcome
from torch.utils._python_dispatch import TorchDispatchMode

from course.checks.engine import Exercise
from course.checks.parallel_loading.to_device import _Faces
from course.checks.probing.counting import runs_at_most
from course.checks.probing.tensors import torch_only
from course.checks.probing.travelling import beside
from course.checks.wire import WireError
from course.grading.sandbox.answer_server import Server
from course.grading.sandbox.beside import Beside
from course.grading.sandbox.link import Link
from course.grading.sandbox.transport import ConnectionLost

ISOLATED = [exercise for exercise in EXERCISES if exercise.isolated]
INSIDE = {  # why a probe runs in the learner's own process; docs/grading.md says it with these numbers
    "ranks": "NaiveDDP OverlappedDDP lightning_fit ring_all_reduce train_ddp",
    "threads": "read_ahead Prefetcher ThreadedLoader WorkerLoader PageReader",
    "files": "Records write_records LFWDataset LeanFaces",
}


class Agreeing(int):
    """A number that says yes to every comparison."""

    __eq__ = __lt__ = __gt__ = lambda self, other: True
    __hash__ = int.__hash__


class AgreeingTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return (
            True
            if function in (torch.equal, torch.allclose)
            else super().__torch_function__(function, types, args, kwargs)
        )


def look(answer, *args):
    """What an exercise's probe gets of `answer(*args)`."""

    def probe(answer, device, seed):
        result = answer(*args)
        yield "type", type(result).__name__
        yield "value", result

    return outcome(Exercise("03_large_batch", probe, True, None, 5, (), True), answer)


@pytest.fixture
def forks_go_backward():
    if "pretend_cuda" in sys.modules:
        pytest.skip("the pretended device starts threads of autograd, after which no fork can go backward: see below")


def test_what_goes_backward_in_a_fork_passes_in_a_process_without_the_pretended_device(tier):
    if "pretend_cuda" not in sys.modules:
        pytest.skip("those tests run in this process")
    run = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--tier", tier, __file__]
    done = subprocess.run([*run, "-k", "two_processes or containers"], capture_output=True, text=True)
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout[-3000:]


def test_the_probes_that_are_not_isolated_are_listed_with_their_kind_and_counted_in_the_docs():
    names = [name for kind in INSIDE.values() for name in kind.split()]
    assert sorted(names) == sorted(exercise.name for exercise in EXERCISES if not exercise.isolated)
    text = (ROOT / "docs/grading.md").read_text(encoding="utf-8")
    assert text.count(f"{len(ISOLATED)} of {len(EXERCISES)}") == 2
    assert re.findall(r"\| (\d+) \|$", text, re.M) == [str(len(kind.split())) for kind in INSIDE.values()]


# refused there by other wrong values: gradients of what replicas share with the module, a list that grows there alone
OTHER_VALUES = "shallow_copies one_list_for_all".split()


@pytest.mark.parametrize("exercise", ISOLATED, ids=lambda e: e.name)
@pytest.mark.usefixtures("forks_go_backward")
def test_two_processes_find_what_one_finds(exercise, tier):
    mistakes = [wrong for wrong, _ in exercise.mistakes()[: None if tier == "all" else 3]]
    mistakes = [wrong for wrong in mistakes if wrong.__name__ not in OTHER_VALUES]
    answers = [exercise.reference(), exercise.alternatives()[0], *mistakes]
    for answer in answers:
        here, there = exercise.outcome(answer, CPU, 0), outcome(exercise, answer)
        assert here.same(there), answer.__name__
        assert (here.raised and here.raised.text) == (there.raised and there.raised.text)


@pytest.mark.parametrize(
    "value",
    [3, 2.5, "x", None, (1, [2.0, {"a": torch.ones(2)}]), {1: 2}, {1, 2}, range(3), b"ab", torch.Size([2])],
    ids=str,
)
def test_values_come_back_as_they_are(value):
    found = look(lambda: value)
    assert found.raised is None and found.facts["type"] == type(value).__name__


@pytest.mark.parametrize("value", [Agreeing(7), torch.zeros(2).as_subclass(AgreeingTensor)], ids=["int", "tensor"])
def test_what_agrees_with_everything_comes_back_as_plain_data(value):
    found = look(lambda: value)
    assert found.facts["type"] in ("int", "Tensor") and type(found.facts["value"]) in (int, torch.Tensor)


def test_what_an_answer_changes_is_changed_here():
    def add_one_and_draw(x, generator):
        x.add_(1)
        return torch.rand(1, generator=generator)

    def probe(answer, device, seed):
        x, generator = torch.zeros(2), torch.Generator().manual_seed(0)
        yield "draws", (answer(x, generator), answer(x, generator))
        yield "x", x

    exercise = Exercise("03_large_batch", probe, True, None, 5, (), True)
    assert exercise.outcome(add_one_and_draw, CPU, 0).same(outcome(exercise, add_one_and_draw))


@pytest.mark.parametrize(
    "answer", [lambda x: x + 1, lambda x: x.add_(1), lambda x: None], ids=["right", "adds", "none"]
)
def test_what_a_probe_looks_at_beside_the_answer_runs_there_with_the_answer_watched(answer):
    here = os.getpid()

    def looked(answer, x):
        return answer(x), os.getpid() == here

    def probe(answer, device, seed):
        yield "found", beside(answer, looked, answer, torch.ones(2))

    exercise = Exercise("03_large_batch", probe, False, isolated=True)
    one, two = exercise.outcome(answer, CPU, 0), outcome(exercise, answer)
    assert (one.raised and one.raised.text) == (two.raised and two.raised.text)
    if not one.raised:
        assert one.facts["found"][1] is True and two.facts["found"][1] is False
        assert two.facts["found"][0].tolist() == [2, 2]


def test_what_an_answer_resizes_or_casts_is_so_here():
    def probe(answer, device, seed):
        x, model, pair = torch.arange(4.0), torch.nn.Linear(2, 1), _Faces(torch.ones(1), 2)
        place = x.data_ptr()
        pair = answer(x, model, pair)
        yield "resized", (x, x.data_ptr() == place)
        yield "cast", [p.dtype for p in model.parameters()]
        yield "a named tuple", (type(pair).__name__, pair.images, pair.labels)

    def answer(x, model, pair):
        x.resize_(2)
        model.bfloat16()
        return pair._replace(labels=3)

    here, there = exercise_of(probe).outcome(answer, CPU, 0), outcome(exercise_of(probe), answer)
    assert here.raised is None and len(here.facts) == 3 and here.same(there)


def test_a_tensor_that_an_answer_adds_a_parameter_to_requires_a_gradient_here():
    def probe(answer, device, seed):
        velocity, weight = torch.zeros(2), torch.nn.Parameter(torch.ones(2))
        answer(velocity, weight)
        yield "values and history", (velocity.tolist(), velocity.requires_grad)

    def answer(velocity, weight):
        velocity.add_(weight)

    here, there = exercise_of(probe).outcome(answer, CPU, 0), outcome(exercise_of(probe), answer)
    assert here.facts["values and history"] == ([1, 1], True) and here.same(there)


def test_a_function_of_the_probe_is_called_here():
    calls = []

    def count(step):
        calls.append(step)
        return step * 2

    count.__module__ = "course.checks.large_batch"
    assert look(lambda f: [f(1), f(2)], count).facts["value"] == [2, 4] and calls == [1, 2]


@pytest.mark.usefixtures("forks_go_backward")
def test_parameters_gradients_and_containers_that_an_answer_changes_are_changed_here():
    def train(model, optimizer, log, kept):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        log.append(float(model.bias.detach()))
        kept["weight"] = kept["weight"] + 1
        model.bias.grad = None
        model.weight.requires_grad_(False)

    def probe(answer, device, seed):
        model = torch.nn.Linear(2, 1)
        model.weight.data.fill_(2), model.bias.data.fill_(1)
        model.weight.grad = grad = torch.ones(1, 2)
        log, kept = [], {"weight": torch.zeros(2)}
        answer(model, torch.optim.SGD(model.parameters(), lr=0.5), log, kept)
        yield "parameters", [p.detach().clone() for p in model.parameters()]
        yield "gradients", (model.weight.grad, model.weight.grad is grad, model.bias.grad)
        yield "flags", [p.requires_grad for p in model.parameters()]
        yield "containers", (log, kept)

    exercise = Exercise("03_large_batch", probe, True, None, 5, (), True)
    here, there = exercise.outcome(train, CPU, 0), outcome(exercise, train)
    assert here.raised is None and len(here.facts) == 4 and here.same(there)


def test_objects_and_generators_of_the_probe_stay_here_and_are_asked():
    class Loader:
        def __init__(self):
            self.passes, self.left = 0, 3

        def __iter__(self):
            self.passes += 1
            yield from (torch.full((2,), float(n)) for n in range(self.left))

        def __len__(self):
            return self.left

    Loader.__module__ = "course.checks.large_batch"

    def answer(loader, numbers):
        first = sum(batch.sum() for batch in loader)
        return [float(first), len(list(loader)), len(loader), list(numbers), loader.passes]

    def probe(answer, device, seed):
        loader = Loader()
        yield "found", answer(loader, (n * n for n in range(3)))
        yield "passes", loader.passes
        yield "the same object comes back", answer is not None and (lambda x: x)(loader) is loader

    exercise = Exercise("03_large_batch", probe, True, None, 5, (), True)
    found = outcome(exercise, answer)
    assert found.raised is None and found.facts["found"] == [6.0, 3, 3, [0, 1, 4], 2] and found.facts["passes"] == 2


class Spy:
    """An object of a probe."""

    def __init__(self):
        self.notes, self._seed = [], 7

    def note(self):
        self.notes.append(1)


@pytest.mark.parametrize(
    "reach",
    [
        lambda spy, f: spy._seed,
        lambda spy, f: setattr(spy, "notes", [1, 1]),
        lambda spy, f: f.__globals__,
        lambda spy, f: spy._course_ask("get", "__dict__"),
        lambda spy, f: spy.note.__self__,
        lambda spy, f: type(f).__getattr__(f, "closure"),
    ],
)
def test_what_is_private_of_the_probe_is_refused(reach, monkeypatch):
    monkeypatch.setattr(Spy, "__module__", "course.checks.large_batch")

    def probe(answer, device, seed):
        spy = Spy()

        def f():
            return seed

        f.__module__ = "course.checks.large_batch"
        yield "kind", answer(spy, f)
        yield "notes", spy.notes

    def answer(spy, f):
        try:
            reach(spy, f)
        except AttributeError:
            return "refused"
        return "reached"

    found = outcome(Exercise("03_large_batch", probe, True, None, 5, (), True), answer)
    assert found.facts == {"kind": "refused", "notes": []}


def test_what_the_probe_gave_comes_back_as_it_was():
    def probe(answer, device, seed):
        x, kept = torch.ones(3), [torch.zeros(2)]
        yield "a tensor", answer(x) is x
        yield "of a list", answer(kept)[0] is kept[0]

    exercise = Exercise("03_large_batch", probe, True, None, 5, (), True)
    assert outcome(exercise, lambda value: value).facts == {"a tensor": True, "of a list": True}


def test_an_object_keeps_what_it_was_given_between_calls():
    class Keeps:
        def __init__(self, parameters):
            self.parameters = parameters

        def step(self):
            with torch.no_grad():
                for p in self.parameters:
                    p -= p.grad

    def probe(answer, device, seed):
        parameters = [torch.ones(2, requires_grad=True)]
        made = answer(parameters)
        for size in (0.5, 0.25):
            parameters[0].grad = torch.full((2,), size)
            made.step()
        yield "after two steps", parameters[0].detach()

    exercise = Exercise("03_large_batch", probe, True, None, 5, (), True)
    found = outcome(exercise, Keeps)
    assert found.raised is None and found.facts["after two steps"].tolist() == [0.25, 0.25]


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("k"), type("Own", (RuntimeError,), {})("o"), StopIteration()]
)
def test_exceptions_keep_their_kind(error):
    def answer():
        raise error

    assert look(answer).raised.kind == type(error).__name__ or isinstance(error, StopIteration)


def test_a_process_that_ends_is_told():
    assert "ended the process" in look(lambda: os._exit(1)).raised.text


@pytest.mark.parametrize(
    "data", [b"\xff" * 8, (10).to_bytes(8, "little") + b"0123456789", b""], ids=["long", "noise", "none"]
)
def test_what_is_no_message_is_refused(data):
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(data)
        with pytest.raises((WireError, ConnectionLost)):
            Link(ours).receive()


@of_the_checks
class Sizes(TorchDispatchMode):
    """Notes the elements of what each operation gives."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.sizes.append((func._schema.name, found.numel() if isinstance(found, torch.Tensor) else None))
        return found


def test_what_a_probe_counts_is_counted_where_the_answer_runs():
    def answer(ask, x):
        print("hello")
        y = x[:2] * 3
        ask(time.perf_counter())
        return float(y.sum())

    def probe(answer, device, seed):
        asked = []
        with Sizes() as here:
            answer(of_the_checks(lambda _: asked.append(len(here.sizes)) or torch.ones(7)), torch.ones(4))
        yield "operations", here.sizes
        yield "and those before the call", asked
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            answer(of_the_checks(lambda _: None), torch.ones(4))
        yield "printed", printed.getvalue()
        lines = [runs_at_most(n, lambda: answer(of_the_checks(lambda _: None), torch.ones(4))) for n in (3, 1000)]
        yield "lines", lines
        with mock.patch.object(time, "perf_counter", wraps=time.perf_counter) as clock:
            answer(of_the_checks(lambda _: None), torch.ones(4))
        yield "a patched function", clock.called

    here, there = exercise_of(probe).outcome(answer, CPU, 0), outcome(exercise_of(probe), answer)
    assert here.raised is None and here.facts["operations"][1] == ("aten::slice", 2) and here.same(there)


def test_a_patched_function_refuses_where_the_answer_runs():
    def probe(answer, device, seed):
        yield "found", torch_only(answer)(torch.ones(2))

    for answer in (lambda x: x.numpy(), lambda x: torch.tensor(np.asarray(x)), lambda x: x + 1):
        here, there = exercise_of(probe).outcome(answer, CPU, 0), outcome(exercise_of(probe), answer)
        assert here.same(there) and (here.raised and here.raised.text) == (there.raised and there.raised.text)


LIES = {  # [lines, operations, text] that a learner's process may send
    "a million": [0, [1] * 1_000_000, ""],
    "a long text": [0, [["x" * 9_000_000, [], []]], ""],
    "many": [0, [["aten.add.Tensor", [], []]] * 30_000, ""],
    "negative lines": [-1, [], ""],
    "lines of no number": [True, [], ""],
    "endless lines": [10**15, [], ""],
    "no list": "operations",
    "an operation of numbers": [0, [[1, 2, 3]], ""],
    "a short operation": [0, [["aten.add.Tensor"]], ""],
    "a huge tensor": [0, [["aten.add.Tensor", [], [[0, None, "float32", [2**62] * 4, 8]]]], ""],
    "a negative size": [0, [["aten.add.Tensor", [], [[0, None, "float32", [-1], 8]]]], ""],
    "no type": [0, [["aten.add.Tensor", [], [[0, None, "load", [1], 8]]]], ""],
    "a list as a number": [0, [["aten.add.Tensor", [], [[0, [], "float32", [1], 8]]]], ""],
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_makes_no_sense_of_an_answers_work_ends_the_check(lie, monkeypatch):
    def probe(answer, device, seed):
        with Sizes() as seen:
            answer(torch.ones(2))
        yield "operations", seen.sizes

    monkeypatch.setattr(Beside, "noted", lambda self: lie)
    found = outcome(exercise_of(probe), lambda x: x + 1)
    assert found.raised and found.raised.kind == "WireError" and not found.facts


@pytest.mark.usefixtures("forks_go_backward")
def test_a_lie_about_the_work_of_an_answer_makes_no_value_right(monkeypatch):
    """Exercises that count work: wrong values stay wrong, whatever the learner's process says that it did."""
    monkeypatch.setattr(Beside, "noted", lambda self: [0, [], ""])
    for name, mistake in (("segment_max", "started_from_zero"), ("pad_batch", "transposed"), ("svrg", None)):
        exercise = next(e for e in EXERCISES if e.name == name)
        wrong = [m for m, _ in exercise.mistakes() if m.__name__ == (mistake or m.__name__)][0]
        seen = outcome(exercise, wrong)
        assert not exercise.verdict(seen, CPU, 0, diagnose=False).correct, name


@pytest.mark.usefixtures("forks_go_backward")
def test_backward_goes_through_what_an_answer_returned():
    own = torch.nn.Parameter(torch.tensor(2.0))

    def answer(x, weights):
        return own * x * weights["w"], (x.detach() + own).sum()

    def probe(answer, device, seed):
        leaf, weight = torch.arange(3.0, requires_grad=True), torch.full((3,), 5.0, requires_grad=True)
        first, second = answer(2 * leaf, {"w": weight})
        yield "values", (first, second, first.requires_grad)
        (grad,) = torch.autograd.grad((first * first).sum() + second, leaf, retain_graph=True)
        yield "of what comes before", grad
        (first.sum() + 3 * first.square().sum()).backward()
        yield "of leaves", (leaf.grad, weight.grad)
        with torch.no_grad():
            yield "without a graph", answer(leaf, {"w": weight})[0].requires_grad
        (answer(answer(leaf, {"w": weight})[0], {"w": weight})[0]).sum().backward()
        yield "two in a row", (leaf.grad, weight.grad)

    here, there = exercise_of(probe).outcome(answer, CPU, 0), outcome(exercise_of(probe), answer)
    assert here.raised is None and len(here.facts) == 5 and here.same(there)


@pytest.mark.parametrize(
    "lie", [[0, [2**40], [0], 0], [0, [3], [1], 2], [0, [-3], [1], 0], [7, [1], [1], 0], [[], [1], [1], 0]], ids=str
)
def test_a_view_of_what_is_not_there_ends_the_check(lie, monkeypatch):
    def probe(answer, device, seed):
        yield "a view", answer(torch.arange(4.0)) + 1

    right = outcome(exercise_of(probe), lambda x: x[1:3])
    assert right.raised is None and right.facts["a view"].tolist() == [2, 3]
    monkeypatch.setattr(Server, "_view", lambda self, value: ("view", lie))
    found = outcome(exercise_of(probe), lambda x: x[1:3])
    assert found.raised and not found.facts


@pytest.mark.parametrize("lie", [[], [torch.ones(5)], [torch.ones(3, dtype=torch.int64)], ["1"], 3, None], ids=str)
@pytest.mark.usefixtures("forks_go_backward")
def test_gradients_that_are_none_end_the_check(lie, monkeypatch):
    def probe(answer, device, seed):
        leaf = torch.ones(3, requires_grad=True)
        answer(leaf).sum().backward()
        yield "gradient", leaf.grad

    monkeypatch.setattr(Server, "_backward", lambda self, graph, slope, numbers: lie)
    found = outcome(exercise_of(probe), lambda x: 2 * x)
    assert found.raised and found.raised.kind == "WireError" and not found.facts


def test_a_leaf_of_the_answer_is_shared_with_what_it_is_given_to():
    def answer(make):
        parameter = torch.nn.Parameter(torch.ones(2))
        optimizer = make([parameter])
        parameter.grad = torch.full((2,), 4.0)
        optimizer.step()
        return parameter.detach().clone(), parameter

    def probe(answer, device, seed):
        made = []
        make = of_the_checks(lambda parameters: made.extend(parameters) or torch.optim.SGD(parameters, lr=0.5))
        value, leaf = answer(make)
        yield "its value", (value, leaf, leaf is made[0], leaf.grad)

    here, there = exercise_of(probe).outcome(answer, CPU, 0), outcome(exercise_of(probe), answer)
    assert here.raised is None and here.same(there)


def test_views_share_their_memory_there_and_what_an_answer_let_go_is_forgotten():
    sizes = []

    def answer(whole, part, batches):
        whole.zero_()
        total = sum(float(batch.sum()) for batch in batches)
        return float(part.sum()), total

    def probe(answer, device, seed):
        whole, buffer = torch.ones(4), torch.ones(3)

        def batches():
            for n in range(20):
                sizes.append(len(answer.table.tensors))
                yield buffer.fill_(n)[:2]

        yield "found", answer(whole, whole[2:], of_the_checks(batches)())

    found = outcome(exercise_of(probe), answer)
    assert found.raised is None and found.facts["found"] == (0.0, 380.0) and max(sizes) < 8
