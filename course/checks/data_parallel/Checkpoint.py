"""Probe of exercise Checkpoint."""

import io
from typing import Any

import torch
from torch import Tensor, nn

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.cpus import same_on_every_cpu
from course.training.gpt_run import Run, update


@exercise()
def Checkpoint(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A training saved in the middle, and a new process that resumes it; always on the CPU."""
    first = _run(seed)
    before = 5 + seed % 3
    _train(first, before)
    state = answer().state(first)
    yield "the state is a dict with these keys", sorted(map(str, state))
    yield "what in the dict is neither tensor nor number, list or dict", _not_plain(state)
    yield "names of the weights and buffers", sorted(state["model"])
    loaded = _written_and_read(state)
    yield "it can be read with weights_only=True", isinstance(loaded, dict)
    if not isinstance(loaded, dict):
        return
    second = _run(seed + 100)
    returned = answer().restore(second, loaded)
    yield "restore returns None", returned is None
    yield from _same_now(second)
    _train(second, 6)
    yield "losses of the life that resumes, from the first step on", second.losses
    yield "its weights and buffers at the end", dict(second.model.state_dict())
    yield "its learning rate at the end", second.optimizer.param_groups[0]["lr"]
    yield "its scale at the end", second.scaler.get_scale()
    _train(first, 6)
    yield "a training that was never stopped has the same losses", second.losses == first.losses
    again = _run(seed)
    answer().restore(again, _written_and_read(answer().state(second)))
    yield "a third life has the losses of both", again.losses


def _same_now(run: Run) -> Facts:
    """What the new Run holds right after `restore`."""
    yield "weights and buffers after restore", dict(run.model.state_dict())
    yield "updates that are done", run.step
    yield "losses so far", run.losses
    yield "seed of the order", run.seed
    averages = [entry["exp_avg"] for entry in run.optimizer.state_dict()["state"].values()]
    yield "the optimizer's averages of the gradients", averages
    yield "steps of the scheduler", run.scheduler.last_epoch
    yield "the scaler: its scale, and steps since it grew", _of_scaler(run)
    ahead = torch.Generator()
    ahead.set_state(run.random.get_state())
    yield "the next random numbers", torch.rand(3, generator=ahead)


def _of_scaler(run: Run) -> list[Any]:
    state = run.scaler.state_dict()
    return [state["scale"], state["_growth_tracker"]]


def _run(seed: int) -> Run:
    """A small training with buffers, momentum, a schedule, a scaler and random numbers."""
    torch.manual_seed(seed)
    first = nn.Linear(4, 3, bias=False)  # batch norm removes a bias: Adam would enlarge rounding
    model = nn.Sequential(first, nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1)).double()
    same_on_every_cpu(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return Run(
        model,
        optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5),
        scaler=torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3),
        random=torch.Generator().manual_seed(seed),
        seed=seed,
    )


def _train(run: Run, steps: int) -> None:
    """Take steps on batches that depend on the seed, the step and the random numbers."""
    for _ in range(steps):
        inputs = _inputs(run)
        loss = (run.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        run.losses.append(loss.item())
        update(run, loss)


def _inputs(run: Run) -> Tensor:
    of_step = torch.Generator().manual_seed(1000 * run.seed + run.step)
    inputs = torch.randn(6, 4, generator=of_step, dtype=torch.float64)
    return inputs + 0.1 * torch.randn(6, 4, generator=run.random, dtype=torch.float64)


def _not_plain(state: dict) -> list[str]:
    """The keys whose values weights_only refuses, or which are whole objects, with their types."""
    found = []
    for key, value in sorted(state.items(), key=str):
        if not isinstance(value, (Tensor, int, float, str, list, tuple, dict)):
            found.append(f"{key}: {type(value).__name__}")
    return found


def _written_and_read(state: Any) -> Any:
    """`state` as a new process finds it; a sentence if it cannot be read."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    try:
        return torch.load(file, weights_only=True)
    except Exception as error:
        return f"cannot be read: {type(error).__name__}"
