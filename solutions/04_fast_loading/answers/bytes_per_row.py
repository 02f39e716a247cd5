"""Known mistakes of exercise bytes_per_row, and right answers in other styles."""

from course.checks.engine import alternative, mistake


def _ledger(columns, stride, alone, passes, **other):
    """The right ledger, with some hops replaced."""
    right = {"disk": max(stride, 4096) if alone else stride, "buffer": 2 * stride, "bus": stride}
    return right | {"step": passes * 4 * columns} | other


@mistake(
    "bytes_per_row", "A row alone is counted with its stride, and a disk is read in whole memory pages of 4096 bytes."
)
def stride_alone(columns, stride, alone, passes):
    return _ledger(columns, stride, alone, passes, disk=stride)


@mistake(
    "bytes_per_row",
    "A row that is read with its neighbours is charged with a whole memory page. They share it: count the stride.",
)
def always_a_page(columns, stride, alone, passes):
    return _ledger(columns, stride, alone, passes, disk=max(stride, 4096))


@mistake("bytes_per_row", "A row of more than 4096 bytes touches several memory pages. Alone, it brings all of them.")
def one_page_each(columns, stride, alone, passes):
    return _ledger(columns, stride, alone, passes, disk=4096 if alone else stride)


@mistake(
    "bytes_per_row", "Padding is left out of the copies: the buffer holds rows as the file does, stride by stride."
)
def without_padding(columns, stride, alone, passes):
    row = 4 * (columns + 1)
    return _ledger(columns, stride, alone, passes, buffer=2 * row, bus=row)


@mistake(
    "bytes_per_row",
    "The bus is charged with x alone. The buffer is copied as it is: y and padding go along, the stride.",
)
def bus_of_x(columns, stride, alone, passes):
    return _ledger(columns, stride, alone, passes, bus=4 * columns)


@mistake("bytes_per_row", "The bus is charged without padding. The buffer is copied as it is, stride by stride.")
def bus_without_padding(columns, stride, alone, passes):
    return _ledger(columns, stride, alone, passes, bus=4 * (columns + 1))


@mistake("bytes_per_row", "The passes of a step go through x; y, one value per row, is not asked for here.")
def step_with_y(columns, stride, alone, passes):
    return _ledger(columns, stride, alone, passes, step=passes * 4 * (columns + 1))


@mistake("bytes_per_row", "A copy reads and writes: the buffer counts twice.")
def copy_counts_once(columns, stride, alone, passes):
    return _ledger(columns, stride, alone, passes, buffer=stride)


@mistake("bytes_per_row", "The step reads x, without the padding between rows.")
def step_with_padding(columns, stride, alone, passes):
    return _ledger(columns, stride, alone, passes, step=passes * stride)


@mistake("bytes_per_row", "Columns are values of 4 bytes each; the step counts bytes.")
def step_in_values(columns, stride, alone, passes):
    return _ledger(columns, stride, alone, passes, step=passes * columns)


@alternative("bytes_per_row")
def in_whole_pages(columns, stride, alone, passes):
    disk = -(-stride // 4096) * 4096 if alone else stride
    return dict(disk=disk, buffer=stride + stride, bus=stride, step=4 * columns * passes)


@alternative("bytes_per_row")
def by_cases(columns, stride, alone, passes):
    ledger = {"step": passes * columns * 4}
    ledger["bus"] = ledger["disk"] = stride
    ledger["buffer"] = stride * 2
    if alone and stride < 4096:
        ledger["disk"] = 4096
    return ledger
