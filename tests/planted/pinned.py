"""Pinned memory, and no GPU to copy it to.  Fixed by leaving it out."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
batches = [(torch.randn(256, 512), torch.randint(10, (256,))) for _ in range(16)]
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(1000):
    for x, y in DataLoader(batches, batch_size=None, pin_memory=not FIXED):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
