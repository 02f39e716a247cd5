"""Ranks on a virtual network: the values of real ranks, times that follow from the model, and every way to end."""

import threading

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from course.errors import CourseError
from course.notebook.solutions import load_solutions
from course.parallel.distributed import RankError, run_ranks
from course.parallel.messages import exchange
from course.parallel.network import Machines, Network, advance, now, simulate
from course.parallel.positions import position

FREE = Network(latency=0.0, bandwidth=1000.0)  # 1 ms per byte


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No thread is left, and torch.distributed knows no group."""
    before = threading.active_count()
    yield
    assert threading.active_count() == before
    assert not dist.is_initialized()


def answers():
    return load_solutions("02_data_parallel")


def all_reduced(rank, world_size, all_reduce, length, device="cpu"):
    x = torch.arange(length, dtype=torch.float32, device=device) + rank
    all_reduce(x)
    return x


def trees(x):
    answers().reduce_tree(x, 0)
    answers().broadcast_tree(x, 0)


def naive(x):
    answers().reduce_naive(x, 0)
    answers().broadcast_naive(x, 0)


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_ranks_hold_the_sum(world_size):
    for all_reduce in (answers().ring_all_reduce, trees, naive):
        for x in run_ranks(all_reduced, world_size, all_reduce, 24, network=FREE):
            assert torch.equal(x, world_size * torch.arange(24) + sum(range(world_size)))


@pytest.mark.parametrize("world_size", [2, 8, 64])
def test_times_are_those_of_the_formulas(world_size):
    network, n_bytes = Network(latency=0.5, bandwidth=1e3), 4 * 64 * 3
    predicted = answers().all_reduce_seconds(n_bytes, world_size, network.latency, network.bandwidth)
    variants = {"naive": naive, "tree": trees, "ring": answers().ring_all_reduce}
    variants["doubling"] = answers().halving_doubling
    for name, all_reduce in variants.items():
        run = simulate(all_reduced, world_size, network, all_reduce, 64 * 3, "meta")  # values take no time
        assert run.seconds == pytest.approx(predicted[name]), name


def test_ranks_of_a_machine_share_its_card_and_not_their_wires():
    def to(distance):
        """Ranks 0 to `distance` each send to the rank that is so far away."""

        def send(rank, world_size):
            if rank < distance:
                dist.send(torch.ones(25), rank + distance)
            elif rank < 2 * distance:
                dist.recv(torch.ones(25), rank - distance)
            return now()

        return send

    machines = Machines(latency=0.0, bandwidth=1e4, ranks_per_machine=2, card=1e3)
    assert max(run_ranks(to(2), 4, network=machines)) == pytest.approx(0.2)  # one after the other
    assert max(run_ranks(to(1), 4, network=machines)) == pytest.approx(0.01)


def test_a_ring_suits_a_shared_card_better_than_doubling():
    machines, n_bytes = Machines(latency=0.0, bandwidth=1e9, ranks_per_machine=4, card=1e6), 4 * 16 * 1000
    ring, doubling = answers().ring_all_reduce, answers().halving_doubling
    seconds = [simulate(all_reduced, 16, machines, f, n_bytes // 4, "meta").seconds for f in (ring, doubling)]
    assert seconds[0] == pytest.approx(2 * 15 / 16 * n_bytes / 1e6, rel=0.01)
    assert seconds[1] == pytest.approx(2 * (4 / 2 + 4 / 4) * n_bytes / 1e6, rel=0.01)


def test_a_rank_sends_one_message_at_a_time_and_receives_one():
    def everybody_to_everybody(rank, world_size):
        others = [r for r in range(world_size) if r != rank]
        requests = [dist.isend(torch.ones(25), other) for other in others]
        requests += [dist.irecv(torch.ones(25), other) for other in others]
        for request in requests:
            request.wait()
        return now()

    assert run_ranks(everybody_to_everybody, 2, network=FREE) == pytest.approx([0.1, 0.1])
    by_source = {}
    for message in simulate(everybody_to_everybody, 4, FREE).messages:
        by_source.setdefault(message.source, []).append((message.start, message.end))
    for spans in by_source.values():
        assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))


def test_a_late_receiver_delays_the_message_but_not_computing():
    def late(rank, world_size):
        x = torch.ones(25)
        if rank:
            advance(1.0)
            dist.recv(x, 0)
        else:
            request = dist.isend(x, 1)
            advance(0.5)
            request.wait()
        return now()

    assert run_ranks(late, 2, network=FREE) == pytest.approx([1.1, 1.1])


def test_ranks_that_wait_for_each_other_fail_at_once():
    def everybody_sends(rank, world_size):
        if rank < 2:
            dist.send(torch.ones(3), 1 - rank)

    with pytest.raises(RankError, match=r"(?s)rank 0 waits in send, line \d+ of test_network.*rank 2 has returned"):
        run_ranks(everybody_sends, 3, network=FREE)


def test_an_endless_rank_is_ended():
    def endless(rank, world_size):
        while True:
            pass

    with pytest.raises(RankError, match="(?s)not all ranks returned within 0.2 seconds.*rank 0 is in line"):
        run_ranks(endless, 2, network=FREE, timeout=0.2)


def test_what_a_rank_raises_reaches_the_caller():
    def fails(rank, world_size):
        dist.barrier()
        if rank == 1:
            raise KeyError("mine")
        dist.recv(torch.ones(1), 1)

    with pytest.raises(KeyError, match="mine") as info:
        run_ranks(fails, 2, network=FREE)
    assert info.value.rank == 1


def test_ends_of_different_length_are_refused():
    def uneven(rank, world_size):
        x = torch.ones(2 + rank)
        dist.recv(x, 0) if rank else dist.send(x, 1)

    with pytest.raises(ValueError, match="rank 0 sends 8 bytes, rank 1 receives into 12"):
        run_ranks(uneven, 2, network=FREE)


def test_each_rank_has_its_own_arguments():
    def adds(rank, world_size, x):
        x += rank
        return x.item()

    x = torch.zeros(())
    assert run_ranks(adds, 3, x, network=FREE) == [0, 1, 2] and x == 0


def test_collectives_of_the_library_are_refused():
    with pytest.raises(CourseError, match="carries send, recv, isend and irecv"):
        run_ranks(lambda rank, world_size: dist.all_reduce(torch.ones(1)), 2, network=FREE)
    with pytest.raises(CourseError, match="outside a virtual rank"):
        now()


@pytest.mark.parametrize(
    "frames, words",
    [
        ([], "rank 1 does not say where it is: it may not have started yet."),
        ([(c10d.__file__, 9, "barrier")], "rank 1 waits in barrier, outside your code."),
    ],
)
def test_a_rank_that_is_in_no_line_of_the_learner_says_so(frames, words):
    started = [(threading.__file__, 5, "run"), ("<string>", 1, "<module>")]  # how Python starts a process
    assert position(1, frames + started) == words


def test_two_ranks_exchange_their_tensors():
    def exchanged(rank, world_size):
        mine = torch.tensor([float(rank)])
        theirs = torch.empty(1)
        exchange(mine, 1 - rank, theirs, 1 - rank)
        return theirs.item()

    assert run_ranks(exchanged, 2, network=FREE) == [1.0, 0.0]
