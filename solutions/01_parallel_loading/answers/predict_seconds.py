"""Known mistakes of exercise predict_seconds, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def doubles(workers):
    return torch.as_tensor(workers, dtype=torch.float64)


@mistake(
    "predict_seconds",
    "The overhead is added after the comparison, so that even the floor pays it. Compare the floor with the whole sum.",
)
def overhead_on_the_floor(workers, floor, work, overhead):
    return (work / doubles(workers)).clamp(min=floor) + overhead


@mistake("predict_seconds", "The overhead is divided among the workers. It is what does not divide.")
def overhead_divided(workers, floor, work, overhead):
    return ((work + overhead) / doubles(workers)).clamp(min=floor)


@mistake(
    "predict_seconds",
    "The smaller of the two is taken: clamp(max=...) or minimum. The floor is a lower limit: take the larger.",
)
def ceiling(workers, floor, work, overhead):
    return (work / doubles(workers) + overhead).clamp(max=floor)


@mistake("predict_seconds", "The floor is added. A batch takes the longer of the two times, not both.")
def floor_added(workers, floor, work, overhead):
    return floor + work / doubles(workers) + overhead


@mistake("predict_seconds", "The work is multiplied by the number of workers. More of them take less time.")
def work_multiplied(workers, floor, work, overhead):
    return (work * doubles(workers) + overhead).clamp(min=floor)


@mistake("predict_seconds", "The result is float32, torch's default. Say dtype=torch.float64 when you make the tensor.")
def single_precision(workers, floor, work, overhead):
    return (work / torch.as_tensor(workers).float() + overhead).clamp(min=floor)


@alternative("predict_seconds")
def one_by_one(workers, floor, work, overhead):
    device = workers.device if isinstance(workers, torch.Tensor) else "cpu"
    values = [max(floor, work / float(w) + overhead) for w in workers]
    return torch.tensor(values, dtype=torch.float64, device=device)


@alternative("predict_seconds")
def where_the_line_is_higher(workers, floor, work, overhead):
    w = workers.double() if torch.is_tensor(workers) else torch.DoubleTensor(workers)
    line = overhead + work * w.reciprocal()
    return torch.where(line > floor, line, floor)
