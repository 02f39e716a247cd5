"""Gradients of four batches that DDP exchanges four times.  Fixed by no_sync for all but the last."""

import contextlib
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FIXED = len(sys.argv) > 1
if not dist.is_initialized():
    dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
torch.manual_seed(0)
x, y = torch.randn(4, 64, 256), torch.randint(10, (4, 64))
model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(100_000):
    for i in range(4):
        with model.no_sync() if FIXED and i < 3 else contextlib.nullcontext():
            nn.functional.cross_entropy(model(x[i]), y[i]).backward()
    optimizer.step()
    optimizer.zero_grad()
