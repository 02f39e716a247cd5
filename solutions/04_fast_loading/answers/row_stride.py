"""Known mistakes of exercise row_stride, and right answers in other styles."""

import math

from course.checks.engine import alternative, mistake


@mistake("row_stride", "The row has no room for y. It holds columns + 1 values of 4 bytes.")
def room_for_x_alone(columns):
    if columns < 1:
        raise ValueError("no columns")
    return min(1 << (4 * columns - 1).bit_length(), -(-4 * columns // 4096) * 4096)


@mistake("row_stride", "Rows of a few bytes get a memory page each. Up to 4096 bytes the next power of two is enough.")
def whole_memory_pages(columns):
    if columns < 1:
        raise ValueError("no columns")
    return math.ceil(4 * (columns + 1) / 4096) * 4096


@mistake(
    "row_stride",
    "Powers of two go on above 4096 bytes and waste up to half of the file. Take the next multiple of 4096 there.",
)
def powers_for_ever(columns):
    if columns < 1:
        raise ValueError("no columns")
    return 2 ** math.ceil(math.log2(4 * (columns + 1)))


@mistake(
    "row_stride",
    "A row that fills its power of two gets the next one. n.bit_length() belongs to n + 1: take (n - 1).bit_length().",
)
def the_power_after(columns):
    if columns < 1:
        raise ValueError("no columns")
    row = 4 * (columns + 1)
    return 1 << row.bit_length() if row <= 4096 else -(-row // 4096) * 4096


@mistake("row_stride", "A row without columns, or with fewer, gets a stride. Raise a ValueError.")
def any_number(columns):
    row = 4 * (max(columns, 0) + 1)
    return 1 << (row - 1).bit_length() if row <= 4096 else -(-row // 4096) * 4096


@alternative("row_stride")
def doubled_until_it_fits(columns):
    if columns <= 0:
        raise ValueError(columns)
    stride = 8
    while stride < 4096 and stride < 4 * columns + 4:
        stride *= 2
    return stride if stride >= 4 * columns + 4 else 4096 * ((4 * columns + 4 + 4095) // 4096)


@alternative("row_stride")
def the_first_of_all_that_divide(columns):
    if not columns >= 1:
        raise ValueError("a row needs a column")
    values = columns + 1
    powers = (2**k for k in range(1, 11))
    return 4 * next((power for power in powers if power >= values), values + -values % 1024)
