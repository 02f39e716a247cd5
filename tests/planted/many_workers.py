"""Eight workers for data that lie in memory.  Fixed by fewer."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FIX = sys.argv[1] if len(sys.argv) > 1 else "num_workers=8"
torch.manual_seed(0)
data = TensorDataset(torch.randn(65536, 16), torch.randint(10, (65536,)))
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
workers = int(FIX.partition("=")[2].split()[0])
for _ in range(100):
    for x, y in DataLoader(data, 8, shuffle=True, num_workers=workers):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
