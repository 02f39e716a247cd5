"""Nothing to advise: rows in memory, a batch that keeps the processor busy."""

import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(4096, 512), torch.randint(10, (4096,))
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(10_000):
    for rows in torch.randperm(len(x)).split(512):
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
