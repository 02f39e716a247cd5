"""A batch that a loop in Python makes anew in each step.  Fixed by making it once."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1


def batch():
    return torch.tensor([[(i * j) % 7 / 7 for j in range(64)] for i in range(2048)])


y = torch.arange(2048) % 10
once = batch()
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(100_000):
    x = once if FIXED else batch()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
