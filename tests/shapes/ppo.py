"""A policy collects steps of its world without gradients, then learns from them for some epochs."""

import torch
from torch import nn
from torch.distributions import Categorical


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Linear(4, 2)
        self.critic = nn.Linear(4, 1)

    def value(self, states):
        return self.critic(states)[:, 0]

    def act(self, states, actions=None):
        chances = Categorical(logits=self.actor(states))
        actions = chances.sample() if actions is None else actions
        return actions, chances.log_prob(actions), chances.entropy(), self.value(states)


agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
for _ in range(100_000):
    states, actions, logs, values = [], [], [], []
    for _ in range(16):
        state = torch.randn(2, 4)
        with torch.no_grad():
            action, log, _, value = agent.act(state)
        states.append(state)
        actions.append(action)
        logs.append(log)
        values.append(value)
    states, actions, logs = torch.cat(states), torch.cat(actions), torch.cat(logs)
    returns = torch.cat(values) + 1
    for _ in range(2):
        for rows in torch.randperm(32).split(8):
            _, new, entropy, value = agent.act(states[rows], actions[rows])
            ratio = (new - logs[rows]).exp()
            loss = -ratio.mean() - 0.01 * entropy.mean()
            loss = loss + (value - returns[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
