"""Nothing to advise: convolutions in channels_last, whole batches from a loader."""

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
batches = [(torch.randn(32, 3, 32, 32).contiguous(memory_format=torch.channels_last), torch.randint(10, (32,)))
           for _ in range(8)]  # fmt: skip
model = nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.ReLU(), nn.Flatten(),
                      nn.Linear(1568, 10)).to(memory_format=torch.channels_last)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), fused=True)
for _ in range(10_000):
    for x, y in DataLoader(batches, batch_size=None, shuffle=True):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
