"""A stream of rows that each worker would read from its beginning.  Fixed: workers share it out."""

import itertools
import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDED = len(sys.argv) > 1
rows = [json.dumps(torch.randn(400).tolist()) for _ in range(256)]


class Rows(IterableDataset):
    def __iter__(self):
        info = get_worker_info() if SHARDED else None
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for row in itertools.islice(rows, first, None, step):
            yield torch.tensor(json.loads(row))


model = nn.Linear(400, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for _ in range(10_000):
    for x in DataLoader(Rows(), batch_size=8):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
