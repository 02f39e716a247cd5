"""Batches are drawn by a sampler of batches, and collated by a function of the script."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

texts = [{"tokens": [1] * (1 + i % 5), "label": i % 2} for i in range(512)]


def padded(items):
    tokens = torch.zeros(len(items), 5)
    for row, item in enumerate(items):
        tokens[row, : len(item["tokens"])] = torch.tensor(item["tokens"], dtype=torch.float32)
    return tokens, torch.tensor([item["label"] for item in items])


batches = BatchSampler(RandomSampler(texts), batch_size=8, drop_last=False)
loader = DataLoader(texts, batch_sampler=batches, collate_fn=padded)
model = nn.Linear(5, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for _ in range(10_000):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
