"""Validation that records graphs.  Fixed by inference_mode."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
x, y = torch.randn(512, 256), torch.randint(10, (512,))
held = torch.randn(1024, 256)
model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.GELU())], nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for step in range(100_000):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 2 == 0:
        model.eval()
        with torch.inference_mode(FIXED):
            right = model(held).argmax(1)
        model.train()
