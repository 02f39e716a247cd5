"""Nothing to advise: texts of one length, evaluated in inference_mode."""

import torch
from torch import nn

torch.manual_seed(0)
tokens, labels = torch.randint(1, 1000, (512, 64)), torch.randint(2, (512,))
model = nn.Sequential(nn.Embedding(1000, 128), nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for step in range(100_000):
    rows = torch.randint(512, (32,))
    nn.functional.cross_entropy(model(tokens[rows]).mean(1), labels[rows]).backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 50 == 0:
        model.eval()
        with torch.inference_mode():
            model(tokens[:64])
        model.train()
