"""An order of all rows that is drawn in each short epoch.  Fixed by drawing only what the epoch needs."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = len(sys.argv) > 1
ROWS, PER_EPOCH = 2_000_000, 512


class Rows(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, i):
        return torch.full((64,), i / ROWS), i % 10


class Order:
    def __len__(self):
        return PER_EPOCH

    def __iter__(self):
        if FIXED:
            return iter(torch.randint(ROWS, (PER_EPOCH,)).tolist())
        return iter(torch.randperm(ROWS).tolist()[:PER_EPOCH])


model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
loader = DataLoader(Rows(), 32, sampler=Order())
for _ in range(10_000):
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
