"""A barrier in each step.  Fixed by leaving it out."""

import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn

FIXED = len(sys.argv) > 1
if not dist.is_initialized():
    dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
torch.manual_seed(0)
x, y = torch.randn(256, 512), torch.randint(10, (256,))
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
try:
    for _ in range(100_000):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if not FIXED:
            dist.barrier()
finally:
    dist.destroy_process_group()
