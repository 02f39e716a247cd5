"""A probe and the answer in two processes: the same facts as in one, and nothing but data comes back."""

import os
import signal
import socket

import pytest
import torch
from exercises import EXERCISES

from course.checks.engine import Exercise
from course.checks.limits import Limits, describe, run_answer
from course.checks.wire import WireError
from course.grading.sandbox.link import Link
from course.grading.sandbox.remote import Remote, Server
from course.grading.sandbox.transport import ConnectionLost

CPU = torch.device("cpu")
ISOLATED = [exercise for exercise in EXERCISES if exercise.isolated]


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


def outcome(exercise, answer, seed=0):
    """The Outcome of a probe here on an answer in a fork of this process."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        try:
            ours.close()
            server = Server(Link(theirs), answer, lambda error: describe(error, answer).text)
            run_answer(server.run, answer, Limits())
        finally:
            os._exit(0)
    theirs.close()
    try:
        with ours:
            return exercise.outcome(Remote(Link(ours), isinstance(answer, type)), CPU, seed)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def look(answer, *args):
    """What an exercise's probe gets of `answer(*args)`."""

    def probe(answer, device, seed):
        result = answer(*args)
        yield "type", type(result).__name__
        yield "value", result

    return outcome(Exercise("03_large_batch", probe, True, None, 5, (), True), answer)


@pytest.mark.parametrize("exercise", ISOLATED, ids=lambda e: e.name)
def test_two_processes_find_what_one_finds(exercise):
    answers = [exercise.reference(), exercise.alternatives()[0], *(wrong for wrong, _ in exercise.mistakes()[:3])]
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


def test_a_function_of_the_probe_is_called_here():
    calls = []

    def count(step):
        calls.append(step)
        return step * 2

    count.__module__ = "course.checks.large_batch"
    assert look(lambda f: [f(1), f(2)], count).facts["value"] == [2, 4] and calls == [1, 2]


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
