"""Nothing to advise: a moving average of the weights in one call for all."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(512, 256), torch.randint(10, (512,))
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
weights, means = [p.detach() for p in model.parameters()], list(average.parameters())
for _ in range(100_000):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    torch._foreach_lerp_(means, weights, 0.001)
