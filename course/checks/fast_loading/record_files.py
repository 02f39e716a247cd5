"""Record files that probes write, whole ones and broken ones."""

import json

PAGE = 4096  # bytes of a record file's header, and of a memory page

# columns -> bytes of a row, of the sizes that probes use
STRIDES = {1: 8, 3: 16, 4: 32, 5: 32, 6: 32, 1000: 4096, 1023: 4096, 1024: 8192, 3071: 12288}


def header(rows, columns, seed, **other):
    """The fields of a header; `other` fields come on top, in place of these where they have the
    same name.
    """
    fields = {"format": "course-records-1", "rows": rows, "columns": columns}
    stride = other.get("stride") or STRIDES[columns]
    return fields | {"stride": stride, "dtype": "float32", "seed": seed} | other


def make_records(path, fields, rows=None, length=None, head=None):
    """Write the header `fields`, or the bytes `head`, and the array `rows` to `path`; cut or filled
    up to `length`.
    """
    head = json.dumps(fields).encode().ljust(PAGE - 1) + b"\n" if head is None else head
    with open(path, "wb") as file:
        file.write(head + (b"" if rows is None else rows.tobytes()))
        file.truncate(file.tell() if length is None else length)
