"""Nothing to advise: a small validation set after each hundredth step, in inference_mode."""

import torch
from torch import nn

torch.manual_seed(0)
x, y, held = torch.randn(512, 256), torch.randint(10, (512,)), torch.randn(256, 256)
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for step in range(100_000):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 100 == 0:
        model.eval()
        with torch.inference_mode():
            found = model(held).argmax(1)
        model.train()
