"""A chain of operations that each read and write everything.  Fixed by torch.compile, tried with --compile."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1024))

    def forward(self, x):
        for _ in range(20):
            x = torch.tanh(x * self.scale + 0.1)
        return x


torch.manual_seed(0)
x = torch.randn(256, 1024)
model = Chain()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
if FIXED:
    model = torch.compile(model)
for _ in range(100_000):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
