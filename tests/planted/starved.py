"""Items that wait for a slow disk, and no worker that waits in the meantime.  Fixed by workers."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIX = sys.argv[1] if len(sys.argv) > 1 else "num_workers=0"


class OnDisk(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.full((64,), i / 4096), i % 10


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(100):
    for x, y in DataLoader(OnDisk(), 16, num_workers=int(FIX.partition("=")[2].split()[0])):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
