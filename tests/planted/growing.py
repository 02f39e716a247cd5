"""Outputs of each step that are kept, although without their graphs.  Fixed by keeping their mean."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
x = torch.randn(8192, 64)
model = nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
kept = []
for _ in range(400):
    output = model(x)
    output.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(output.detach().mean() if FIXED else output.detach())
