"""Probe of exercise mean_and_std."""

from collections.abc import Sequence
from typing import Any

import torch

from course.checks.fast_loading.batches import Batches, scaled_table
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import Operations, kind_and_device, near, torch_only

SMALL_TYPES = {"float32", "bool", "uint8", "int8", "int16", "int32", "int64"}


@exercise()
def mean_and_std(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Batches of many sizes in one buffer; then columns on which float32 cancels."""
    answer = torch_only(answer)
    rng = torch.Generator().manual_seed(seed)
    columns = 3 + seed % 4
    sizes = [4 + seed % 3, 9, 5, 7]
    rows = sum(sizes)
    table = scaled_table(rng, rows, columns, device)

    def found(sizes: Sequence[int], table: torch.Tensor = table) -> Any:
        return answer(Batches(table, columns, sizes))

    one = Batches(table, columns, [rows])
    result = answer(one)
    yield "returns a tuple or list of two", isinstance(result, (tuple, list)) and len(result) == 2
    kinds = [kind_and_device(part) for part in result]
    yield "mean and std are float32 tensors (D,) on the device of x", kinds
    yield "goes through the batches once", one.passes
    yield "the mean of a single batch", result[0]
    yield "the std of a single batch", result[1]
    yield "does not write into a batch", one.unchanged
    half = rows // 2
    result = found([half, half], table[: 2 * half])
    yield "two batches of one size, the second in the memory of the first: mean", result[0]
    yield "two batches of one size: std", result[1]
    result = found(sizes)
    yield "batches of different sizes: mean", result[0]
    yield "batches of different sizes: std", result[1]
    generator = (batch for batch in Batches(table, columns, sizes))
    yield "the batches of a generator", list(answer(generator))
    yield "batches of one row", list(found([1, *sizes[1:], 1]))
    yield "a single row: its std is 0", list(found([1]))

    operations = Operations()
    batches = Batches(table, columns, sizes, operations)
    with operations:
        answer(batches)
    other_types = sorted(operations.dtypes - SMALL_TYPES)
    yield "tensors of other types than float32 that are made", tried(other_types, sizes)
    small = operations.largest <= max(sizes) * columns
    yield "no tensor is made that is larger than the largest batch", tried(small, sizes)
    yield from _hard_columns(answer, columns, rng, device)


def _hard_columns(
    answer: Answer, columns: int, rng: torch.Generator, device: torch.device
) -> Facts:
    """Whether a mean far larger than the spread costs the digits of the std."""
    sizes = [32, 1, 40, 40, 17, 32, 40, 5, 40, 40]
    hard = torch.rand(sum(sizes), columns + 3, generator=rng)
    hard[:, 0] = 10_000 + 0.1 * torch.randn(len(hard), generator=rng)
    hard[:, 1] = 10_000
    mean, std = answer(Batches(hard.to(device), columns, sizes))
    exact = hard[:, 0].double()
    std_is_right = near(std[0], exact.std(correction=0), relative=0.02)
    yield "mean 10,000 and std 0.1: the std is right to 2 %", tried(std_is_right, columns)
    mean_is_right = near(mean[0], exact.mean(), absolute=0.01)
    yield "mean 10,000 and std 0.1: the mean is right to 0.01", mean_is_right
    yield "a column of nothing but 10,000: the std is at most 0.01", near(std[1], 0, absolute=0.01)
    mean_is_right = near(mean[1], 10_000, absolute=0.01)
    yield "a column of nothing but 10,000: the mean is right to 0.01", mean_is_right
