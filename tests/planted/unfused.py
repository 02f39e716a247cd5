"""An optimizer that passes over all weights once per operation.  Fixed by fused=True."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(8, 512), torch.randint(10, (8,))
model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.ReLU())], nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, foreach=False, fused=len(sys.argv) > 1)
for _ in range(100_000):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
