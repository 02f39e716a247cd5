"""An actor and two critics with three optimizers; targets come from the actor without gradients."""

import copy

import torch
from torch import nn

actor = nn.Linear(6, 2)
critics = [nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(2)]
slow = [copy.deepcopy(critic) for critic in critics]
temperature = torch.zeros(1, requires_grad=True)
of_actor = torch.optim.Adam(actor.parameters(), lr=1e-3)
of_critics = torch.optim.Adam([p for critic in critics for p in critic.parameters()], lr=1e-3)
of_temperature = torch.optim.Adam([temperature], lr=1e-3)
for _ in range(100_000):
    states, actions, nexts = torch.randn(32, 6), torch.randn(32, 2), torch.randn(32, 6)
    with torch.no_grad():
        pairs = torch.cat([nexts, actor(nexts).tanh()], 1)
        wanted = torch.min(slow[0](pairs), slow[1](pairs))
    pairs = torch.cat([states, actions], 1)
    loss = sum((critic(pairs) - wanted).square().mean() for critic in critics)
    of_critics.zero_grad()
    loss.backward()
    of_critics.step()
    chosen = torch.cat([states, actor(states).tanh()], 1)
    of_actor.zero_grad()
    (-torch.min(critics[0](chosen), critics[1](chosen)).mean()).backward()
    of_actor.step()
    of_temperature.zero_grad()
    (temperature.exp() * 0.1).sum().backward()
    of_temperature.step()
    with torch.no_grad():
        for one, other in zip(critics, slow, strict=True):
            for ours, theirs in zip(other.parameters(), one.parameters(), strict=True):
                ours.lerp_(theirs, 0.005)
