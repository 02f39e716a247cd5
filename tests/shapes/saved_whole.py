"""What is watched is saved whole, copied, scripted and pickled."""

import copy
import pickle
import sys

import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number in range(100_000):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if number == 8:
        torch.save(model, sys.argv[1])
        copied = copy.deepcopy(model)
        again = pickle.loads(pickle.dumps(model))
        scripted = torch.jit.script(model)
        assert isinstance(copied, nn.Sequential) and type(model) is nn.Sequential
        with torch.no_grad():
            assert torch.equal(copied(x), model(x)) and torch.equal(again(x), scripted(x))
        pickle.dumps(optimizer)
