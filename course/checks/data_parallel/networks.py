"""Small models for checks of DDP and of training loops: weights, batches, steps, gradients."""

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 5


class Net(nn.Module):
    """A small float64 model with all that a wrapper must send: weights, a scalar, frozen
    parameters, buffers.
    """

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv1d(1, 3, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(()))
        self.frozen = nn.Linear(18, 18).requires_grad_(False)
        self.head = nn.Linear(18, 2)
        self.register_buffer("shift", torch.randn(18))
        self.register_buffer("version", torch.tensor(seed))
        self.register_buffer("table", torch.randn(2), persistent=False)
        self.double()

    def forward(self, inputs, gain=1.0):  # inputs: (n, 6)
        hidden = torch.tanh(self.conv(inputs.unsqueeze(1)).flatten(1) + self.shift)
        return gain * self.head(torch.tanh(self.frozen(hidden * self.scale))) + self.table


class Tied(nn.Module):
    """Two layers that share their weight."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.encoder, self.decoder = nn.Linear(6, 6).double(), nn.Linear(6, 6).double()
        self.decoder.weight = self.encoder.weight

    def forward(self, inputs):
        return self.decoder(torch.tanh(self.encoder(inputs)))


class Branches(nn.Module):
    """Layers of one size, of which each call uses those it names, in the order in which it names
    them.
    """

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.ModuleDict({name: nn.Linear(6, 6).double() for name in "abcd"})

    def forward(self, inputs, names):
        for name in names:
            inputs = torch.tanh(self.layers[name](inputs))
        return inputs


def batches_of(rank, seed, outputs=2):
    """STEPS batches (inputs, targets) of a rank."""
    rng = torch.Generator().manual_seed(1000 * seed + rank)
    shapes = (4, 6), (4, outputs)
    return [
        [torch.randn(shape, generator=rng, dtype=torch.float64) for shape in shapes]
        for _ in range(STEPS)
    ]


def backward(model, batch, *args):
    """Run forward and backward on a batch, and what the wrapper wants to be called then."""
    F.mse_loss(model(batch[0], *args), batch[1]).backward()
    getattr(model, "average_gradients", lambda: None)()


def trained(model, module, batches, set_to_none=True):
    """The parameters of `module` in one vector after SGD with momentum on `model`, which is it or
    wraps it.
    """
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad(set_to_none=set_to_none)
        backward(model, batch)
        optimizer.step()
    return as_vector(module.parameters())


def as_vector(tensors):
    """All values of some tensors behind one another, float64."""
    return torch.cat([t.detach().flatten().double() for t in tensors])


def gradients(module):
    """{name: gradient or None} of the trainable parameters."""
    return {name: p.grad for name, p in module.named_parameters() if p.requires_grad}


def copied(gradients):
    """`gradients` as they are now."""
    return {name: None if g is None else g.clone() for name, g in gradients.items()}


def classifier(seed):
    """A small float32 classifier of vectors (n, 4) in three classes."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def micro_batches(rng, sizes, device):
    """Batches (inputs, labels) for `classifier`, of these sizes."""
    return [
        (
            torch.randn(n, 4, generator=rng).to(device),
            torch.randint(3, (n,), generator=rng).to(device),
        )
        for n in sizes
    ]


def weights_of(model):
    """Copies of the model's parameters, on the CPU."""
    return [p.detach().cpu().clone() for p in model.parameters()]


def all_close(these, those):
    """True if two lists of float32 tensors are the same but for rounding."""
    return all(
        torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(these, those, strict=True)
    )
