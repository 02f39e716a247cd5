"""Notebooks with other cells, metadata and outputs than the released one."""
# ruff: noqa: F821, F841, B018

from hostile.attack import SOLVED, by_id, extra, file


@file()
def tags(place, honest):
    """Metadata that makes nbgrader and nbclient skip tests."""
    for one in honest["cells"]:
        one["metadata"]["tags"] = ["skip-execution", "experiment", "raises-exception", "remove-cell"]
    return honest


@file()
def more_points(place, honest):
    """A hundred points for each test, and marks that make them given by hand."""
    for one in by_id(honest).values():
        one["metadata"]["nbgrader"] |= {"points": 100, "locked": False, "solution": True, "grade": True, "task": True}
    return honest


@file()
def tests_edited(place, honest):
    """Tests that test nothing."""
    for name, one in by_id(honest).items():
        if name.endswith(("-visible", "-hidden")):
            one["source"] = "pass"
    return honest


@file()
def everything_twice(place, honest):
    """Duplicated cells, over which plain nbgrader stops the whole batch."""
    honest["cells"] *= 2
    return honest


@file()
def right_answer_in_a_second_copy(place, honest):
    """The untouched stub, then the answer under the same id, then nonsense: the first edited one counts."""
    for name in SOLVED:
        answer = by_id(honest)[name]
        at = honest["cells"].index(answer)
        stub = {**answer, "source": honest["metadata"]["stubs"][name]}
        honest["cells"][at : at + 1] = [stub, answer, {**answer, "source": "1 / 0"}]
    return honest


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
