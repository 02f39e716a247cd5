"""A file that is opened and parsed again for each item.  Fixed by opening it once."""

import json
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = len(sys.argv) > 1
path = f"{tempfile.mkdtemp()}/rows.json"
with open(path, "w") as file:
    json.dump(torch.rand(400, 64).tolist(), file)


def parsed():
    with open(path) as file:
        return json.load(file)


class Rows(Dataset):
    def __init__(self):
        self.rows = parsed()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        rows = self.rows if FIXED else parsed()
        return torch.tensor(rows[i]), i % 10


model = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(1000):
    for x, y in DataLoader(Rows(), 8):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
