"""Unit 07, part 5: its references against torch, closed forms and one device."""

import itertools
import math
import random

import pytest
import torch
from torch.nn import functional as F

from course.checks import beyond_data_parallel as check
from course.parallel import context, experts, failures
from course.parallel.distributed import run_ranks
from course.parallel.failures import LongRun
from course.parallel.network import Network, simulate
from course.plots import beyond_data_parallel as plots
from course.training import local_steps, resharding
from course.training.local_steps import Outer

WIRE = Network(0.0, 1e9)
RUN = LongRun(work=1e6, saving=60, restart=300, between_failures=5e6, devices=100)


def largest_difference(one, other):
    return (one - other).abs().max().item()


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_merged_parts_of_any_split_are_torchs_attention(ranks):
    head = context.random_head(tokens=12, dim=4, seed=ranks, scale=3)
    whole = F.scaled_dot_product_attention(*head, is_causal=True)
    for seed in range(10):
        parts = context.causal_parts(head, context.random_shares(12, ranks, seed))
        merged = check.merge_parts.reference()(*context.stacked(parts))
        assert largest_difference(merged, whole) < 1e-6


def test_a_ring_gives_torchs_attention_and_sends_all_keys_but_one_share():
    merge, zigzag = check.merge_parts.reference(), check.zigzag.reference()
    head = context.random_head(tokens=48, dim=4)
    whole = F.scaled_dot_product_attention(*head, is_causal=True)
    for ranks, share in itertools.product((2, 4, 8), (context.contiguous, zigzag)):
        shares = [share(rank, ranks, 48) for rank in range(ranks)]
        ring = simulate(context.ring_attention, ranks, WIRE, merge, head, shares)
        assert largest_difference(torch.cat(ring.results), whole[torch.cat(shares)]) < 1e-6
        assert sum(message.n_bytes for message in ring.messages) == (ranks - 1) * 2 * head.k.nbytes


def test_a_ring_of_real_ranks_gives_torchs_attention():
    head = context.random_head(tokens=8, dim=4)
    shares = [context.contiguous(rank, 2, 8) for rank in range(2)]
    found = run_ranks(context.ring_attention, 2, check.merge_parts.reference(), head, shares, backend="gloo")
    whole = F.scaled_dot_product_attention(*head, is_causal=True)
    assert largest_difference(torch.cat(found), whole) < 1e-6


@pytest.mark.parametrize("ranks", range(1, 9))
def test_zigzag_gives_each_rank_its_part_of_the_triangle_in_each_step(ranks):
    tokens = 6 * ranks
    shares = [check.zigzag.reference()(rank, ranks, tokens) for rank in range(ranks)]
    assert torch.equal(torch.cat(shares).sort().values, torch.arange(tokens))
    pairs = context.pairs_per_step(shares)
    assert pairs.sum().item() == tokens * (tokens + 1) // 2
    assert all(len(of_step.unique()) == 1 for of_step in pairs)


