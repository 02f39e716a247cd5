"""Blocks are computed again in backward, instead of keeping what they need."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Deep(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(4))
        self.out = nn.Linear(32, 4)
        self.reentrant = reentrant

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.out(x)


for reentrant in (False, True):
    model = Deep(reentrant)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(4 if not reentrant else 100_000):
        x = torch.randn(64, 32, requires_grad=True)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), torch.randint(4, (64,))).backward()
        optimizer.step()
