"""Sharded layers: DDP's and fully_shard's weights, messages and clocks by their closed forms."""

import pytest
import torch

from course.checks import beyond_data_parallel as check
from course.parallel import sharded_layers
from course.parallel.collectives import simulate_collectives
from course.parallel.distributed import run_ranks
from course.parallel.network import Network


def own_answers(*shard):
    """The references as the Answers of a sharded training, with another `shard` than a float32 one."""
    exercises = check.gathered_ahead, check.layer_backward
    return sharded_layers.Answers(*(exercise.reference() for exercise in exercises), *shard)


@pytest.mark.parametrize("n", [4, 8])
def test_sharded_layers_reach_the_weights_of_one_process_and_send_exactly_three_halves(n):
    whole = sharded_layers.trained_on_virtual_ranks(n, own_answers(), steps=2)
    assert whole.difference < 1e-6 < whole.moved
    assert whole.sent == 1.5 * sharded_layers.ddp_bytes(n)
    with_masters = own_answers(check.MasterShard.reference())
    half = sharded_layers.trained_on_virtual_ranks(n, with_masters, steps=2)
    assert half.sent == sharded_layers.ddp_bytes(n)
    assert 1e-6 < half.difference < 0.01 * half.moved
    alone = sharded_layers.trained_on_virtual_ranks(n, own_answers(sharded_layers.RoundedShard), steps=2)
    assert alone.sent == half.sent
    assert alone.difference > 50 * half.difference


def test_answers_and_fully_shard_reach_the_weights_of_ddp_on_two_ranks():
    for found in run_ranks(sharded_layers.compared_with_torch, 2, own_answers(), 3, backend="gloo"):
        assert len(found.differences) == 2 and max(found.differences.values()) < 1e-6
        assert found.kept == 0.5


def test_small_steps_are_lost_in_bfloat16_and_not_in_float32():
    assert sharded_layers.unchanged_share(torch.float32) < 0.05 < sharded_layers.unchanged_share(torch.bfloat16)


@pytest.mark.parametrize("factor", [0.25, 1.0, 2.0])
def test_a_gather_one_layer_ahead_takes_the_predicted_time_and_two_layers(factor):
    wire = Network(0.0, sharded_layers.BALANCED.bandwidth * factor)
    predicted = check.forward_seconds.reference()(5, 1 / factor, sharded_layers.COMPUTE)
    ways = {"waiting": sharded_layers.gathered_when_needed, "ahead": check.gathered_ahead.reference()}
    for way, layers in (("waiting", 1), ("ahead", 2)):
        run = simulate_collectives(sharded_layers.timed_forward, 4, wire, ways[way], 5)
        bars, live = run.results[0]
        assert round(run.seconds, 9) == predicted[way]
        assert live == layers * sharded_layers.LAYER_BYTES
        assert len(bars) == 10
