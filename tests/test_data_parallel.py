"""Training in ranks is the training of one process."""

import torch
from torch.nn import functional as F

from course.checks.data_parallel import ddp_run
from course.notebook.solutions import load_reference


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
    torch.testing.assert_close(torch.tensor(life.losses), torch.stack(losses).detach())
    torch.testing.assert_close(dict(life.saved["model"]), dict(model.state_dict()))
