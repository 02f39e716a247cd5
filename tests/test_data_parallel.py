"""What a step of data parallel training is predicted to send is what it sends."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.checks.expected import load_solutions
from course.parallel.distributed import Transfers


def counted(messages):
    crossing = [size for source, target, size in messages if source != target]
    return len(messages), len(crossing), sum(crossing)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_predicted_messages_are_those_of_the_reference(n, device):
    unit = load_solutions("02_data_parallel")
    module, batch, targets = nn.Linear(6, 3), torch.randn(4 * n, 6), torch.randn(4 * n, 3)
    module, batch, targets = module.to(device), batch.to(device), targets.to(device)
    weights = sum(p.nbytes for p in module.parameters())
    predicted = unit.data_parallel_messages(n, weights, batch.nbytes, targets.nbytes)
    transfers, names = Transfers([device] * n), ("messages", "crossing", "bytes")
    F.mse_loss(unit.data_parallel(module, batch, transfers), targets).backward()
    assert counted(transfers.log) == tuple(predicted[f"forward_{k}"] for k in names)
    assert counted(transfers.returned) == tuple(predicted[f"backward_{k}"] for k in names)
