"""Batches of many sizes, each of which is compiled.  Fixed by dynamic sizes.  Needs torch.compile."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
compiled = torch.compile(model, backend="eager", dynamic=True if FIXED else False)
for step in range(100_000):
    x = torch.randn(8 + step % 6, 64)
    compiled(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
