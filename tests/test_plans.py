"""The closed forms of unit 07, part 1, equal what torch counts."""

import functools
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from course.measure.saved_tensors import peak_bytes_saved
from course.notebook.solutions import load_solutions
from course.plots import beyond_data_parallel as plots
from course.training import plans
from course.training.plans import JOBS, Gpt, Plan

GPTS = (
    Gpt(vocabulary=96, width=64, layers=3, heads=4, columns=24),
    Gpt(vocabulary=33, width=24, layers=2, heads=2, columns=7),
)


@functools.cache
def answers():
    return load_solutions("07_beyond_data_parallel")


@functools.cache
def costs():
    unit = answers()
    return plans.Costs(unit.step_flops, unit.state_bytes, unit.activation_bytes, unit.sent_bytes)


@pytest.mark.parametrize("gpt", GPTS)
@pytest.mark.parametrize("rows", [1, 3])
def test_flops_and_parameters_are_those_that_torch_counts(gpt, rows):
    model = gpt.model()
    assert gpt.parameters == sum(weights.numel() for weights in model.parameters())
    assert answers().step_flops(gpt, rows) == plans.counted_flops(lambda: gpt.loss(model, rows).backward())


@pytest.mark.parametrize("gpt", GPTS)
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_activations_are_those_that_hooks_count(gpt, checkpointing, micro_batches):
    model = gpt.model("cpu")
    plan = Plan(micro_batches=micro_batches, checkpointing=checkpointing)

    def micro_batch(x):
        for block in model.blocks:
            x = checkpoint(block, x, None, use_reentrant=True) if checkpointing else block(x, None)
        x.sum().backward()

    def step():
        for _ in range(micro_batches):
            micro_batch(torch.randn(2, gpt.columns, gpt.width, requires_grad=True))

    saved = peak_bytes_saved(step, model.parameters())
    assert saved == answers().activation_bytes(gpt, 2 * micro_batches, plan, size=4)
    x = torch.randn(2, gpt.columns, gpt.width, requires_grad=True)
    assert saved == plans.saved_by_blocks(model, x, checkpointing)


class TensorPart(nn.Module):
    """What one of t tensor ranks computes of a block, without its messages."""

    def __init__(self, gpt, ranks):
        super().__init__()
        d, self.heads = gpt.width, gpt.heads // ranks
        self.norm_1, self.norm_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d // ranks), nn.Linear(d // ranks, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d // ranks), nn.GELU(), nn.Linear(4 * d // ranks, d))

    def forward(self, x):
        split = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0)
        q, k, v = split.transpose(-3, -2)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(-3, -2).flatten(-2))
        return x + self.mlp(self.norm_2(x))


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_tensor_rank_saves_what_the_closed_form_says(ranks):
    gpt = GPTS[0]
    part = TensorPart(gpt, ranks)
    x = torch.randn(2, gpt.columns, gpt.width, requires_grad=True)
    saved = peak_bytes_saved(lambda: part(x).sum().backward(), part.parameters())
    one_block = Gpt(gpt.vocabulary, gpt.width, 1, gpt.heads, gpt.columns)
    assert saved == answers().activation_bytes(one_block, 2, Plan(tensor=ranks), size=4)


def test_a_storage_that_is_freed_and_saved_again_counts_once_at_a_time():
    x = torch.randn(16, requires_grad=True)

    def twice():
        for _ in range(2):
            x.exp().sum().backward()

    assert peak_bytes_saved(twice, []) == 16 * 4
    assert peak_bytes_saved(lambda: (x.exp() * x.exp()).sum().backward(), []) == 2 * 16 * 4
    assert peak_bytes_saved(lambda: (x * x).sum().backward(), [x]) == 0


