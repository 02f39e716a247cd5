"""Ranks of a probe whose code runs in the learner's process: the same facts as in one, and messages nobody makes up."""

import contextlib
import os
import re
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist
from forked_answers import CPU, exercise_of, of_the_checks, outcome

from course.checks.data_parallel.messages import calls_in_ranks, whole
from course.checks.data_parallel.ranks import FREE, in_threads, results_in_ranks
from course.grading.sandbox.ranks import Operations
from course.network import simulate, virtual_rank


@pytest.fixture
def no_thread_is_left():
    """The threads of ranks have ended after the test, or do within seconds; those of earlier tests do not count."""
    before = set(threading.enumerate())
    yield
    until = time.monotonic() + 20
    while (left := set(threading.enumerate()) - before) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left


def both(probe, answer):
    """The Outcome of a probe on an answer in this process, and in another one."""
    return exercise_of(probe).outcome(answer, CPU, 0), outcome(exercise_of(probe), answer)


def assert_same(probe, answer):
    here, there = both(probe, answer)
    assert here.same(there), (here, there)
    assert (here.raised and here.raised.text) == (there.raised and there.raised.text)
    return there


def called(rank, world_size, answer, *args):
    return answer(rank, *args)


def on_two(answer, device, seed):
    """A probe: what two ranks return that are called with their number, and how it goes on after an error."""
    yield "found", simulate(called, 2, FREE, answer).results


def operations_of_all_kinds(rank):
    n, found = dist.get_world_size(), []
    x = torch.arange(4.0) + 10 * rank
    dist.broadcast(x[1:3], 1)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    dist.reduce(half := torch.full((2,), rank + 1, dtype=torch.bfloat16), 0)
    dist.all_gather(rows := [torch.zeros(2, dtype=torch.int64) for _ in range(n)], torch.tensor([rank, 7]))
    dist.all_gather_into_tensor(table := torch.zeros(n, 3), torch.full((3,), float(rank)))
    dist.gather(x, parts := [torch.zeros(4) for _ in range(n)] if rank == 0 else None)
    dist.all_gather_object(objects := [None] * n, {"rank": rank})
    work = dist.all_reduce(later := torch.ones(3) * rank, async_op=True)
    found.append(work.is_completed())
    work.wait()
    dist.barrier()
    return [
        x,
        half,
        rows,
        table,
        parts,
        objects,
        later,
        *found,
        work.is_completed(),
        dist.get_rank(),
        dist.get_backend(),
    ]


def messages_of_all_kinds(rank):
    whole, source = torch.arange(6.0).view(2, 3) * (rank + 1), None
    if rank == 0:
        first, second = dist.isend(whole[0], 1, tag=3), dist.isend(whole[1], 1, tag=4)
        whole[1, 0] = 77  # before the other rank has asked for it
        first.wait(), second.wait()
        dist.send(torch.empty(0), 1)
        dist.recv(whole[0, 1:])
    else:
        second, first = dist.irecv(whole[1], 0, tag=4), dist.irecv(whole[0], 0, tag=3)
        first.wait(), second.wait()
        source = dist.recv(torch.empty(0))
        for request in dist.batch_isend_irecv([dist.P2POp(dist.isend, whole[1, :2], 0)]):
            request.wait()
    return whole, source


def random_numbers(rank):
    first = torch.rand(1)
    dist.barrier()
    return float(first), float(torch.rand(1))


def test_ranks_in_another_process_find_the_same():
    def probe(answer, device, seed):
        yield "two", in_threads(called, 2, answer)
        yield "three", in_threads(called, 3, answer)
        yield "drawn", float(torch.rand(1))

    for answer in (operations_of_all_kinds, random_numbers):
        assert not assert_same(probe, answer).raised
    assert not assert_same(on_two, messages_of_all_kinds).raised


def waits_for_each_other(rank):
    dist.recv(torch.zeros(1), 1 - rank)


def waits_for_nobody(rank):
    if rank == 1:
        dist.irecv(torch.zeros(1), 0).wait()


def sends_too_much(rank):
    dist.send(torch.zeros(3), 1) if rank == 0 else dist.recv(torch.zeros(2), 0)


def receives_twice_into_one(rank):
    x = torch.zeros(4)
    if rank == 0:
        dist.irecv(x[:3], 1), dist.irecv(x[2:], 1)


def sends_what_is_not_contiguous(rank):
    dist.isend(torch.zeros(3, 2).t(), 1 - rank)


def takes_a_float_for_a_rank(rank):
    dist.isend(torch.zeros(1), 1 / 2)


def ends_itself(rank):
    sys.exit(f"rank {rank}")


def fails_while_another_waits(rank):
    if rank == 1:
        raise ZeroDivisionError("one")
    dist.recv(torch.zeros(1), 1)


@pytest.mark.parametrize(
    "answer",
    [waits_for_each_other, waits_for_nobody, sends_too_much, receives_twice_into_one, sends_what_is_not_contiguous,
     takes_a_float_for_a_rank, ends_itself, fails_while_another_waits],
    ids=lambda answer: answer.__name__,
)  # fmt: skip
def test_errors_of_ranks_read_the_same_and_leave_no_thread(answer, no_thread_is_left):
    there = assert_same(on_two, answer)
    assert there.raised and not there.facts


