"""One thread for large products of matrices on several cores.  Fixed by a thread per core."""

import os
import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
torch.set_num_threads(max(2, len(os.sched_getaffinity(0))) if FIXED else 1)
x, y = torch.randn(256, 1024), torch.randint(10, (256,))
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(100_000):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
