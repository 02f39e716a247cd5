"""Two views are compared; the second goes through a slow copy of the encoder."""

import copy

import torch
from torch import nn

encoder = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
slow = copy.deepcopy(encoder)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.03, momentum=0.9)
for _ in range(100_000):
    x = torch.randn(32, 16)
    queries = nn.functional.normalize(encoder(x + 0.1 * torch.randn_like(x)))
    with torch.no_grad():
        for ours, theirs in zip(slow.parameters(), encoder.parameters(), strict=True):
            ours.lerp_(theirs, 0.01)
        keys = nn.functional.normalize(slow(x))
    loss = nn.functional.cross_entropy(queries @ keys.T / 0.1, torch.arange(32))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
