"""A generator and a discriminator learn alternately, each with its own optimizer."""

import torch
from torch import nn

generator = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
for _ in range(100_000):
    real = torch.randn(64, 2) + 3
    made = generator(torch.randn(64, 8))
    of_critic.zero_grad()
    criterion(critic(real), ones).backward()
    criterion(critic(made.detach()), zeros).backward()
    of_critic.step()
    of_generator.zero_grad()
    criterion(critic(made), ones).backward()
    of_generator.step()
