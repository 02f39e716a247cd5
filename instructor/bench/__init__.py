"""Measurements that anyone can rerun: `course bench NAME --help`."""

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that `course bench --help` need not import torch
    import torch


def spread(values: "torch.Tensor", form: str) -> str:
    """The text "median (lowest to highest)" of a tensor, each number in the format `form`."""
    numbers = values.tolist()
    median = statistics.median(numbers)
    return f"{median:{form}} ({min(numbers):{form}} to {max(numbers):{form}})"
