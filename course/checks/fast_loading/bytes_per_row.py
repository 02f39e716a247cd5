"""Probe of exercise bytes_per_row."""

import torch

from course.engine.exercise import Answer, Facts, exercise

# columns -> bytes of a row
STRIDES = {1: 8, 100: 512, 127: 512, 128: 1024, 1000: 4096, 1023: 4096, 1024: 8192, 3000: 12288}


@exercise()
def bytes_per_row(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Rows of several lengths, alone and in pages."""
    found = answer(1000, 4096, True, 2)
    yield "a dict with these keys", sorted(map(str, found)) == ["buffer", "bus", "disk", "step"]
    yield "1,000 columns, stride 4096: disk", found["disk"]
    yield "1,000 columns, stride 4096: buffer", found["buffer"]
    yield "1,000 columns, stride 4096: bus", found["bus"]
    yield "1,000 columns, two passes: step", found["step"]
    yield "1,000 columns: whole numbers", all(type(value) is int for value in found.values())
    yield "100 columns, stride 512, alone: disk", answer(100, 512, True, 2)["disk"]
    yield "100 columns, stride 512, in pages: disk", answer(100, 512, False, 2)["disk"]
    yield "1,024 columns, stride 8192, alone: disk", answer(1024, 8192, True, 2)["disk"]
    yield "1,024 columns, stride 8192, in pages", answer(1024, 8192, False, 6)
    columns = sorted(STRIDES)[seed % len(STRIDES)]
    passes = 1 + seed % 97
    for alone in (True, False):
        n_bytes = answer(columns, STRIDES[columns], alone, passes)
        yield f"{columns:,} columns, alone={alone}", n_bytes
