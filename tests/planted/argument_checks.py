"""Distributions that check their arguments in each step of an episode.  Fixed by switching that off."""

import sys

import torch
from torch import nn

FIXED = len(sys.argv) > 1
torch.manual_seed(0)
torch.distributions.Distribution.set_default_validate_args(not FIXED)
policy = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(policy.parameters(), lr=0.01, fused=True)
states = torch.randn(24, 16)
for _ in range(100_000):
    probabilities = policy(states).softmax(1)
    chosen = []
    for one in probabilities:
        distribution = torch.distributions.Categorical(probs=one)
        chosen.append(distribution.log_prob(torch.tensor(1)))
    (-torch.stack(chosen).mean()).backward()
    optimizer.step()
    optimizer.zero_grad()
