"""Nothing to advise: actions of a whole batch at once, and no checks of arguments."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
states, actions = torch.randn(2048, 64), torch.randint(4, (2048,))
policy = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 4))
optimizer = torch.optim.SGD(policy.parameters(), lr=0.01, fused=True)
for _ in range(100_000):
    chosen = Categorical(logits=policy(states), validate_args=False)
    (-chosen.log_prob(actions).mean()).backward()
    optimizer.step()
    optimizer.zero_grad()
