"""Masters -> notebooks: solutions/<unit>/<part>.py -> nbgrader's source, the learner's release, the executed reference.

    python -m course.publish.build [UNIT ...] [--execute]

A master is a percent script; a cell's part in grading is a short mark on its line:

    # %% locked="setup"                        code that the learner must not edit
    # %% solution="lars"                       an exercise, named like its probe in course/checks
    # %% test="lars-visible" points=2          a grade cell; "lars-hidden" holds the hidden seeds
    # %% [markdown] answer="essay" points=4    a text that is graded by hand
    # %% tags=["experiment"]                   a measurement: no graded cell depends on it

Two builds of one master give the same bytes.  An edited learner's notebook is never overwritten.
"""

import argparse
import ast
import hashlib
import importlib
import importlib.util
import re
from pathlib import Path

import jupytext
import nbformat
from nbgrader import preprocessors as nbg

from course.checks.engine import Exercise
from course.errors import CourseError, command
from course.files import write_text
from course.units import parts, solutions_folder, units

ROOT = Path(__file__).parents[2]
NOTEBOOK_LIMIT = 1_000_000  # bytes of an executed notebook
ROLES = {
    "locked": {"locked": True},
    "solution": {"solution": True},
    "test": {"grade": True, "locked": True},
    "answer": {"grade": True, "solution": True},
}
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# nbgrader's own steps of generate_assignment, less those that need a gradebook or add a header
RELEASE_STEPS = (nbg.LockCells, nbg.ClearSolutions, nbg.ClearOutput, nbg.CheckCellMetadata, nbg.ComputeChecksums,
                 nbg.ClearHiddenTests, nbg.ClearMarkScheme, nbg.ComputeChecksums, nbg.CheckCellMetadata)  # fmt: skip
FACTS_LINE = re.compile(
    r"^\*\*Points\*\* (\d+) · (?:\*\*(?:Core|Extra)\*\* · )?"
    r"\*\*Difficulty\*\* [●○]{3} · \*\*Minutes\*\* \d+ · \*\*Lines\*\* \d+$",
    re.M,
)


