"""Record files that probes write, whole ones and broken ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np

PAGE_BYTES = 4096  # of a record file's header, and of a memory page

# columns -> bytes of a row, of the sizes that probes use
STRIDES = {1: 8, 3: 16, 4: 32, 5: 32, 6: 32, 1000: 4096, 1023: 4096, 1024: 8192, 3071: 12288}


def header(rows: int, columns: int, seed: int, **other: Any) -> dict[str, Any]:
    """The fields of a header; `other` fields replace those of the same name, or are added."""
    stride = other.get("stride") or STRIDES[columns]
    fields = {
        "format": "course-records-1",
        "rows": rows,
        "columns": columns,
        "stride": stride,
        "dtype": "float32",
        "seed": seed,
    }
    return fields | other


def make_records(
    path: Path,
    fields: dict[str, Any] | None,
    rows: np.ndarray | None = None,
    length: int | None = None,
    head: bytes | None = None,
) -> None:
    """Write the header `fields`, or the bytes `head`, and the array `rows` to `path`.

    Args:
        length: to which the file is cut or filled up with zeros, in bytes.
    """
    if head is None:
        head = json.dumps(fields).encode().ljust(PAGE_BYTES - 1) + b"\n"
    with open(path, "wb") as file:
        file.write(head)
        if rows is not None:
            file.write(rows.tobytes())
        file.truncate(file.tell() if length is None else length)