def test_a_rank_that_never_ends_is_ended_and_leaves_no_thread(no_thread_is_left):
    def answer(rank):
        while rank == 1:
            pass

    def probe(answer, device, seed):
        yield "found", simulate(called, 2, FREE, answer, timeout=0.5).results

    found = outcome(exercise_of(probe), answer)
    assert found.raised.kind == "RankError" and "not all ranks returned" in found.raised.text


def copy_of_rank_0(tensor):
    if dist.get_rank() == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)


def server():
    """The server of the rank that runs in this thread, as learner's code may find it."""
    return dist.group.WORLD.ask.__self__


def claims_to_have_sent(tensor):
    if dist.get_rank() == 0:
        dist.group.WORLD.ask = lambda *asked: True
    copy_of_rank_0(tensor)


def says_that_it_is_through(tensor):
    if dist.get_rank() == 0:
        server().link.send({"value": None, "random": [torch.get_rng_state()]})
    else:
        dist.recv(tensor, 0)


def sends_after_its_end(tensor):
    mine = server()
    copy_of_rank_0(tensor)
    send = ("list", [99, "send", ("list", [("list", [torch.ones(3)]), 1, 0]), ("dict", [])])
    message = {"back": 0, "what": "call", "name": None, "args": [("list", [send])], "kwargs": {}}
    message |= {"changed": [], "noted": None, "random": torch.get_rng_state()}

    def later():
        time.sleep(0.02)
        with contextlib.suppress(Exception):
            for _ in range(3):
                mine.link.send(message)

    threading.Thread(target=later, daemon=True).start()


def asks_for_what_is_no_operation(tensor):
    asked = [([[1, name, [], {}]],) for name in ("__class__", "inner", "size", "log", 3, None)]
    asked += [([["1", "send", [[tensor], 1, 0], {}]],), ([[1]],), (3,), ([], "__class__", 0), ([], "wait", -1)]
    for arguments in asked:
        with contextlib.suppress(AttributeError, TypeError, ValueError, KeyError):
            assert server().ask_back("call", 0, None, arguments) is None, arguments
    for what in ("_works", "_works.clear", "__init__"):
        with contextlib.suppress(AttributeError):
            server().ask_back("get", 0, what)
            return
    copy_of_rank_0(tensor)


def sends_what_is_no_tensor(tensor):
    for tensors in ([3], ["x" * 99], [], None, 7):
        with contextlib.suppress(Exception):
            server().ask_back("call", 0, None, ([[1, "send", [tensors, 1, 0], {}]],))
            return
    copy_of_rank_0(tensor)


HARMLESS = asks_for_what_is_no_operation, sends_what_is_no_tensor, sends_after_its_end
LYING = claims_to_have_sent, says_that_it_is_through


def copied(answer, device, seed):
    """A probe: what two ranks hold after rank 0 has sent it to rank 1, and what was sent."""
    calls = calls_in_ranks(answer, 2, {"one": (torch.arange(6.0).view(2, 3), whole, ())})["one"]
    yield "held", [call.tensor for call in calls]
    yield "sent", [call.sends for call in calls]


@pytest.mark.parametrize("answer", HARMLESS + LYING, ids=lambda answer: answer.__name__)
def test_what_a_rank_says_of_messages_does_not_make_them(answer):
    honest, seen = exercise_of(copied).outcome(copy_of_rank_0, CPU, 0), outcome(exercise_of(copied), answer)
    assert honest.same(seen) == (answer in HARMLESS), seen


def test_a_rank_says_where_its_code_is():
    def answer(rank, look):
        look()
        return dist.recv(torch.zeros(1)) if rank else dist.send(torch.zeros(1), 1)

    def probe(answer, device, seed):
        look = of_the_checks(lambda: seen.append(virtual_rank().state()))
        seen = []
        yield "found", simulate(called, 2, FREE, answer, look).results
        yield "seen", seen

    seen = outcome(exercise_of(probe), answer).facts["seen"]
    assert re.fullmatch(r"rank 0 is in line \d+ of test_remote_ranks.py: look\(\)", seen[0])


def test_a_process_that_ends_in_a_rank_is_told():
    found = outcome(exercise_of(on_two), lambda rank: os._exit(1))
    assert found.raised and "ended the process" in found.raised.text


def test_a_rank_has_the_works_of_its_own_group_alone():
    with pytest.raises(AttributeError):
        Operations()([[1, "works", [], {}]])
    with pytest.raises(KeyError):
        Operations()([], "wait", 0)


def test_bytes_of_a_collective_are_counted_where_the_probe_runs():
    def lies(value):
        dist.all_reduce(value)
        dist.group.WORLD.traffic = []
        return value.sum()

    def probe(answer, device, seed):
        ((_, calls, size), *_) = results_in_ranks(answer, [(torch.ones(5),), (torch.ones(5),)])[0]
        yield "calls and bytes", (calls, size)

    assert outcome(exercise_of(probe), lies).facts == {"calls and bytes": (1, 20)}
