"""A model that prints now and then inside its forward pass.  Fixed by leaving that out.  Needs torch.compile."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        hidden = self.inner(x).relu()
        if not FIXED:
            print("", end="")
        return self.outer(hidden)


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
compiled = torch.compile(model, backend="eager")
x = torch.randn(64, 64)
for _ in range(100_000):
    compiled(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
