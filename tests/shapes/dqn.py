"""A Q network acts in its world, and learns from a memory with a target network."""

import random

import torch
from torch import nn


def network():
    return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))


online, target = network(), network()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
memory = []
state = torch.randn(4)
for number in range(1_000_000):
    greedy = random.random() > 0.1
    action = int(online(state[None]).argmax()) if greedy else random.randrange(2)
    after = torch.randn(4)
    memory.append((state, action, float(after[0] > 0), after))
    state = after
    if number > 100 and number % 4 == 0:
        rows = random.sample(memory, 16)
        states, actions, rewards, nexts = zip(*rows, strict=True)
        with torch.no_grad():
            best = target(torch.stack(nexts)).amax(1)
            wanted = torch.tensor(rewards) + 0.99 * best
        values = online(torch.stack(states)).gather(1, torch.tensor(actions)[:, None])[:, 0]
        loss = nn.functional.mse_loss(wanted, values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if number % 200 == 0:
        target.load_state_dict(online.state_dict())
