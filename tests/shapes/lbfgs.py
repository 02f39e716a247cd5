"""A network learns to solve an equation by L-BFGS, whose step calls a closure."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.2, max_iter=3)
times = torch.linspace(0, 2, 64)[:, None].requires_grad_()


def residual():
    optimizer.zero_grad()
    values = model(times)
    (slopes,) = torch.autograd.grad(values.sum(), times, create_graph=True)
    loss = (slopes + values).square().mean() + (values[0] - 1).square().sum()
    loss.backward()
    return loss


for _ in range(100_000):
    optimizer.step(residual)
