"""Known mistakes of exercise predict_seconds, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def doubles(workers):
    return torch.as_tensor(workers, dtype=torch.float64)


@mistake(
    "predict_seconds",
    "Building and unpacking are added. The main process unpacks one batch while workers build others: take the larger.",
)
def one_after_the_other(workers, a, c, cores, step=0.0):
    return (a / doubles(workers) + c).clamp(min=max((a + c) / cores, step))


@mistake(
    "predict_seconds",
    "The times are added. Stages work at the same time, on different batches: take the largest of the four times.",
)
def the_sum(workers, a, c, cores, step=0.0):
    return a / doubles(workers) + c


@mistake(
    "predict_seconds",
    "The main process is left out: c never sets the pace. However many workers there are, it unpacks each batch.",
)
def main_process_forgotten(workers, a, c, cores, step=0.0):
    return (a / doubles(workers)).clamp(min=max((a + c) / cores, step))


@mistake(
    "predict_seconds",
    "The cores are left out, so workers gain without end. Per batch, a + c seconds of work go through `cores` cores.",
)
def cores_forgotten(workers, a, c, cores, step=0.0):
    return (a / doubles(workers)).clamp(min=max(c, step))


@mistake(
    "predict_seconds",
    "Only the workers' work is divided by the cores. The main process computes on the same cores: (a + c) / cores.",
)
def main_process_needs_no_core(workers, a, c, cores, step=0.0):
    return (a / doubles(workers)).clamp(min=max(c, a / cores, step))


@mistake("predict_seconds", "The step is added. It runs while the next batches are made: take the larger.")
def step_added(workers, a, c, cores, step=0.0):
    return (a / doubles(workers)).clamp(min=max(c, (a + c) / cores)) + step


@mistake(
    "predict_seconds", "The step is added to c. The device computes while the main process unpacks: take the larger."
)
def step_after_unpacking(workers, a, c, cores, step=0.0):
    return (a / doubles(workers)).clamp(min=max(c + step, (a + c) / cores))


@mistake("predict_seconds", "The step is left out. No batch is used before the step on the last one is done.")
def step_forgotten(workers, a, c, cores, step=0.0):
    return (a / doubles(workers)).clamp(min=max(c, (a + c) / cores))


@mistake("predict_seconds", "The smallest of the times is taken. A pipeline is as slow as its slowest stage.")
def smallest(workers, a, c, cores, step=0.0):
    return (a / doubles(workers)).clamp(max=max(c, (a + c) / cores, step))


@mistake("predict_seconds", "The result is float32, torch's default. Say dtype=torch.float64 when you make the tensor.")
def single_precision(workers, a, c, cores, step=0.0):
    return (a / torch.as_tensor(workers).float()).clamp(min=max(c, (a + c) / cores, step))


@alternative("predict_seconds")
def one_by_one(workers, a, c, cores, step=0.0):
    device = workers.device if isinstance(workers, torch.Tensor) else "cpu"
    values = [max(a / float(w), c, (a + c) / cores, step) for w in workers]
    return torch.tensor(values, dtype=torch.float64, device=device)


@alternative("predict_seconds")
def stacked_stages(workers, a, c, cores, step=0.0):
    w = workers.double() if torch.is_tensor(workers) else torch.DoubleTensor(workers)
    stages = [a * w.reciprocal(), *(torch.full_like(w, value) for value in (c, (a + c) / cores, step))]
    return torch.stack(stages).amax(0)
