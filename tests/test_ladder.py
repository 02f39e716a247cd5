"""The ladder of unit 06: what each rung changes, what a profile counts, and which losses are paired."""

import math

import pytest
import torch
from torch.nn import functional as F

from course.measure import step_shares
from course.measure.step_shares import kind_of
from course.training import ladder
from course.training.ladder import Rung

pytestmark = pytest.mark.check
CPU = torch.device("cpu")


def small_gpt():
    return ladder.gpt(2, 8, 16, 2, 3, CPU)


def small_cnn():
    images = torch.randn(8, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(8)
    return ladder.cnn(images[:4], labels[:4], 4, (images[4:], labels[4:]))


def test_a_network_holds_out_its_last_batch_and_predicts_the_next_token():
    network = small_gpt()
    assert len(network.batches) == 3 and len(small_cnn().batches) == 1
    (tokens, positions), targets = network.held
    assert torch.equal(tokens[:, 1:], targets[:, :-1]) and positions.tolist() == list(range(8))
    follows = (targets - tokens) % ladder.VOCABULARY
    assert set(follows.flatten().tolist()) <= {1, 2, 3}


@pytest.mark.parametrize("is_causal", [True, False])
def test_written_out_attention_equals_the_fused_one(is_causal):
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4, generator=rng) for _ in range(3))
    mask = None if is_causal else torch.tensor([[True] * 5, *[[True, False, True, False, True]] * 4])
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)
    torch.testing.assert_close(ladder.written_out(q, k, v, mask, is_causal), expected)


@pytest.mark.parametrize("make", [small_gpt, small_cnn])
def test_all_changes_but_16_bits_make_the_same_steps(make):
    network = make()
    before = network.changes[: network.changes.index(ladder.TF32)]
    plain, changed = (Rung(network, changes, CPU) for changes in ((), before))
    assert plain.done == changed.done == ladder.WARM_UP_STEPS
    assert plain.held_loss(network.held) == pytest.approx(changed.held_loss(network.held), rel=1e-3)


def test_each_change_reaches_the_model_that_it_concerns():
    gpt = Rung(small_gpt(), (), CPU), Rung(small_gpt(), (ladder.SDPA,), CPU)
    assert [rung.model.blocks[1].attend for rung in gpt] == [ladder.written_out, F.scaled_dot_product_attention]
    lean = Rung(small_cnn(), ladder.CNN_CHANGES[:3], CPU)
    assert lean.model.convolutions[0].bias is None and lean.optimizer.defaults["fused"]
    assert lean.model.convolutions[4].weight.is_contiguous(memory_format=torch.channels_last)


def test_what_a_machine_lacks_is_told_and_the_next_rung_is_measured(monkeypatch):
    monkeypatch.setenv("COURSE_SCALE", "smoke")
    rungs = ladder.ladder(small_gpt(), CPU)
    reasons = {name: rung.reason for name, rung in rungs.items() if rung.reason}
    assert set(reasons) == {ladder.TF32, ladder.COMPILED, ladder.GRAPHS}
    bounds = ladder.bounds(rungs)
    assert list(bounds) == [ladder.SDPA, ladder.FUSED, ladder.HALF] and min(bounds.values()) > 1


def test_differences_of_losses_are_paired_and_rounding_is_their_control(monkeypatch):
    monkeypatch.setenv("COURSE_SCALE", "smoke")
    network = small_gpt()
    apart = ladder.loss_differences(network, ladder.ladder(network, CPU), 5, 6, CPU)
    assert list(apart) == [ladder.ROUNDING, ladder.SDPA, ladder.FUSED, ladder.HALF]
    assert abs(apart[ladder.ROUNDING].estimate) < 1e-3 and math.isfinite(apart[ladder.HALF].high)
    assert apart[ladder.HALF].estimate != 0


def test_kinds_of_operations_are_told_by_their_names():
    names = {
        "aten::mkldnn_convolution": step_shares.CONVOLUTIONS,
        "aten::convolution_backward": step_shares.CONVOLUTIONS,
        "aten::addmm": step_shares.PRODUCTS,
        "aten::mm": step_shares.PRODUCTS,
        "aten::bmm": step_shares.ATTENTION,
        "aten::_softmax": step_shares.ATTENTION,
        "aten::_log_softmax": step_shares.POINTWISE,
        "aten::native_batch_norm": step_shares.NORMS,
        "aten::max_pool2d_with_indices_backward": step_shares.POOLING,
        "aten::add_": step_shares.POINTWISE,
    }
    assert {name: kind_of(name) for name in names} == names


def test_shares_add_up_and_what_the_optimizer_runs_is_its_own():
    weight = torch.ones(64, 64, requires_grad=True)
    optimizer = torch.optim.Adam([weight])

    def step():
        optimizer.zero_grad()
        (weight @ weight).sum().backward()
        optimizer.step()

    shares = step_shares.shares_of(step, CPU)
    assert sum(shares.values()) == pytest.approx(1) and shares[step_shares.OPTIMIZER] > 0
    assert shares[step_shares.PRODUCTS] > 0 and step_shares.POOLING not in shares


def test_a_layer_alone_runs_in_both_layouts():
    for usual, last in ladder.layout_pairs(2, CPU).values():
        usual()
        last()
    for run in ladder.attention_pair(4, 16, 16, CPU):
        run()
