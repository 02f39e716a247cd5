"""Known mistakes of exercise device_of, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


@mistake(
    "device_of",
    "torch.cuda.device is a context manager, not a device, and model.to refuses it. The device is torch.device.",
)
def context_manager(local_rank, device_count):
    if local_rank >= device_count > 0:
        raise ValueError(f"local rank {local_rank}, {device_count} GPUs")
    return torch.cuda.device(local_rank) if device_count else torch.device("cpu")


@mistake(
    "device_of",
    "This is the name of a device, a string. It often works in its place, but has no .type and no .index: put "
    "torch.device around it.",
)
def name_of_the_device(local_rank, device_count):
    if local_rank >= device_count > 0:
        raise ValueError(f"local rank {local_rank}, {device_count} GPUs")
    return f"cuda:{local_rank}" if device_count else "cpu"


@mistake(
    "device_of",
    "Without its number, cuda is the current GPU, which is number 0 in every process: all of them would share it. Give "
    "the device the local rank.",
)
def current_gpu(local_rank, device_count):
    if local_rank >= device_count > 0:
        raise ValueError(f"local rank {local_rank}, {device_count} GPUs")
    return torch.device("cuda" if device_count else "cpu")


@mistake(
    "device_of",
    "On a machine without a GPU there is no cuda device. Return the CPU where device_count is 0.",
)
def always_cuda(local_rank, device_count):
    if local_rank >= device_count > 0:
        raise ValueError(f"local rank {local_rank}, {device_count} GPUs")
    return torch.device("cuda", local_rank)


@mistake(
    "device_of",
    "The function asks this machine whether it has a GPU. Use the arguments alone: device_count is the number of GPUs.",
)
def asks_the_machine(local_rank, device_count):
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if local_rank >= device_count:
        raise ValueError(f"local rank {local_rank}, {device_count} GPUs")
    return torch.device("cuda", local_rank)


@mistake(
    "device_of",
    "Two processes share a GPU where there are more processes than GPUs, and nobody is told. That is asked to be a "
    "ValueError.",
)
def counted_round(local_rank, device_count):
    return torch.device("cuda", local_rank % device_count) if device_count else torch.device("cpu")


@mistake(
    "device_of",
    "A process too many computes on the CPU, and all GPUs wait for it in every step. That is asked to be a ValueError.",
)
def falls_back_to_the_cpu(local_rank, device_count):
    return torch.device("cuda", local_rank) if local_rank < device_count else torch.device("cpu")


@mistake(
    "device_of",
    "Ranks count from 0, so with 2 GPUs the last one is number 1. Your comparison lets one process too many through: "
    "try >= instead of >.",
)
def one_too_many(local_rank, device_count):
    if local_rank > device_count > 0:
        raise ValueError(f"local rank {local_rank}, {device_count} GPUs")
    return torch.device("cuda", local_rank) if device_count else torch.device("cpu")


@mistake(
    "device_of",
    "The error does not say how many GPUs there are and which one was asked for. Put both numbers into its message.",
)
def error_without_numbers(local_rank, device_count):
    if local_rank >= device_count > 0:
        raise ValueError("more processes than GPUs")
    return torch.device("cuda", local_rank) if device_count else torch.device("cpu")


@alternative("device_of")
def by_name(local_rank, device_count):
    names = [f"cuda:{i}" for i in range(device_count)] or ["cpu"] * (local_rank + 1)
    try:
        return torch.device(names[local_rank])
    except IndexError:
        raise ValueError(f"this machine has {device_count} GPUs, none of them is number {local_rank}") from None


@alternative("device_of")
def by_match(local_rank, device_count):
    match device_count:
        case 0:
            return torch.device(type="cpu")
        case n if local_rank < n:
            return torch.device(type="cuda", index=local_rank)
    raise ValueError(f"{local_rank=} {device_count=}")
