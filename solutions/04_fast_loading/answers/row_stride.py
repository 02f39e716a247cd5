"""Known mistakes of exercise row_stride, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "room_for_x_alone": (
        "The row has no room for y. It holds columns + 1 values of 4 bytes.",
        ("4 * (columns + 1)", "4 * columns"),
        ("4 << columns.bit_length()", "1 << (row - 1).bit_length()"),
    ),
    "whole_memory_pages": (
        "Rows of a few bytes get a memory page each. Up to 4096 bytes the next power of two is enough.",
        ("min(4 << columns.bit_length(), ", "("),
    ),
    "powers_for_ever": (
        "Powers of two continue above 4096 bytes and waste up to half of the file. Take the next multiple of 4096 "
        "there.",
        ("min(4 << columns.bit_length(), -(-row // PAGE) * PAGE)", "4 << columns.bit_length()"),
    ),
    "the_power_after": (
        "A row that fills its power of two gets the next one: n.bit_length() is for n + 1. Take (n - 1).bit_length().",
        ("4 << columns.bit_length()", "1 << row.bit_length()"),
    ),
    "any_number": (
        "A row without columns, or with fewer, gets a stride. Raise a ValueError.",
        ("columns < 1", "False"),
    ),
}


@alternative
def doubled_until_it_fits(columns):
    if columns <= 0:
        raise ValueError(columns)
    stride = 8
    while stride < 4096 and stride < 4 * columns + 4:
        stride *= 2
    return stride if stride >= 4 * columns + 4 else 4096 * ((4 * columns + 4 + 4095) // 4096)


@alternative
def the_first_of_all_that_divide(columns):
    if not columns >= 1:
        raise ValueError("a row needs a column")
    values = columns + 1
    powers = (2**k for k in range(1, 11))
    return 4 * next((power for power in powers if power >= values), values + -values % 1024)
