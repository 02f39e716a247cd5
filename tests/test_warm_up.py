"""What part 3 of unit 03 trains: stacked transformers, shared scales, tuning, update ratios."""

import math

import pytest
import torch
from torch.nn import functional as F

from course.training import warmed_transformers as warmed
from course.training.optimizer_contest import scheduled_lrs
from course.training.ragged_transformer import Block, PostNormBlock, RaggedTransformer
from course.training.shared_scales import COORDINATE, MODEL, TENSOR, SharedScaleAdam
from course.training.tuned import FIRST_TUNING_SEED, tuned
from course.training.update_ratios import extremes, update_ratios

pytestmark = pytest.mark.check


def test_a_post_norm_block_gives_normalised_tokens_and_a_pre_norm_block_does_not():
    x = 5 * torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0))
    for kind, is_normal in ((PostNormBlock, True), (Block, False)):
        torch.manual_seed(0)
        deviation = kind(16, 4)(x, None).std(-1, unbiased=False)
        assert torch.allclose(deviation, torch.ones(2, 7), atol=1e-3) == is_normal, kind


def test_plain_attention_is_that_of_torch():
    q, k, v = torch.randn(3, 2, 4, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(warmed.plain_attention(q, k, v), theirs)


def test_the_losses_next_to_a_text_are_those_of_counting_models():
    text = warmed.text_of_pairs(3000)
    pairs = torch.zeros(8, 8, 8, dtype=torch.float64)
    for column in range(2, warmed.COLUMNS + 1):
        last_three = text.tokens[:, column - 2 : column + 1].unbind(1)
        pairs.index_put_(last_three, torch.ones(3000, dtype=torch.float64), accumulate=True)
    chances = pairs / pairs.sum(-1, keepdim=True)
    of_pairs = -torch.xlogy(pairs, chances).sum().item()
    counted = (of_pairs + 3000 * math.log(8)) / (3000 * warmed.COLUMNS)
    assert text.table == pytest.approx(counted, abs=0.02)
    assert text.table < text.constant - 0.5 and text.constant < math.log(8)


@pytest.mark.parametrize("post_norm", [True, False])
def test_stacked_seeds_train_as_each_would_alone(post_norm):
    text = warmed.text_of_pairs(40)
    rates = [1e-3, 0.0, 2e-3, 1e-3]
    stacked = warmed.train_seeds(text, rates.__getitem__, 4, 2, layers=2, post_norm=post_norm)
    assert stacked.shape == (4, 2)
    for seed in range(2):
        torch.manual_seed(seed)
        model = RaggedTransformer(8, warmed.DIM, 2, block=PostNormBlock if post_norm else Block)
        optimizer = torch.optim.Adam(model.parameters())
        rng = torch.Generator().manual_seed(0)
        for lr, loss in zip(rates, stacked[:, seed], strict=True):
            optimizer.param_groups[0]["lr"] = lr
            tokens = text.tokens[torch.randint(40, (2, warmed.BATCH), generator=rng)[seed]]
            scores = model(tokens[:, :-1], torch.arange(warmed.COLUMNS))
            alone = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            assert loss.item() == pytest.approx(alone.item(), abs=1e-4)
            optimizer.zero_grad()
            alone.backward()
            optimizer.step()


@pytest.mark.parametrize(("corrects_mean", "size"), [(True, 1.0), (False, 0.1)])
def test_a_new_mean_gradient_moves_by_the_newest_gradient_at_full_size_or_by_a_tenth(corrects_mean, size):
    text = warmed.text_of_pairs(40)
    rates = [0.0, 0.0, 1e-3, 1e-3]
    forgets = dict(new_mean_at=2, corrects_mean=corrects_mean)
    losses = warmed.train_seeds(text, rates.__getitem__, 4, 1, layers=2, **forgets)[:, 0]
    torch.manual_seed(0)
    model = RaggedTransformer(8, warmed.DIM, 2, block=PostNormBlock)
    parameters = list(model.parameters())
    squares = [torch.zeros_like(p) for p in parameters]
    rng = torch.Generator().manual_seed(0)
    for step, loss in enumerate(losses):
        tokens = text.tokens[torch.randint(40, (1, warmed.BATCH), generator=rng)[0]]
        scores = model(tokens[:, :-1], torch.arange(warmed.COLUMNS))
        alone = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        assert loss.item() == pytest.approx(alone.item(), abs=1e-4)
        gradients = torch.autograd.grad(alone, parameters)
        for p, square, gradient in zip(parameters, squares, gradients, strict=True):
            square.lerp_(gradient.square(), 0.001)
            if step == 2:
                p.data -= 1e-3 * size * gradient / ((square / (1 - 0.999**3)).sqrt() + 1e-8)


def test_the_loss_at_the_end_is_the_mean_of_the_last_steps_of_each_seed():
    losses = torch.arange(50.0)[:, None] * torch.tensor([1.0, 2.0])
    assert warmed.at_end(losses) == [39.5, 79.0]


def _moved(make_optimizer):
    """Two tensors after three steps with fixed gradients."""
    rng = torch.Generator().manual_seed(2)
    params = [torch.nn.Parameter(torch.randn(shape, generator=rng)) for shape in ((3, 4), (5,))]
    optimizer = make_optimizer(params)
    for _ in range(3):
        for p, size in zip(params, (1.0, 0.01), strict=True):
            p.grad = size * torch.randn(p.shape, generator=rng)
        optimizer.step()
    return [p.detach() for p in params]


def test_one_scale_per_coordinate_is_adam():
    ours = _moved(lambda params: SharedScaleAdam(params, 0.1, COORDINATE))
    assert all(map(torch.allclose, ours, _moved(lambda params: torch.optim.Adam(params, 0.1))))


def test_a_shared_scale_divides_by_one_number_for_each_tensor_or_for_all():
    gradients = [torch.tensor([3.0, -4.0]), torch.tensor([[0.1]])]
    expected = {
        TENSOR: [gradients[0] / math.sqrt(12.5), torch.ones(1, 1)],
        MODEL: [gradient / math.sqrt(25.01 / 3) for gradient in gradients],
    }
    for scale, steps in expected.items():
        params = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
        optimizer = SharedScaleAdam(params, 1.0, scale)
        for p, gradient in zip(params, gradients, strict=True):
            p.grad = gradient.clone()
        optimizer.step()
        for p, step in zip(params, steps, strict=True):
            assert torch.allclose(-p.detach(), step, atol=1e-5), scale


def test_a_way_is_tuned_with_some_seeds_and_judged_with_others():
    asked = []

    def train(lr, seed):
        asked.append((lr, seed))
        lucky = lr == 3.0 and seed == 1  # would win if the judging seeds chose
        return 9.0 if lucky else -abs(lr - 2) + seed % 2 / 10

    found = tuned(train, (1.0, 2.0, 3.0), seeds=3)
    assert found.best == 2.0 and found.scores == [0.0, 0.1, 0.0]
    assert set(found.tried) == {1.0, 2.0, 3.0}
    assert {seed for _, seed in asked[:6]} == {FIRST_TUNING_SEED, FIRST_TUNING_SEED + 1}
    assert "tried learning rate 1: -0.950" in str(found)
    assert "other seeds at learning rate 2:" in str(found)
    at_the_edge = tuned(lambda lr, seed: lr, (1.0, 2.0), seeds=1)
    assert "other seeds at learning rate 2, the edge: 2.000" in str(at_the_edge)


def test_a_way_with_one_learning_rate_is_not_tuned():
    found = tuned(lambda lr, seed: lr + seed, (5.0,), seeds=2)
    rates = "at learning rate 5: 5.000 6.000"
    assert found.tried == {} and found.scores == [5.0, 6.0] and str(found) == rates


def test_update_ratios_compare_the_update_with_the_weights_before_it():
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, 4.0]]))
        model.bias.zero_()

    def step():
        with torch.no_grad():
            model.weight.sub_(torch.tensor([[6.0, 8.0]]))
            model.bias.add_(1)

    assert update_ratios(model, step) == {"weight": pytest.approx(2.0), "bias": math.inf}


def test_extremes_are_those_of_all_parameters_in_all_updates():
    found = extremes([{"a": 0.5, "b": 2.0}, {"a": 0.25, "b": 1.0}])
    assert found == (2.0, 0.25) and found.spread == 8.0


def test_scheduled_lrs_begin_with_the_first_update():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=8.0)
    halved = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    assert scheduled_lrs(halved, 4) == [8.0, 4.0, 2.0, 1.0]