def test_cuts_are_all_plans_of_the_devices_and_no_plan_twice():
    job = JOBS["7B on eight A100"]
    found = list(plans.cuts(job))
    assert len(set(found)) == len(found)
    assert all(plan.data * plan.tensor * plan.pipeline == job.devices for plan in found)
    of_three = {plan.micro_batches for plan in plans.cuts(JOBS["175B on 1,024 A100"]) if plan.data == 64}
    assert of_three == {1, 2, 3, 4, 6, 8, 12, 24}
    assert {(plan.data, plan.tensor, plan.pipeline) for plan in found} == {
        (a, b, 8 // a // b) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8) if a * b <= 8
    }
    assert max(plan.micro_batches for plan in found if plan.data == 8) == job.rows // 8


def test_seconds_add_up():
    """Worked by hand: half of the peak, a bubble, messages that hide and messages that do not.

    They hide behind all passes in stage 3, all backward passes in stage 2, and else the last one.
    """
    gpt = GPTS[0]
    known = {"data": 0.0, "tensor": 0.0, "pipeline": 0.0}
    made = plans.Costs(lambda gpt, rows: 100.0, dict, lambda *_: 0.0, lambda *_: known)
    job = plans.Job(gpt, 8, devices=4, per_node=2, memory=1, flops=5.0, inside=2.0, between=1.0)
    assert made.seconds(job, Plan(4)) == 10
    assert made.seconds(job, Plan(4, checkpointing=True)) == pytest.approx(40 / 3)
    assert made.seconds(job, Plan(1, pipeline=4, micro_batches=6)) == 15
    known["data"] = 12.0
    assert made.seconds(job, Plan(4, stage=3)) == made.seconds(job, Plan(4, stage=3, micro_batches=2)) == 12
    assert made.seconds(job, Plan(4, stage=2, micro_batches=2)) == pytest.approx(10 + 12 - 20 / 3)
    assert made.seconds(job, Plan(4)) == pytest.approx(10 + 12 - 20 / 3)
    assert made.seconds(job, Plan(4, stage=1, micro_batches=2)) == pytest.approx(10 + 12 - 10 / 3)
    assert made.seconds(job, Plan(4, checkpointing=True)) == pytest.approx(40 / 3 + 12 - 10)
    known.update(tensor=4.0, pipeline=1.0)
    assert made.seconds(job, Plan(4, stage=3)) == 10 + 2 + 1 + 2


def test_a_plan_that_does_not_match_the_cluster_has_no_seconds():
    job = JOBS["65B on 64 H100"]
    with pytest.raises(ValueError, match="has 8 ranks for 64 devices"):
        costs().seconds(job, Plan(8))
    with pytest.raises(ValueError, match="more tensor ranks than the 8 of a node"):
        costs().seconds(job, Plan(tensor=64))


def test_a_plan_and_a_job_are_read_in_words():
    assert str(Plan()) == "1 micro-batch"
    assert str(Plan(8, 2, 4, 1, 16, True)) == "data 8, tensor 2, pipeline 4, ZeRO-1, 16 micro-batches, checkpointing"
    assert str(JOBS["7B on eight A100"]) == (
        "32 layers, 32 heads;   256 ×  2,048 tokens; 75 GB, 312 TFLOP/s; 250 and 20 GB/s"
    )


def test_a_pick_that_cannot_be_used_says_why():
    job = JOBS["7B on eight A100"]
    best_plan = answers().best_plan
    for plan, why in (
        (Plan(8), "needs .* GB of 75"),
        (Plan(4, stage=3, micro_batches=64), "has 4 ranks for 8 devices"),
        (Plan(4, pipeline=2, stage=3, micro_batches=64), "ZeRO-2 or 3 meets a pipeline"),
    ):
        assert costs().best_of(best_plan, job, [plan]) is None
        assert re.search(why, costs().refusal(job, plan))
    fits = Plan(8, stage=3, micro_batches=32)
    assert costs().best_of(best_plan, job, [Plan(8), fits]) == fits


def test_lost_says_what_a_step_takes_beside_its_arithmetic():
    made = plans.Costs(lambda gpt, rows: 30.0, dict, lambda *_: 0.0, lambda *_: {"data": 3, "tensor": 4, "pipeline": 1})
    job = plans.Job(GPTS[0], 8, devices=4, per_node=2, memory=1, flops=5.0, inside=2.0, between=1.0)
    lost = made.lost(job, Plan(1, pipeline=4, micro_batches=6, checkpointing=True))
    assert lost == {"recomputing": 1, "tensor messages": 2, "pipeline messages": 1, "the bubble": 3.5,
                    "data messages": 2.5}  # fmt: skip
    assert made.main_loss(job, Plan(1, pipeline=4, micro_batches=6)) == "the bubble"
    silent = dict.fromkeys(("data", "tensor", "pipeline"), 0.0)
    free = plans.Costs(lambda gpt, rows: 30.0, dict, lambda *_: 0.0, lambda *_: silent)
    assert free.main_loss(job, Plan(4)) == "nothing"


def test_mfu_and_slowdown_follow_from_the_seconds_of_a_step():
    """A plan that loses nothing reaches REACHED; one with checkpointing computes a third more."""
    silent = dict.fromkeys(("data", "tensor", "pipeline"), 0.0)
    free = plans.Costs(lambda gpt, rows: 30.0, dict, lambda *_: 0.0, lambda *_: silent)
    job = plans.Job(GPTS[0], 8, 4, 4, memory=1, flops=1.0, inside=1.0, between=1.0)
    again = Plan(4, checkpointing=True)
    assert free.mfu(job, Plan(4)) == pytest.approx(plans.REACHED)
    assert free.mfu(job, again) == pytest.approx(plans.REACHED * 3 / 4)
    ratios = free.over_best({"a": job, "b": job}, {"a": again, "b": None}, {"a": Plan(4), "b": Plan(4)})
    assert ratios == {"a": pytest.approx(4 / 3)}


def test_every_job_has_a_plan_and_they_are_not_all_alike():
    """Data ranks alone are enough on three of ten clusters; the others need each of the axes."""
    best = {}
    for name, job in JOBS.items():
        best[name] = answers().best_plan(job, list(plans.cuts(job)), costs().n_bytes, costs().seconds)
        assert costs().n_bytes(job, best[name]) <= job.memory
    cut = {(plan.data > 1, plan.tensor > 1, plan.pipeline > 1) for plan in best.values()}
    assert len(cut) >= 5
    assert sum(plan.tensor == plan.pipeline == 1 for plan in best.values()) == 3
    assert {plan.stage for plan in best.values()} >= {0, 1, 3}


def test_figures_show_what_they_are_given():
    job = JOBS["7B on eight A100"]
    held = {str(plan): costs().held(job, plan) for plan in (Plan(8), Plan(8, stage=3))}
    (ax,) = plots.held(held, job.memory, "title").axes
    assert sum(bar.get_width() for bar in ax.patches[:4]) == pytest.approx(costs().n_bytes(job, Plan(8)) / 1e9)
    (ax,) = plots.over_best(list(JOBS), {"your pick": {"65B on 64 H100": 1.5}}, "title").axes
    assert ax.lines[0].get_xydata().tolist() == [[1.5, list(JOBS).index("65B on 64 H100")]]
