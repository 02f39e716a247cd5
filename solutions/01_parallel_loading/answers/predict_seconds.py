"""Known mistakes of exercise predict_seconds, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "one_after_the_other": (
        "Building and unpacking are added. The main process unpacks one while workers build others: take the larger.",
        ("workers).clamp(min=max(c, ", "workers + c).clamp(min=max("),
    ),
    "the_sum": (
        "The times are added. Stages work at the same time, on different batches: take the largest of the four times.",
        ("(a / workers).clamp(min=max(c, (a + c) / cores, step))", "a / workers + c"),
    ),
    "the_sum_with_the_step": (
        "The times are added. Stages work at the same time, on different batches: take the largest of the four times.",
        ("(a / workers).clamp(min=max(c, (a + c) / cores, step))", "a / workers + c + step"),
    ),
    "the_sum_of_all_four": (
        "The times are added. Stages work at the same time, on different batches: take the largest of the four times.",
        (
            "(a / workers).clamp(min=max(c, (a + c) / cores, step))",
            "a / workers + c + (a + c) / cores + step",
        ),
    ),
    "main_process_forgotten": (
        "The main process is left out: c never sets the pace. However many workers there are, it unpacks each batch.",
        ("max(c, ", "max("),
    ),
    "cores_forgotten": (
        "The cores are left out: workers gain without end. Per batch, a + c seconds of work go through `cores` cores.",
        ("(a + c) / cores, ", ""),
    ),
    "main_process_needs_no_core": (
        "Only the workers' work is divided by the cores. The main process uses the same cores: (a + c) / cores.",
        ("(a + c) / cores", "a / cores"),
    ),
    "step_added": (
        "The step is added. It runs while the next batches are made: take the larger.",
        (", step))", ")) + step"),
    ),
    "step_after_unpacking": (
        "The step is added to c. The device computes while the main process unpacks: take the larger.",
        ("max(c, (a + c) / cores, step)", "max(c + step, (a + c) / cores)"),
    ),
    "step_forgotten": (
        "The step is left out, but a batch takes at least as long as its step. Take the largest of all four times.",
        (", step))", "))"),
    ),
    "smallest": (
        "The smallest of the times is taken. A pipeline is as slow as its slowest stage.",
        ("clamp(min=", "clamp(max="),
    ),
    "numbers_of_an_int_tensor": (
        "An element of an int64 tensor gives a float32 quotient, which rounds a / w. Convert workers to float64 first.",
        (
            "    workers = torch.as_tensor(workers, dtype=torch.float64)\n"
            "    return (a / workers).clamp(min=max(c, (a + c) / cores, step))",
            "    times = [max(a / w, c, (a + c) / cores, step) for w in workers]\n"
            "    return torch.tensor(times, dtype=torch.float64)",
        ),
    ),
    "single_precision": (
        "The result is float32, torch's default. Say dtype=torch.float64 when you make the tensor.",
        ("workers, dtype=torch.float64)", "workers).float()"),
    ),
    "step_takes_a_core": (
        "The step is divided by the cores, too. The device computes it without a core, so write (a + c) / cores.",
        ("(a + c) / cores", "(a + c + step) / cores"),
    ),
    "the_sum_or_the_step": (
        "Building and unpacking are added. Stages work at the same time: take the largest of the four times.",
        (
            "(a / workers).clamp(min=max(c, (a + c) / cores, step))",
            "(a / workers + c).clamp(min=step)",
        ),
    ),
}


@alternative
def one_by_one(workers, a, c, cores, step=0.0):
    device = workers.device if isinstance(workers, torch.Tensor) else "cpu"
    values = [max(a / float(w), c, (a + c) / cores, step) for w in workers]
    return torch.tensor(values, dtype=torch.float64, device=device)


@alternative
def stacked_stages(workers, a, c, cores, step=0.0):
    w = workers.double() if torch.is_tensor(workers) else torch.DoubleTensor(workers)
    stages = [
        a * w.reciprocal(),
        *(torch.full_like(w, value) for value in (c, (a + c) / cores, step)),
    ]
    return torch.stack(stages).amax(0)
