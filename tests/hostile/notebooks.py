"""Notebooks with other cells, metadata and outputs than the released one."""
# ruff: noqa: F821, F841, B018

from hostile.attack import extra, file


@file()
def same_ids(place, honest):
    """Cells of its own with the ids of the grader's."""
    ids = "extra-000", "grader-note", "setup", "scaled_lr", "scaled_lr-hidden"
    honest["cells"] += [{**extra("print(1)"), "id": name} for name in ids]
    return honest


@file()
def nested_source(place, honest):
    """Python that its own parser falls into."""
    honest["cells"].insert(3, extra("(" * 90_000 + ")" * 90_000))
    honest["cells"].insert(3, extra("-" * 90_000 + "1"))
    return honest
