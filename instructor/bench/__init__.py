"""Measurements that anyone can rerun: `course bench NAME --help`."""

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that `course bench --help` need not import torch
    import torch

    from course.measure.comparison import Comparison

SECONDS_MAX = 3600.0  # of a comparison: its rounds are what ends it


def spread(values: "torch.Tensor", form: str) -> str:
    """The text "median (lowest to highest)" of a tensor, each number in the format `form`."""
    numbers = values.tolist()
    median = statistics.median(numbers)
    return f"{median:{form}} ({min(numbers):{form}} to {max(numbers):{form}})"


def rounds_up_to(most: int) -> tuple[int, int]:
    """The rounds of a comparison, at least and at most."""
    from course.measure.comparison import FEWEST_ROUNDS

    return min(FEWEST_ROUNDS, most), most


def control_line(compared: "Comparison") -> str:
    """What a table says below its ratios: the control, and how many rounds there were."""
    control = f"control, {compared.base} against itself: {compared.control}"
    return f"{control}; {compared.rounds} rounds"
