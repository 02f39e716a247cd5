"""A rank that is late inside each backward pass, for torchrun with two.  Fixed by leaving the delay out."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

FIXED = len(sys.argv) > 1
dist.init_process_group("gloo")


def delayed(gradient):
    if dist.get_rank() == 1 and not FIXED:
        time.sleep(0.05)  # late
    return gradient


class Delayed(nn.Module):
    def forward(self, x):
        if x.requires_grad:
            x.register_hook(delayed)
        return x


model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), Delayed(), nn.Linear(16, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(2, (64,))), 8)
for _ in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
