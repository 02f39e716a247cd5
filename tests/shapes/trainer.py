"""A trainer with a compiled-in loop: accumulation, clipping, a schedule, logging, evaluation, hooks."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, data, held_out):
        self.model = model
        self.loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=self.collate)
        self.held_out = DataLoader(held_out, batch_size=16)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda n: 1 / (1 + n))
        self.history = []

    def collate(self, rows):
        return {"inputs": torch.stack([x for x, _ in rows]), "labels": torch.stack([y for _, y in rows])}

    def loss(self, batch):
        return nn.functional.cross_entropy(self.model(batch["inputs"]), batch["labels"])

    def train(self):
        for number in range(1, 100_000):
            self.model.train()
            for micro, batch in enumerate(self.loader, 1):
                loss = self.loss(batch) / 4
                loss.backward()
                if micro % 4 == 0:
                    nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.optimizer.step()
                    self.schedule.step()
                    self.optimizer.zero_grad()
            self.history.append(loss.item())
            if number % 3 == 0:
                self.evaluate()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        for x, y in self.held_out:
            nn.functional.cross_entropy(self.model(x), y)


def rows(n):
    return TensorDataset(torch.randn(n, 12), torch.randint(3, (n,)))


Trainer(nn.Sequential(nn.Linear(12, 24), nn.Dropout(0.1), nn.Linear(24, 3)), rows(128), rows(64)).train()
