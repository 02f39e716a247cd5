"""A moving average of the weights that goes from one parameter to the next.  Fixed by one call for all."""

import copy
import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
x, y = torch.randn(32, 32), torch.randint(10, (32,))
model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.ReLU())], nn.Linear(32, 10))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
weights, means = [p.detach() for p in model.parameters()], list(average.parameters())
for _ in range(100_000):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    if FIXED:
        torch._foreach_lerp_(means, weights, 0.001)
    else:
        for mean, weight in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
            mean.mul_(0.999).add_(weight, alpha=0.001)
