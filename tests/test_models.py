"""The models must compute what the textbook formulas say, and dropout must keep its law."""

import pytest
import torch
from torch.nn import functional as F

from course.training.models import NEUMF_SIZES, DotProduct, FashionCNN, NeuMF, drop_, relu_dropout_

N_USERS, N_ITEMS = 11, 7


def make_neumf(device, size="paper", **changes):
    torch.manual_seed(0)
    model = NeuMF(N_USERS, N_ITEMS, **NEUMF_SIZES[size] | changes)
    with torch.no_grad():  # weights of a trained size, so that no half of the model vanishes beside the other
        for table in (model.gmf_user, model.gmf_item, model.mlp_user, model.mlp_item):
            table.weight.normal_()
    return model.to(device)


def pairs(n, device):
    generator = torch.Generator().manual_seed(1)
    return (torch.randint(high, (n,), generator=generator).to(device) for high in (N_USERS, N_ITEMS))


# 36 = 2 * (11 + 7) rows is where the first layer starts to be applied to the tables instead of to the batch.
@pytest.mark.parametrize("n", [1, 35, 36, 200])
@pytest.mark.parametrize("size", NEUMF_SIZES)
def test_forward_and_gradients_equal_the_textbook(device, size, n):
    users, items = pairs(n, device)
    labels = (torch.arange(n, device=device) % 2).double()
    model = make_neumf(device, size=size, dropout=0.0)
    table = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
    gmf = table["gmf_user.weight"][users] * table["gmf_item.weight"][items]
    hidden = torch.cat((table["mlp_user.weight"][users], table["mlp_item.weight"][items]), 1)
    for i in range(len(model.mlp)):
        hidden = (hidden @ table[f"mlp.{i}.weight"].T + table[f"mlp.{i}.bias"]).clamp(min=0)
    expected = torch.cat((gmf, hidden), 1) @ table["output.weight"][0] + table["output.bias"]
    F.binary_cross_entropy_with_logits(expected, labels).backward()
    logits = model(users, items)
    assert logits.shape == (n,) and logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), expected.detach(), rtol=1e-4, atol=1e-5)
    F.binary_cross_entropy_with_logits(logits, labels.float()).backward()
    gradients = {name: parameter.grad.double() for name, parameter in model.named_parameters()}
    torch.testing.assert_close(gradients, {name: value.grad for name, value in table.items()}, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("p", [0.25, 0.5])
@pytest.mark.parametrize("n", [20, 60])
def test_train_mode_drops_with_the_law_of_dropout(device, p, n):
    """With one hidden layer the logit is linear in what is dropped: mean and variance follow by hand."""
    model = make_neumf(device, layers=(64, 32), dropout=p)
    users, items = (ids[:1].expand(n) for ids in pairs(1, device))
    with torch.no_grad():
        logits = torch.cat([model(users, items) for _ in range(6000 // n)]).double()
        hidden = F.relu(model.mlp[0](torch.cat((model.mlp_user(users[:1]), model.mlp_item(items[:1])), 1)))
        terms = (hidden * model.output.weight[:, 8:]).double()
        exact = model.eval()(users[:1], items[:1]).double()
    variance = terms.square().sum() * p / (1 - p)
    assert abs(logits.mean() - exact.item()) < 5 * (variance / len(logits)).sqrt()
    assert logits.var().item() == pytest.approx(variance.item(), rel=0.15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_drop_zeroes_with_probability_p_and_keeps_the_rest(device, dtype, p):
    torch.manual_seed(0)
    x = torch.ones(333, 301, dtype=dtype, device=device)
    drop_(x, p)
    kept = (x != 0).double()
    assert torch.equal(x, kept.to(dtype)), "what is kept must be unchanged"
    spread = (p * (1 - p) / kept.numel()) ** 0.5
    assert abs(kept.mean().item() - (1 - p)) < 5 * spread
    assert (kept.mean(0) - (1 - p)).abs().max() < 5 * spread * 301**0.5, "every column with the same probability"
    assert (kept.mean(1) - (1 - p)).abs().max() < 5 * spread * 333**0.5, "every row with the same probability"


@pytest.mark.parametrize("distance", [1, 8, 16, 32, 64, 301, 333 * 301 // 32, 333 * 301 // 64])
def test_dropped_elements_are_uncorrelated(device, distance):
    torch.manual_seed(0)
    x = torch.ones(333, 301, device=device)
    drop_(x, 0.5)
    sign = 2 * x.view(-1).double() - 1
    assert abs((sign[distance:] * sign[:-distance]).mean().item()) < 5 / sign.numel() ** 0.5


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 63, 64, 65])
def test_drop_works_at_the_edges_of_a_word(device, n):
    x = torch.full((n,), 3.0, device=device)
    drop_(x, 0.5)
    assert set(x.tolist()) <= {0.0, 3.0}


def test_same_seed_must_drop_the_same(device):
    x = [torch.ones(1000, device=device) for _ in range(3)]
    for tensor, seed in zip(x, (5, 5, 6), strict=True):
        torch.manual_seed(seed)
        drop_(tensor, 0.5)
    assert torch.equal(x[0], x[1]) and not torch.equal(x[0], x[2])


def test_gradient_of_relu_dropout_is_one_where_a_value_came_through(device):
    weight = torch.randn(500, device=device, requires_grad=True)
    out = relu_dropout_(weight * 1, 0.5)
    out.sum().backward()
    assert torch.equal(weight.grad, (out != 0).float())
    assert 0 < (out != 0).sum() < (weight > 0).sum()


def test_dot_product_by_hand(device):
    model = DotProduct(2, 2, 2).to(device)
    with torch.no_grad():
        model.user.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        model.item.weight.copy_(torch.tensor([[5.0, 6.0], [-1.0, 0.5]]))
        model.user_bias.weight.copy_(torch.tensor([[0.1], [0.2]]))
        model.item_bias.weight.copy_(torch.tensor([[10.0], [20.0]]))
        model.bias.fill_(100.0)
    logits = model(torch.tensor([0, 1], device=device), torch.tensor([0, 1], device=device))
    torch.testing.assert_close(logits.cpu(), torch.tensor([17 + 110.1, -1 + 120.2]))


# ---- images


def make_cnn(device, **arguments):
    """A FashionCNN whose norms scale and shift, as those of a trained one do."""
    torch.manual_seed(0)
    model = FashionCNN(**arguments)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (torch.nn.BatchNorm2d, torch.nn.GroupNorm)):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_()
    return model.to(device)


def images(n, device):
    return torch.randn(n, 1, 28, 28, generator=torch.Generator().manual_seed(1)).to(device)


def textbook_cnn(model, x, norm):
    """Logits in train mode without dropout, layer by layer."""
    parameters = iter(model.parameters())
    layers = zip(parameters, parameters, strict=True)  # (weight, bias) of each
    for padding in (1, 0):
        x = F.conv2d(x, *next(layers), padding=padding)
        if norm == "batch":
            x = F.batch_norm(x, None, None, *next(layers), training=True)
        elif norm == "group":
            x = F.group_norm(x, 8, *next(layers))
        x = F.max_pool2d(x.relu(), 2)
    hidden = F.linear(x.flatten(1), *next(layers)).relu()
    return F.linear(F.linear(hidden, *next(layers)).relu(), *next(layers))


@pytest.mark.parametrize("norm", ["batch", "group", None])
def test_cnn_has_the_layers_of_the_textbook(device, norm):
    model, x = make_cnn(device, dropout=0.0, norm=norm), images(5, device)
    logits = model(x)
    assert logits.shape == (5, 10) and logits.dtype == torch.float32
    torch.testing.assert_close(logits, textbook_cnn(model, x, norm), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "bound"), [("neumf", 2**-6), ("cnn", 2**-5)])
def test_bf16_autocast_stays_close_and_returns_float32(device, name, bound):
    if name == "neumf":
        model, inputs = make_neumf(device, size="nvidia", dropout=0.0), [*pairs(200, device)]
    else:
        model, inputs = make_cnn(device, dropout=0.0), [images(20, device)]
    with torch.autocast(device.type, torch.bfloat16):
        logits = model(*inputs)
    assert logits.dtype == torch.float32
    logits.sum().backward()
    reference = model(*inputs)
    assert (logits - reference).abs().max() < bound * reference.abs().max()
