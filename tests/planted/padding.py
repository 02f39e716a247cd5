"""A few long texts in each batch, all padded to the longest.  Fixed by batches of similar lengths; time is per step."""

import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

rng = torch.Generator().manual_seed(0)
lengths = (8 + torch.empty(512).exponential_(1 / 40, generator=rng)).long().clamp(max=256)
texts = [torch.randint(1, 1000, (n,), generator=rng) for n in lengths.tolist()]
if len(sys.argv) > 1:
    texts.sort(key=len)
batches = [texts[i : i + 32] for i in range(0, 512, 32)]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.inner = nn.Embedding(1000, 128), nn.Sequential(nn.Linear(128, 512), nn.GELU())
        self.out = nn.Linear(512, 2)

    def forward(self, tokens):
        return self.out(self.inner(self.embed(tokens)).mean(1))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
loader = DataLoader(batches, batch_size=None, shuffle=True, collate_fn=lambda b: pad_sequence(b, batch_first=True))
for _ in range(1000):
    for tokens in loader:
        nn.functional.cross_entropy(model(tokens), torch.zeros(len(tokens), dtype=torch.long)).backward()
        optimizer.step()
        optimizer.zero_grad()