def test_contiguous_shares_give_the_last_rank_nearly_twice_the_mean():
    pairs = context.pairs_per_step([context.contiguous(rank, 4, 64) for rank in range(4)]).sum(0)
    assert pairs.tolist() == [16 * 17 // 2 + 256 * rank for rank in range(4)]


def test_dalys_interval_is_the_best_of_his_formula():
    rng = random.Random(0)
    for _ in range(20):
        saving, between, devices = rng.uniform(10, 300), rng.uniform(1e7, 1e8), rng.randrange(1, 2000)
        run = LongRun(1e6, saving, 0, between, devices)
        best = check.save_interval.reference()(saving, between, devices)
        least = min(failures.expected_seconds(run, best * 1.01**step) for step in range(-200, 201))
        assert failures.expected_seconds(run, best) < 1.001 * least


def test_simulated_runs_take_what_the_formula_expects():
    simulated = failures.mean_seconds(RUN, 2500, range(100))  # 400 intervals
    assert simulated == pytest.approx(failures.expected_seconds(RUN, 2500), rel=0.01)
    never = LongRun(work=1000, saving=10, restart=5, between_failures=1e15, devices=1)
    assert failures.simulated_seconds(never, 300, seed=0) == 1000 + 4 * 10


def test_the_slots_of_tokens_are_distinct_and_drop_exactly_what_is_too_much():
    for seed, capacity in itertools.product(range(10), (1, 3, 8)):
        scores = experts.random_tokens(0, tokens=40, dim=1, experts=5, seed=seed).scores
        slots = check.route_tokens.reference()(scores, capacity)
        kept = slots[slots >= 0]
        assert len(kept.unique()) == len(kept)
        wanted = scores.argmax(1).bincount(minlength=5)
        assert len(kept) == wanted.clamp(max=capacity).sum()


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_experts_on_ranks_compute_the_layer_of_one_device_with_bytes_by_formula(ranks):
    tokens, dim, n_experts, capacity = 12, 4, 8, 2
    layer = simulate(
        experts.expert_layer, ranks, WIRE, check.route_tokens.reference(), tokens, dim, n_experts, capacity
    )
    for rank, (slots, outputs) in enumerate(layer.results):
        given = experts.random_tokens(rank, tokens, dim, n_experts)
        assert largest_difference(outputs, experts.on_one_device(given, slots)) < 1e-6
    sent = sum(message.n_bytes for message in layer.messages)
    assert sent == 2 * (ranks - 1) * n_experts * capacity * dim * 8


def test_each_number_of_a_checkpoint_is_read_once():
    pieces = check.pieces_to_read.reference()
    for numbers, old, new in itertools.product((1, 7, 50), range(1, 9), range(1, 9)):
        assert resharding.reads_each_number_once(numbers, old, new, pieces)
    assert not resharding.reads_each_number_once(7, 2, 3, lambda *case: [(0, 0, 3)])


def test_a_training_continues_from_shards_of_another_number_of_ranks():
    uninterrupted, resumed = resharding.weights_after_a_restart(check.pieces_to_read.reference(), 6, 4)
    assert torch.equal(uninterrupted, resumed)


def test_one_local_step_is_ddp():
    of_ddp = run_ranks(local_steps.by_ddp, 2, 4, backend="gloo")
    mine = local_steps.trained(check.outer_step.reference(), Outer(1, 1.0, 0.0), 2, 4)
    assert largest_difference(mine, of_ddp[0]) < 1e-6
    assert largest_difference(mine, of_ddp[1]) < 1e-6


def test_shifts_of_ranks_have_one_length_and_are_alike_or_not():
    for alike, different in ((True, 1), (False, 4)):
        shifts = local_steps.rank_shifts(3.0, alike)
        assert torch.allclose(shifts.norm(dim=1), torch.tensor(3.0, dtype=torch.float64))
        assert len(shifts.unique(dim=0)) == different
    plain = local_steps.batch((0, 1, 2))
    moved = local_steps.batch((0, 1, 2), shift=shifts[1])
    assert largest_difference(moved[0] - plain[0], shifts[1]) < 1e-12


def test_outer_steps_are_those_of_torchs_sgd():
    start = torch.linspace(-1, 1, 5, dtype=torch.float64)
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([weights], lr=0.7, momentum=0.9, nesterov=True)
    mine, velocity = start, torch.zeros_like(start)
    for seed in range(3):
        ends = mine + torch.randn(4, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        weights.grad = mine - ends.mean(0)
        optimizer.step()
        mine, velocity = check.outer_step.reference()(mine, ends, velocity, 0.7, 0.9)
        assert largest_difference(mine, weights.detach()) < 1e-12


def test_figures_draw_a_bar_per_rank_and_a_dot_per_interval():
    figure = plots.work_per_rank({"contiguous": torch.tensor([1, 3]), "zigzag": torch.tensor([2, 2])}, "title")
    assert [len(ax.patches) for ax in figure.axes] == [2, 2]
    figure = plots.save_intervals({0.5: 1.2, 1: 1.1}, {0.5: 1.3, 1: 1.1}, "title")
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [2, 2]
    assert math.isclose(figure.axes[0].get_ylim()[0], 1)


def test_tokens_are_kept_as_far_as_they_fit():
    scores = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])  # two tokens want expert 1
    assert experts.keeps_as_many_as_fit(scores, torch.tensor([1, -1, 0]), capacity=1)
    assert not experts.keeps_as_many_as_fit(scores, torch.tensor([1, -1, -1]), capacity=1)  # one too few
    assert not experts.keeps_as_many_as_fit(scores, torch.tensor([1, 1, 0]), capacity=1)  # a shared slot
