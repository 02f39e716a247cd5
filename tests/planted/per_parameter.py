"""An optimizer for each parameter.  Fixed by one for all."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
x, y = torch.randn(64, 64), torch.randint(10, (64,))
model = nn.Sequential(*[layer for _ in range(24) for layer in (nn.Linear(64, 64), nn.ReLU())], nn.Linear(64, 10))
parameters = [*model.parameters()]
optimizers = [torch.optim.Adam(group) for group in ([parameters] if FIXED else [[p] for p in parameters])]
for _ in range(100_000):
    nn.functional.cross_entropy(model(x), y).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
