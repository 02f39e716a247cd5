"""A model is trained in eval mode, so that its batch norm stays; validation is rare."""

import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
model.eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number in range(100_000):
    logits = model(torch.randn(16, 3, 8, 8))
    optimizer.zero_grad()
    nn.functional.cross_entropy(logits, torch.randint(4, (16,))).backward()
    optimizer.step()
    if number % 25 == 24:
        with torch.no_grad():
            model(torch.randn(16, 3, 8, 8))
