"""Batches of four.  Fixed by batches of sixteen; time is per sample."""

import sys

import torch
from torch import nn

samples = 16 if len(sys.argv) > 1 else 4
torch.manual_seed(0)
x, y = torch.randn(4096, 32), torch.randint(10, (4096,))
model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.ReLU())], nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(1000):
    for i in range(0, len(x), samples):
        loss = nn.functional.cross_entropy(model(x[i : i + samples]), y[i : i + samples])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
