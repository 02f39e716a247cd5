"""A policy asks for each action before the next step of its world, which takes time."""

import time

import torch
from torch import nn
from torch.distributions import Categorical

policy = nn.Linear(3, 2)
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
for _ in range(100_000):
    state = torch.randn(1, 3)
    chances = []
    for _ in range(20):
        choice = Categorical(logits=policy(state))
        action = choice.sample()
        chances.append(choice.log_prob(action))
        if action.item() in (0, 1):
            time.sleep(0.0004)  # the world
        state = torch.randn(1, 3)
    loss = -torch.cat(chances).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
