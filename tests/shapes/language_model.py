"""A loop as for a small language model: batches from a long text, micro steps, autocast, evaluation."""

import torch
from torch import nn

text = torch.randint(50, (5000,))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.block = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, norm_first=True)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens, targets=None):
        logits = self.head(self.block(self.embedding(tokens)))
        loss = None
        if targets is not None:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


def batch():
    starts = torch.randint(len(text) - 17, (4,)).tolist()
    return torch.stack([text[i : i + 16] for i in starts]), torch.stack([text[i + 1 : i + 17] for i in starts])


@torch.no_grad()
def estimate(model):
    model.eval()
    losses = [model(*batch())[1].item() for _ in range(3)]
    model.train()
    return sum(losses) / 3


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
autocast = torch.autocast("cpu", torch.bfloat16)
x, y = batch()
for number in range(100_000):
    if number % 20 == 0:
        estimate(model)
    for _ in range(2):
        with autocast:
            logits, loss = model(x, y)
            loss = loss / 2
        x, y = batch()
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