def source_notebook(unit, part):
    """nbgrader's source version of a part: a notebook with solutions and hidden tests, without outputs.

    Raises: CourseError that lists every fault `lint` finds, and for an unknown unit or part.
    """
    path = solutions_folder() / unit / f"{part}.py"
    if part not in parts(unit):
        raise CourseError(f"{unit} has no part {part!r}; its parts are {', '.join(parts(unit))}.")
    try:
        nb = jupytext.read(path, fmt="py:percent")
        ast.parse(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, SyntaxError, nbformat.ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise CourseError(f"{path.name} is not a percent script in UTF-8: {reason}") from None
    _refuse(path, [fault for number, cell in enumerate(nb.cells) for fault in _lint_marks(number, cell.metadata)])
    for number, cell in enumerate(nb.cells):
        marks = cell.pop("metadata")
        if marks.get("test", "").endswith("-visible"):
            marks.setdefault("tags", ["nbval-check-output"])  # a right answer's report is the same everywhere
        cell.metadata = nbformat.from_dict({"tags": marks["tags"]} if "tags" in marks else {})
        for role in ROLES.keys() & marks.keys():
            cell.metadata.nbgrader = {"schema_version": 3, "grade": False, "solution": False, "locked": False,
                                      "task": False, "grade_id": marks[role], **ROLES[role]}  # fmt: skip
            if "points" in marks:
                cell.metadata.nbgrader["points"] = marks["points"]
        cell.id = grade_id(cell) or f"cell-{number:03d}"
    _refuse(path, lint(nb, forbidden(unit)))
    banner = f"<!-- Built from solutions/{unit}/{part}.py by `make notebooks`: edit that file, not this one. -->\n\n"
    nb.cells[0].source = banner + nb.cells[0].source
    nb.metadata = nbformat.from_dict(METADATA | {"course": {"built_from": f"solutions/{unit}/{part}.py"}})
    nb.metadata.course["sources"] = digest(release_notebook(nb))  # by it `write_release` knows an edited notebook
    nbformat.validate(nb)
    return nb


def _refuse(path, faults):
    if faults:
        raise CourseError(f"{path.name} has {len(faults)} fault(s):\n  " + "\n  ".join(faults))


def release_notebook(source):
    """What the learner gets of a source notebook: stubs for solutions, no hidden test, no marking scheme."""
    nb, resources = nbformat.from_dict(source), {}
    for step in RELEASE_STEPS:
        nb, resources = step().preprocess(nb, resources)
    return nb


def executed_notebook(source, progress=print):
    """`source` run from top to bottom in a fresh kernel, with its outputs.

    Raises: CourseError that names the cell whose code failed.
    """
    from nbclient import NotebookClient  # slow to import; only this function needs it
    from nbclient.exceptions import CellExecutionError

    nb = nbformat.from_dict(source)
    total = sum(cell.cell_type == "code" for cell in nb.cells)
    client = NotebookClient(nb, kernel_name="python3", timeout=1200, record_timing=False, coalesce_streams=True)
    client.on_cell_executed = lambda cell, cell_index, execute_reply: progress(
        f"  cell {execute_reply['content']['execution_count']} of {total}"
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise CourseError(f"a cell of {source.metadata.course.built_from} failed:\n{error}") from None
    nb.metadata = source.metadata
    return nb


def grade_id(cell):
    """The cell's nbgrader id, or None."""
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def forbidden(unit):
    """{exercise: dotted names that its answer may not use} of the checks of `unit`."""
    checks = f"course.checks.{unit[3:]}"
    if importlib.util.find_spec(checks) is None:
        return {}
    found = vars(importlib.import_module(checks)).values()
    return {exercise.name: exercise.forbids for exercise in found if isinstance(exercise, Exercise)}


def lint(nb, forbids):
    """The faults of a source notebook, a sentence each; an empty list if there are none.

    Args:
        forbids: {exercise: dotted names that its check forbids}, which the text has to state.
    """
    ids = [grade_id(cell) for cell in nb.cells if grade_id(cell)]
    faults = [f"{name}: this id stands on more than one cell" for name in sorted({i for i in ids if ids.count(i) > 1})]
    for number, cell in enumerate(nb.cells):
        marks = cell.metadata.get("nbgrader", {})
        name = marks.get("grade_id")
        if marks.get("grade") and not marks.get("points", 0) > 0:
            faults.append(f"{name}: a graded cell needs points above 0")
        if marks.get("solution") and not ("BEGIN SOLUTION" in cell.source and "END SOLUTION" in cell.source):
            faults.append(f"{name}: no ### BEGIN SOLUTION ... ### END SOLUTION, so the learner would get the answer")
        if marks.get("solution") and not marks.get("grade"):
            faults += _lint_exercise(name, nb.cells[:number], nb.cells[number + 1 : number + 3], forbids.get(name, ()))
        if marks.get("grade") and not marks.get("solution"):
            faults += _lint_grade_cell(name, cell.source)
        if "BEGIN HIDDEN TESTS" in cell.source and not (name or "").endswith("-hidden"):
            faults.append(f"cell {number}: a hidden test stands outside a grade cell called <exercise>-hidden")
        if "BEGIN SOLUTION" in cell.source and not marks.get("solution"):
            faults.append(f"cell {number}: a solution stands in a cell without the mark solution or answer")
    return faults or ([] if nb.cells else ["there is no cell in it"])


def _lint_marks(number, marks):
    known = {*ROLES, "points", "tags"}
    unknown = marks.keys() - known - {"lines_to_next_cell"}  # jupytext's own
    faults = [f"cell {number}: unknown mark {name!r}; there are {', '.join(sorted(known))}" for name in unknown]
    for role in ROLES.keys() & marks.keys():
        if not (isinstance(marks[role], str) and re.fullmatch(r"[\w-]+", marks[role])):
            faults.append(
                f"cell {number}: {role}={marks[role]!r} must be a name in quotes, of letters, digits, _ and -"
            )
    if not isinstance(marks.get("points", 1), int):
        faults.append(f"cell {number}: points={marks['points']!r} must be a whole number")
    return faults


def _lint_exercise(name, before, after, forbids):
    faults = []
    if [grade_id(cell) for cell in after] != [f"{name}-visible", f"{name}-hidden"]:
        faults.append(f"{name}: the next two cells must be the tests {name}-visible and {name}-hidden")
    text = before[-1].source if before and before[-1].cell_type == "markdown" else ""
    facts = FACTS_LINE.search(text)
    points = sum(cell.metadata.get("nbgrader", {}).get("points", 0) for cell in after)
    if not facts:
        faults.append(f"{name}: the text before it needs the line "
                      "**Points** 2 · **Difficulty** ●○○ · **Minutes** 10 · **Lines** 6")  # fmt: skip
    elif int(facts[1]) != points:
        faults.append(f"{name}: the text says {facts[1]} points, its grade cells give {points}")
    for needed in ("**Convention**", "**Source**"):
        if needed not in text:
            faults.append(f"{name}: the text before it needs a paragraph that starts with {needed}")
    if text.count("<details>") < 2:
        faults.append(f"{name}: needs at least two hints in <details>, the first a question")
    paragraph = re.search(r"^\*\*Not allowed\*\* .*?(?=\n\n|\Z)", text, re.M | re.S)
    quoted = re.findall(r"`([\w.]+)`", paragraph[0]) if paragraph else []
    stated, enforced = ({path.split(".")[-1] for path in paths} for paths in (quoted, forbids))
    for missing in sorted(enforced - stated):
        faults.append(f"{name}: its check forbids {missing}; the paragraph **Not allowed** must say `{missing}`")
    for idle in sorted(stated - enforced):
        faults.append(f"{name}: the paragraph **Not allowed** says `{idle}`, which its check does not forbid")
    return faults


def _lint_grade_cell(name, source):
    body = ast.parse(source).body
    calls = [node for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    if len(body) != 1 or len(calls) != 1 or not ast.unparse(body[0]).startswith("check."):
        return [f"{name}: a grade cell is one call, check.<exercise>(<answer>), and ends in no other expression"]
    lines = source.strip().splitlines()
    hidden = (lines[0], lines[-1]) == ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
    if name.endswith("-hidden") and not (hidden and "seed=" in source):
        return [f"{name}: needs ### BEGIN HIDDEN TESTS, a call with seed=..., ### END HIDDEN TESTS, and nothing else"]
    if not name.endswith("-hidden") and "seed=" in source:
        return [f"{name}: a seed in a visible cell is known to learners; leave it out"]
    return []


def text_of(nb):
    """The bytes of a notebook file."""
    return nbformat.writes(nb) + "\n"


def write_release(path, nb):
    """Write the learner's notebook `nb` to `path`, unless the one that lies there was edited.

    Returns: "unchanged", "written" or "kept" (it has edits or results; nothing was touched).
    """
    text = text_of(nb)
    if path.exists():
        if path.read_bytes() == text.encode():
            return "unchanged"
        if is_edited(path):
            return "kept"
    write_text(path, text)
    return "written"


def is_edited(path):
    """True if the learner's notebook at `path` holds anything that the build did not write: other sources, outputs,
    pictures."""
    try:
        nb = nbformat.read(path, as_version=4)
        results = any(cell.get("outputs") or cell.get("attachments") for cell in nb.cells)
        return results or nb.metadata.course.sources != digest(nb)
    except Exception:  # whatever it is, the build did not write it
        return True


def digest(nb):
    """A string that changes when the source of any cell does, or its tags."""
    text = "\0".join(f"{cell.metadata.get('tags')} {cell.source}" for cell in nb.cells)
    return hashlib.sha256(text.encode()).hexdigest()


def build(unit, part, root=ROOT):
    """Write source and release of a part below `root`; returns the source notebook and a line on what was done."""
    nb = source_notebook(unit, part)
    source = root / "build" / "source" / unit / f"{part}.ipynb"
    if not source.exists() or source.read_text(encoding="utf-8") != text_of(nb):
        write_text(source, text_of(nb))
    release = root / "notebooks" / unit / f"{part}.ipynb"
    done = write_release(release, release_notebook(nb))
    advice = " (it has your edits or results; rename it to get the new version)" if done == "kept" else ""
    return nb, f"{release.relative_to(root)}: {done}{advice}"


def execute(unit, part, nb):
    """Run the source notebook `nb` and write it with its outputs to solutions/<unit>/<part>.ipynb."""
    done = executed_notebook(nb, progress=lambda text: print(text, end="\r", flush=True))
    text = text_of(done)
    if len(text.encode()) > NOTEBOOK_LIMIT:
        raise CourseError(
            f"the executed {part} has {len(text.encode()):,} bytes, over {NOTEBOOK_LIMIT:,}: draw smaller figures."
        )
    path = solutions_folder() / unit / f"{part}.ipynb"
    write_text(path, text)
    print(f"{unit}/{path.name}: executed, {len(text) // 1000} kB")


@command
def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m course.publish.build", description="Build notebooks from masters.")
    parser.add_argument("unit", nargs="*", help="folders of masters (default: all)")
    parser.add_argument("--execute", action="store_true", help="also run the solved notebook and keep its outputs")
    args = parser.parse_args(argv)
    for unit in args.unit or units():
        for part in parts(unit):
            nb, done = build(unit, part)
            print(done)
            if args.execute:
                execute(unit, part, nb)


if __name__ == "__main__":
    main()
