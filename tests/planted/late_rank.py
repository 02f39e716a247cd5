"""A rank that is late in each step, for torchrun with two.  Fixed by leaving the delay out."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

FIXED = len(sys.argv) > 1
dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(2, (64,))), 8)
for _ in range(100):
    for x, y in loader:
        if dist.get_rank() == 1 and not FIXED:
            time.sleep(0.05)  # late
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
