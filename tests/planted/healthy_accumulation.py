"""Nothing to advise: gradients of four batches are added up before each step."""

import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(4, 256, 256), torch.randint(10, (4, 256))
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(100_000):
    for i in range(4):
        (nn.functional.cross_entropy(model(x[i]), y[i]) / 4).backward()
    optimizer.step()
    optimizer.zero_grad()
