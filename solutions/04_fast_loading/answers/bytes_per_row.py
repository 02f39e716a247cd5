"""Known mistakes of exercise bytes_per_row, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "stride_alone": (
        "A row alone is counted with its stride, and a disk is read in whole memory pages of 4096 bytes.",
        ("max(stride, 4096) if alone else stride", "stride"),
    ),
    "always_a_page": (
        "A row that is read with its neighbours is charged with a whole memory page. They share it: count the stride.",
        (" if alone else stride", ""),
    ),
    "disk_without_padding": (
        "A row that is read with its neighbours is charged without its padding. The disk reads that too: count the "
        "stride.",
        ("if alone else stride", "if alone else 4 * (columns + 1)"),
    ),
    "one_page_each": (
        "A row of more than 4096 bytes touches several memory pages. Alone, it fetches all of them.",
        ("max(stride, 4096)", "4096"),
    ),
    "without_padding": (
        "Padding is left out of the copies: the buffer holds rows as the file does, stride by stride.",
        ("2 * stride", "8 * (columns + 1)"),
        ('"bus": stride', '"bus": 4 * (columns + 1)'),
    ),
    "bus_of_x": (
        "The bus is charged with x alone. The buffer is copied as it is: y and padding go along, the stride.",
        ('"bus": stride', '"bus": 4 * columns'),
    ),
    "bus_without_padding": (
        "The bus is charged without padding. The buffer is copied as it is, stride by stride.",
        ('"bus": stride', '"bus": 4 * (columns + 1)'),
    ),
    "step_with_y": (
        "The passes of a step go through x; y, one value per row, is not asked for here.",
        ("4 * columns", "4 * (columns + 1)"),
    ),
    "copy_counts_once": ("A copy reads and writes: the buffer counts twice.", ("2 * stride", "stride")),
    "step_with_padding": ("The step reads x, without the padding between rows.", ("4 * columns", "stride")),
    "step_in_values": ("Columns are values of 4 bytes each; the step counts bytes.", ("4 * columns", "columns")),
}


@alternative
def in_whole_pages(columns, stride, alone, passes):
    disk = -(-stride // 4096) * 4096 if alone else stride
    return dict(disk=disk, buffer=stride + stride, bus=stride, step=4 * columns * passes)


@alternative
def by_cases(columns, stride, alone, passes):
    ledger = {"step": passes * columns * 4}
    ledger["bus"] = ledger["disk"] = stride
    ledger["buffer"] = stride * 2
    if alone and stride < 4096:
        ledger["disk"] = 4096
    return ledger
