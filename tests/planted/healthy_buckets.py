"""Nothing to advise: batches of texts of one length each, of which there are several."""

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
batches = [torch.randint(1, 1000, (128, 16 + 8 * (i % 5))) for i in range(20)]
model = nn.Sequential(nn.Embedding(1000, 128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(10_000):
    for tokens in DataLoader(batches, batch_size=None, shuffle=True):
        model(tokens).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
