"""A batch that is put together number by number.  Fixed by torch's own collate_fn."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, default_collate

FIXED = len(sys.argv) > 1


def number_by_number(items):
    rows = [[float(number) for number in row] for row, _ in items]
    return torch.tensor(rows), torch.tensor([label for _, label in items])


torch.manual_seed(0)
items = [(row, i % 10) for i, row in enumerate(torch.rand(512, 256))]
model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(1000):
    for x, y in DataLoader(items, 16, collate_fn=default_collate if FIXED else number_by_number):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
