"""Items that are read from a slow disk, and a transform that is none of it.  Fixed by a copy in memory."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

FIXED = len(sys.argv) > 1


class OnDisk(Dataset):
    def __init__(self, transform):
        self.rows = torch.rand(512, 64)
        self.transform = transform

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        time.sleep(0.002)
        return self.transform(self.rows[i]), i % 10


def centred(row):
    return row - 0.5


data = OnDisk(centred)
if FIXED:
    data = TensorDataset(centred(data.rows), torch.arange(len(data)) % 10)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(1000):
    for x, y in DataLoader(data, 16):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
