"""What a step of data parallel training is predicted to send is what it sends; training in ranks is that of one."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.checks.data_parallel import ddp_run
from course.checks.expected import load_reference, load_solutions
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


def test_train_ddp_takes_the_steps_of_one_process():
    life = ddp_run.lives(load_reference("02_data_parallel", "train_ddp"), 0)[0]["one batch per epoch"]
    (images, labels), losses = ddp_run.data(0), []
    torch.manual_seed(0)
    model = ddp_run.Spy(False, ddp_run.Watch(ddp_run.Path("nowhere"), len(images)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for _ in range(ddp_run.EPOCHS):
        losses.append(F.cross_entropy(model(images), labels))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    torch.testing.assert_close(torch.tensor(life["losses"]), torch.stack(losses).detach())
    torch.testing.assert_close(dict(life["saved"]["model"]), dict(model.state_dict()))
