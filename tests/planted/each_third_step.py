"""A histogram of all weights that is made in Python at each third step.  Fixed by one each thousand."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
x, y = torch.randn(64, 64), torch.randint(10, (64,))
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
every = 1000 if FIXED else 3


def histogram():
    counts = {}
    for parameter in model.parameters():
        for value in parameter.detach().flatten().tolist():
            cell = round(10 * value)
            counts[cell] = counts.get(cell, 0) + 1
    return counts


for step in range(100_000):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % every == 1:
        histogram()
