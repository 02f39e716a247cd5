"""What several probes of unit 03_large_batch use."""

import torch


def _number(value):
    """Words for what was returned where a float is due; a whole number is a number too."""
    return "a number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def _form(tensor, name=""):
    """What a tensor is, without its values."""
    form = {"dtype": tensor.dtype, "shape": tensor.shape, "device": tensor.device.type}
    return {f"{key} of {name}" if name else key: value for key, value in form.items()}


def _each(name, values):
    """The values under names that count from 1."""
    return {f"{name} {i}": value for i, value in enumerate(values, 1)}


def _steps(answer, steps, *settings, **options):
    """What a schedule answers for each of the steps."""
    return {f"step {step}": answer(step, *settings, **options) for step in steps}


class _CountingSGD(torch.optim.SGD):
    """SGD that counts its steps."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


class _SpyModel(torch.nn.Module):
    """A small recommender that writes down how it was called."""

    def __init__(self, rng, device, n_users=9, n_items=8, inf=False):
        super().__init__()

        def random(*shape):
            return torch.nn.Parameter(torch.randn(shape, generator=rng).to(device))

        self.user, self.item, self.mix, self.unused = random(n_users, 4), random(n_items, 4), random(5, 8), random(3)
        self.kind, self.inf = device.type, inf
        self.rows, self.batches, self.autocast, self.dtypes, self.fed = [], [], [], [], []
        self.backward_autocast, self.slopes = [], []

    def forward(self, users, items):
        self.rows.append(len(users))
        self.batches.append(torch.stack((users, items)))
        self.autocast.append(torch.is_autocast_enabled(self.kind))
        self.dtypes.append(str(torch.get_autocast_dtype(self.kind)))
        self.fed.append(len(self.slopes) == len(self.rows) - 1)  # were all parts before through their backward pass?
        x = torch.cat((self.user[users], self.item[items]), 1)
        logits = torch.nn.functional.linear(x, self.mix).relu().sum(1) - 1.0
        if logits.requires_grad:
            logits.register_hook(self._look)
        return logits

    def _look(self, slope):
        self.backward_autocast.append(torch.is_autocast_enabled(self.kind))
        self.slopes.append(slope.detach().float())
        return slope * float("inf") if self.inf else None


def _batch(rng, device, n):
    users, items = torch.randint(9, (n,), generator=rng), torch.randint(8, (n,), generator=rng)
    labels = torch.rand(n, generator=rng).round()
    return users.to(device), items.to(device), labels.to(device)


def _stale(model):
    """Gradients of an earlier batch, for every parameter."""
    for p in model.parameters():
        p.grad = torch.full_like(p, 3.0)


def _kind(result):
    """What a returned loss is, as plain data."""
    if not isinstance(result, torch.Tensor):
        return dict.fromkeys(("type", "dtype", "shape", "device", "requires_grad"), type(result).__name__)
    return {"type": "Tensor"} | _form(result) | {"requires_grad": result.requires_grad}


def _weights(model):
    """The parameters that the model uses."""
    return {f"model.{name}": getattr(model, name).detach() for name in ("user", "item", "mix")}
