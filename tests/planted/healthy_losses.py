"""Nothing to advise: losses are kept as numbers, one per step, and printed rarely."""

import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(512, 256), torch.randint(10, (512,))
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
losses = []
for step in range(100_000):
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    if step % 500 == 0:
        print(f"step {step}: {losses[-1]:.3f}")
