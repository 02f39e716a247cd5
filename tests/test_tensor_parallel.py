"""Collectives of virtual ranks, and layers split over ranks: equal to torch's, counted to the byte."""

import pytest
import torch
import torch.distributed as dist

from course.checks import beyond_data_parallel as check
from course.errors import CourseError
from course.parallel import collectives
from course.parallel.collectives import simulate_collectives
from course.parallel.distributed import run_ranks
from course.parallel.network import Network, advance, now
from course.training import tensor_parallel

FREE = Network(0.0, 1e9)


def own_answers():
    """The references as the Answers of a split block."""
    exercises = check.copy_to_ranks, check.sum_over_ranks, check.SplitMLP, check.head_rows
    return tensor_parallel.Answers(*(exercise.reference() for exercise in exercises))


def all_collectives(rank, world_size):
    tensors = [torch.arange(5.0) + rank, torch.full((3,), float(rank))]
    dist.all_reduce(tensors[0])
    dist.broadcast(tensors[1], src=1)
    shard = torch.tensor([10.0 * rank, 1.0])
    gathered = collectives.start_all_gather(shard).wait()
    scattered = collectives.start_reduce_scatter(torch.arange(2.0 * world_size) * (rank + 1)).wait()
    return [each.tolist() for each in (*tensors, gathered, scattered)]


def test_collectives_of_virtual_ranks_are_those_of_gloo():
    virtual = simulate_collectives(all_collectives, 3, FREE).results
    assert virtual == run_ranks(all_collectives, 3, backend="gloo")


@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_virtual_all_reduce_sends_the_bytes_of_a_ring(n):
    sent = simulate_collectives(lambda *_: dist.all_reduce(torch.ones(5 * n)), n, FREE).messages
    of_rank = [sum(message.n_bytes for message in sent if message.source == rank) for rank in range(n)]
    assert of_rank == [2 * (n - 1) * 5 * 4] * n


def test_a_gather_travels_while_a_virtual_rank_computes():
    def clocks(rank, world_size):
        work = collectives.start_all_gather(torch.ones(2))  # 1 + 8 / 8 seconds per message
        started = now()
        advance(1.5)
        work.wait()
        return started, now()

    assert simulate_collectives(clocks, 2, Network(1.0, 8.0)).results == [(0, 2), (0, 2)]


def test_virtual_ranks_refuse_what_is_no_sum():
    with pytest.raises(CourseError, match="divide by the world size"):
        simulate_collectives(lambda *_: dist.all_reduce(torch.ones(2), dist.ReduceOp.MAX), 2, FREE)


@pytest.mark.parametrize("n", [4, 8])
def test_a_split_block_is_the_whole_one_with_four_sums_of_exact_size(n):
    run = simulate_collectives(tensor_parallel.compared_block, n, FREE, own_answers(), 1, 16, 8)
    numbers = tensor_parallel.COLUMNS * 16
    for found in run.results:
        assert max(found.differences.values()) < 1e-12
        two_sums = [("all_reduce", numbers * tensor_parallel.NUMBER_BYTES)] * 2
        assert list(found.in_forward) == list(found.in_backward) == two_sums
    predicted = check.split_bytes.reference()(tensor_parallel.COLUMNS, 16, 1, n)["tensor"]
    sent = sum(message.n_bytes for message in run.messages)
    assert sent / n == predicted * tensor_parallel.NUMBER_BYTES / 4


def split_twice(rank, world_size, answers):
    ours = tensor_parallel.compared_block(rank, world_size, answers, rows=1)
    return ours.differences, tensor_parallel.with_parallelize_module(rank, world_size, rows=1)


def test_references_and_parallelize_module_compute_the_same_block_on_two_ranks():
    for ours, torchs in run_ranks(split_twice, 2, own_answers(), backend="gloo"):
        assert ours.keys() == torchs.keys()
        assert max(*ours.values(), *torchs.values()) < 1e-6


def test_units_of_one_seed_stay_equal_and_those_of_several_do_not():
    for seeds, different in (([5, 5], 128), ([5, 6], 256)):
        shards = simulate_collectives(tensor_parallel.trained_shards, 2, FREE, own_answers(), seeds, 2).results
        assert len(torch.cat(shards).unique(dim=0)) == different


def test_a_split_mlp_that_draws_its_own_parts_is_whole_in_one_process():
    whole = tensor_parallel.mlp_of_ranks([1, 2, 3, 4])
    assert whole[0].weight.shape == (tensor_parallel.HIDDEN, tensor_parallel.INPUTS)
    torch.manual_seed(2)
    second = torch.nn.Linear(tensor_parallel.INPUTS, tensor_parallel.HIDDEN // 4)
    assert torch.equal(whole[0].weight.chunk(4)[1], second.weight)
    assert tensor_parallel.imitation_loss([1, 2], run=0, steps=2) > 0
