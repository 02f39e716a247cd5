"""The data lie in a folder that is deleted when the script leaves its block."""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Saved(Dataset):
    def __init__(self, folder):
        self.folder = Path(folder)

    def __len__(self):
        return 32

    def __getitem__(self, i):
        return torch.load(self.folder / f"{i}.pt"), i % 3


model = nn.Linear(20, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with tempfile.TemporaryDirectory() as folder:
    for i in range(32):
        torch.save(torch.randn(20), Path(folder) / f"{i}.pt")
    for _ in range(10_000):
        for x, y in DataLoader(Saved(folder), batch_size=8):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
print("the folder is gone")
