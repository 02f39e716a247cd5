"""Hits that are counted one by one, with a value asked for each.  Fixed by counting on the device."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
x, y = torch.randn(256, 256), torch.randint(10, (256,))
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
hits = torch.zeros((), dtype=torch.long) if FIXED else 0
for _ in range(100_000):
    logits = model(x)
    nn.functional.cross_entropy(logits, y).backward()
    optimizer.step()
    optimizer.zero_grad()
    found = logits.detach().argmax(1) == y
    if FIXED:
        hits += found.sum()
    else:
        for i in range(len(y)):
            hits += found[i].item()
