"""A student learns from a teacher, which runs without gradients in each step."""

import torch
from torch import nn

teacher = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 5)).eval()
student = nn.Linear(32, 5)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(100_000):
    batch = torch.randn(128, 32)
    with torch.no_grad():
        target = teacher(batch).softmax(1)
    loss = nn.functional.cross_entropy(student(batch), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
