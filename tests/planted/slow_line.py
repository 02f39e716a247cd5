"""A line of __getitem__ that counts letters in Python.  Fixed by counting them once, before training."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = len(sys.argv) > 1
LETTERS = "abcdefghijklmnop"


def counts(text):
    return torch.tensor([sum(letter == other for other in text) / len(text) for letter in LETTERS])


class Texts(Dataset):
    def __init__(self):
        self.texts = ["".join(LETTERS[(i * j) % 16] for j in range(2000)) for i in range(128)]
        self.counted = [counts(text) for text in self.texts] if FIXED else None

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        if FIXED:
            return self.counted[i], i % 10
        return counts(self.texts[i]), i % 10


data = Texts()
model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(10_000):
    for x, y in DataLoader(data, 8):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
