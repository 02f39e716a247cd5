"""A disk that serves one worker at a time, so that more of them only wait longer.  Fixed by items in memory."""

import multiprocessing
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = len(sys.argv) > 1


class OnDisk(Dataset):
    disk = multiprocessing.get_context("fork").Lock()

    def __len__(self):
        return 4096

    def __getitem__(self, i):
        if not FIXED:
            with self.disk:
                time.sleep(0.002)
        return torch.full((64,), i / 4096), i % 10


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
data = DataLoader(OnDisk(), 16, num_workers=1, persistent_workers=True, multiprocessing_context="fork")
if FIXED:
    data = list(DataLoader(OnDisk(), 16))
for _ in range(100):
    for x, y in data:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
