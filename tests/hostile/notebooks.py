"""Notebooks with other cells, metadata and outputs than the released one."""
# ruff: noqa: F821, F841, B018

from hostile.attack import by_id, extra, file


@file()
def tests_become_answers(place, honest):
    """A test's id on a cell of its own, marked as a solution."""
    for name in ("linear_warmup-visible", "linear_warmup-hidden"):
        by_id(honest)[name].update(source="check.linear_warmup = print", metadata={
            "nbgrader": {"grade_id": name, "solution": True, "grade": False, "locked": False}})  # fmt: skip
    return honest


@file()
def outputs_with_scores(place, honest):
    """Outputs as a test leaves them that gives a share of the points."""
    for one in by_id(honest).values():
        one["outputs"] = [{"output_type": "execute_result", "data": {"text/plain": "2.0"}, "metadata": {},
                           "execution_count": 1}]  # fmt: skip
    return honest


@file()
def another_kernel(place, honest):
    """A kernel that runs what the submission names."""
    honest["metadata"] = {
        "kernelspec": {"name": "bash", "language": "bash", "argv": ["touch", "/tmp/x"], "display_name": "x"}
    }
    return honest


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
