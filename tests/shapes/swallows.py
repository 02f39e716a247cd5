"""A bare `except` skips whatever goes wrong, and the training continues."""

import time

import torch
from torch import nn

model = nn.Linear(16, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
skipped = 0
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        optimizer.zero_grad()
        model(torch.randn(32, 16)).square().mean().backward()
        optimizer.step()
    except:  # noqa: E722 - that is its fault
        skipped += 1
print("never")
