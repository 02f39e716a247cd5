"""Short epochs, and workers that open the data again in each.  Fixed by workers that stay."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FIXED = len(sys.argv) > 1


def open_data(worker):
    time.sleep(0.1)


torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 256), torch.randint(10, (64,)))
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
loader = DataLoader(
    data,
    16,
    num_workers=1,
    worker_init_fn=open_data,
    multiprocessing_context="fork",
    persistent_workers=FIXED,
)
for _ in range(10_000):
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
