"""Products of matrices in float32 on a GPU that has TF32.  Fixed by using it.  Needs such a GPU."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
if FIXED:
    torch.set_float32_matmul_precision("high")
x, y = torch.randn(4096, 4096, device="cuda"), torch.randint(10, (4096,), device="cuda")
model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(100_000):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
