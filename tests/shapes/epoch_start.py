"""Short epochs from a long data set: each begins with a permutation of all rows.  Fixed: none, and longer epochs."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler

IN_ORDER = len(sys.argv) > 1


class Long(Dataset):
    def __len__(self):
        return 200_000

    def __getitem__(self, i):
        return torch.full((16,), i / 2e5), i % 4


data = Long()
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
sampler = SequentialSampler(data) if IN_ORDER else RandomSampler(data, num_samples=320)
loader = DataLoader(data, batch_size=32, sampler=sampler)
for _ in range(10_000):
    for number, (x, y) in enumerate(loader, 1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if number == (1000 if IN_ORDER else 10):
            break
