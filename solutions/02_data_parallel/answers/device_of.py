"""Known mistakes of exercise device_of, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "context_manager": (
        "torch.cuda.device is a context manager, not a device, and model.to refuses it. The device is torch.device.",
        ('torch.device("cuda", local_rank)', "torch.cuda.device(local_rank)"),
    ),
    "name_of_the_device": (
        "This is the name of a device, a string. It often works in its place, but has no .type and no .index: "
        "put torch.device around it.",
        ('torch.device("cpu")', '"cpu"'),
        ('torch.device("cuda", local_rank)', 'f"cuda:{local_rank}"'),
    ),
    "current_gpu": (
        "Without its number, cuda is the current GPU, by default number 0: all processes would share it. "
        "Give the device the local rank.",
        ('"cuda", local_rank', '"cuda"'),
    ),
    "always_cuda": (
        "On a machine without a GPU there is no cuda device. Return the CPU where device_count is 0.",
        ('"cpu"', '"cuda", local_rank'),
    ),
    "asks_the_machine": (
        "The function asks this machine whether it has a GPU. Use the arguments alone: "
        "device_count is the number of GPUs.",
        ("device_count == 0", "not torch.cuda.is_available()"),
    ),
    "counted_round": (
        "With more processes than GPUs, two processes silently share a GPU. Raise a ValueError.",
        ("    if local_rank >=", "    local_rank %= device_count\n    if local_rank >="),
    ),
    "falls_back_to_the_cpu": (
        "A process without a GPU computes on the CPU, so all GPUs wait for it in every step. Raise a ValueError.",
        ("device_count == 0", "local_rank >= device_count"),
    ),
    "one_too_many": (
        "Ranks count from 0, so with 2 GPUs the last one is number 1. Your comparison lets one process too many "
        "through: try >= instead of >.",
        ("local_rank >= device_count", "local_rank > device_count"),
    ),
    "error_without_numbers": (
        "The error does not say how many GPUs there are and which one was asked for. Put both "
        "numbers into its message.",
        ('f"local', '"local'),
    ),
}


@alternative
def by_name(local_rank, device_count):
    names = [f"cuda:{i}" for i in range(device_count)] or ["cpu"] * (local_rank + 1)
    try:
        return torch.device(names[local_rank])
    except IndexError:
        raise ValueError(
            f"this machine has {device_count} GPUs, none of them is number {local_rank}"
        ) from None


@alternative
def by_match(local_rank, device_count):
    match device_count:
        case 0:
            return torch.device(type="cpu")
        case n if local_rank < n:
            return torch.device(type="cuda", index=local_rank)
    raise ValueError(f"{local_rank=} {device_count=}")
