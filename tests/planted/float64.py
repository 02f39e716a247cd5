"""A model that computes in float64, as data from NumPy do.  Fixed by float32."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
DTYPE = torch.float32 if FIXED else torch.float64
x, y = torch.randn(512, 512, dtype=DTYPE), torch.randint(10, (512,))
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(DTYPE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(100_000):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
