"""Convolutions on images whose channels are apart in memory.  Fixed by channels_last."""

import sys

import torch
from torch import nn

FORMAT = torch.channels_last if len(sys.argv) > 1 else torch.contiguous_format
torch.manual_seed(0)
x, y = torch.randn(8, 32, 28, 28).to(memory_format=FORMAT), torch.randint(10, (8,))
layers = [layer for _ in range(4) for layer in (nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())]
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).to(memory_format=FORMAT)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(100_000):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
