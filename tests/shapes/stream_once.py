"""The rows come from a generator, and can be read once."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Once(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return self.rows


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = (torch.randn(8) for _ in range(1_000_000))
for x in DataLoader(Once(rows), batch_size=4):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
