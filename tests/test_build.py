"""Masters -> notebooks: the same bytes every time, current, without a solution for the learner, faults named."""

import re
import subprocess
import symtable
import sys

import jupytext
import nbformat
import pytest
from conftest import ROOT

from course.errors import CourseError
from course.publish import build

every_unit = pytest.mark.parametrize("unit", build.units())


@every_unit
def test_two_builds_give_the_same_bytes(unit):
    first, second = build.source_notebook(unit), build.source_notebook(unit)
    assert build.text_of(first) == build.text_of(second)
    assert build.text_of(build.release_notebook(first)) == build.text_of(build.release_notebook(second))


@every_unit
def test_release_in_the_repository_is_current(unit, tmp_path):
    build.build(unit, root=tmp_path)
    fresh = (tmp_path / "notebooks" / unit / f"{unit}.ipynb").read_text()
    mine = ROOT / "notebooks" / unit / f"{unit}.ipynb"
    if (
        subprocess.run(["git", "diff", "--quiet", "HEAD", "--", str(mine)], cwd=ROOT, capture_output=True).returncode
        == 1
    ):
        pytest.skip("you have worked in this notebook; what is committed is tested in a fresh clone")
    assert mine.read_text() == fresh, "run make notebooks and commit"


@every_unit
def test_release_is_what_nbgrader_itself_would_write(unit, tmp_path):
    build.build(unit, root=tmp_path)
    options = [
        f"--CourseDirectory.source_directory={tmp_path}/build/source",
        "--CourseDirectory.release_directory=release",
    ]
    call = [
        sys.executable,
        "-m",
        "nbgrader",
        "generate_assignment",
        unit,
        "--no-db",
        f"--CourseDirectory.root={tmp_path}",
        *options,
    ]
    subprocess.run(call, check=True, cwd=ROOT, capture_output=True)
    theirs, ours = (tmp_path / name / unit / f"{unit}.ipynb" for name in ("release", "notebooks"))
    assert theirs.read_text() == ours.read_text()


@every_unit
def test_no_solution_and_no_hidden_test_in_the_release(unit):
    source, release = build.source_notebook(unit), build.release_notebook(build.source_notebook(unit))
    text = "\n".join(cell.source for cell in release.cells)
    assert not re.search(r"SOLUTION|HIDDEN|MARK SCHEME|seed=\d{2}", text)
    code = "\n".join(cell.source for cell in release.cells if cell.cell_type == "code")  # hints may come close
    for cell in source.cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution"):
            for solution in re.findall(r"### BEGIN SOLUTION\n(.*?)\s*### END SOLUTION", cell.source, re.S):
                assert solution.strip() not in code, f"{build.grade_id(cell)}: the release shows its solution"


@every_unit
def test_generated_files_say_so_and_ids_are_stable(unit):
    for nb in (build.source_notebook(unit), build.release_notebook(build.source_notebook(unit))):
        assert f"Built from solutions/{unit}.py" in nb.cells[0].source
        ids = [cell.id for cell in nb.cells]
        assert len(set(ids)) == len(ids)
        assert all(cell.id == (build.grade_id(cell) or f"cell-{i:03d}") for i, cell in enumerate(nb.cells))


def global_names(source):
    """(made, used): the global names that a cell assigns, and those that it reads, in functions too."""
    made, used = set(), set()
    tables = [symtable.symtable(source, "cell", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table.get_type() == "module" and symbol.is_assigned():
                made.add(symbol.get_name())
            if symbol.is_referenced() and (table.get_type() == "module" or symbol.is_global()):
                used.add(symbol.get_name())
    return made, used


@every_unit
def test_graded_cells_do_not_need_an_experiment(unit):
    of_experiments, of_others, needed = set(), set(), set()
    for cell in build.source_notebook(unit).cells:
        if cell.cell_type == "code":
            made, used = global_names(cell.source)
            if "experiment" in cell.metadata.get("tags", []):
                of_experiments |= made
            else:
                of_others |= made
                needed |= used
    assert not (of_experiments - of_others) & needed, "a grader skips experiments; these names would be missing"


@every_unit
def test_every_exercise_has_a_probe_and_every_probe_an_exercise(unit):
    from exercises import EXERCISES

    cells = [cell.metadata.get("nbgrader", {}) for cell in build.source_notebook(unit).cells]
    asked = {marks["grade_id"] for marks in cells if marks.get("solution") and not marks.get("grade")}
    assert asked == {e.name for e in EXERCISES if e.unit == unit}


def test_edited_notebook_is_kept_and_an_unedited_one_renewed(tmp_path):
    unit = build.units()[0]
    release = build.release_notebook(build.source_notebook(unit))
    path = tmp_path / "a.ipynb"
    assert build.write_release(path, release) == "written"
    assert build.write_release(path, release) == "unchanged"
    release.cells[-1].source += "\nmore"  # the master changed
    release.metadata.course.sources = build.digest(release)
    assert build.write_release(path, release) == "written"
    mine = nbformat.read(path, as_version=4)
    mine.cells[-1].source = "my answer"
    nbformat.write(mine, path)
    before = path.read_bytes()
    release.cells[-1].source += "\nand more"
    release.metadata.course.sources = build.digest(release)
    assert build.write_release(path, release) == "kept"
    mine = release.copy()
    nbformat.write(mine, path)
    release.metadata.course.sources = "of a newer master"
    assert build.write_release(path, release) == "written", "only metadata that JupyterLab writes"
    mine = nbformat.read(path, as_version=4)
    mine.metadata.course.sources = build.digest(mine)
    next(c for c in mine.cells if c.cell_type == "code").outputs = [nbformat.v4.new_output("stream", text="hours")]
    nbformat.write(mine, path)
    before = path.read_bytes()
    assert build.write_release(path, release) == "kept", "results are the learner's too"
    path.write_text("{ broken, but mine")
    assert build.write_release(path, release) == "kept"
    assert path.read_text() == "{ broken, but mine"
    path.write_bytes(before)
    assert list(tmp_path.iterdir()) == [path]


GOOD = """# %% [markdown]
# ### Exercise 1
#
# **Points** 2 · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 1
#
# **Convention** from 0. **Source** none.
# <details><summary>1</summary>?</details>
# <details><summary>2</summary>!</details>

# %% solution="f"
def f(x):
    ### BEGIN SOLUTION
    return x
    ### END SOLUTION

# %% test="f-visible" points=1
check.f(f)

# %% test="f-hidden" points=1
### BEGIN HIDDEN TESTS
check.f(f, seed=5)
### END HIDDEN TESTS
"""


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("", "", None),
        ("points=1\ncheck", "points=2\ncheck", "the text says 2 points, its grade cells give 3"),
        ("points=1\ncheck", "\ncheck", "needs points above 0"),
        ('test="f-hidden"', 'test="f-visible"', "stands on more than one cell"),
        ('test="f-hidden"', 'test="f-other"', "must be the tests f-visible and f-hidden"),
        ("### BEGIN SOLUTION", "", "the learner would get the answer"),
        ("**Minutes** 5 · ", "", "needs the line"),
        ("**Source** none.", "", "**Source**"),
        ("**Convention** from 0.", "", "**Convention**"),
        ("# <details><summary>2</summary>!</details>", "#", "at least two hints"),
        ("# <details>", "#\n# **Not allowed** `torch.sum`.\n#\n# <details>", "`sum`, which its check does not forbid"),
        ("check.f(f)\n", "check.f(f)\nf(1)\n", "is one call"),
        ("check.f(f)\n", "f(1)\n", "is one call"),
        (", seed=5", "", "needs ### BEGIN HIDDEN TESTS"),
        ("### BEGIN HIDDEN TESTS\n", "# seed=5 is known\n### BEGIN HIDDEN TESTS\n", "and nothing else"),
        ("check.f(f)\n", "check.f(f, seed=5)\n", "a seed in a visible cell"),
        ("solution=", "solutoin=", "unknown mark 'solutoin'"),
        ('solution="f"', "", "a solution stands in a cell without the mark"),
        ('test="f-visible"', "test=5", "test=5 must be a name in quotes"),
        ('"f-visible" points=1', '"f-visible" points="1"', "points='1' must be a whole number"),
        ('"f-visible" points=1', '"f-visible" points=1 tags="x"', "'x' is not of type 'array'"),
        ("return x", "return x(", "is not a percent script in UTF-8"),
        (GOOD, "", "there is no cell in it"),
    ],
)
def test_lint_names_each_fault(old, new, words, tmp_path, monkeypatch):
    assert old in GOOD
    (tmp_path / "00_a.py").write_text(GOOD.replace(old, new, 1))
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path))
    if words is None:
        nb = build.source_notebook("00_a")
        assert [build.grade_id(cell) for cell in nb.cells] == [None, "f", "f-visible", "f-hidden"]
    else:
        with pytest.raises(CourseError, match=re.escape(words)):
            build.source_notebook("00_a")


def test_what_a_check_forbids_is_said_in_the_task(tmp_path, monkeypatch):
    text = (build.solutions_folder() / "03_large_batch.py").read_text()
    (tmp_path / "03_large_batch.py").write_text(text.replace("**Not allowed** `torch.amp.GradScaler`", "Try without"))
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path))
    with pytest.raises(CourseError, match="LossScaler: its check forbids GradScaler; .* must say `GradScaler`"):
        build.source_notebook("03_large_batch")


def test_unknown_unit_is_one_sentence():
    done = subprocess.run([sys.executable, "-m", "course.publish.build", "33_nothing"], capture_output=True, text=True)
    assert done.returncode == 1
    assert (
        done.stderr.startswith("error: no unit is called '33_nothing'; the units are ") and done.stderr.count("\n") == 1
    )


@pytest.mark.parametrize("name, room", [("x" * 300, None), ("a.ipynb", 1000)], ids=["refused name", "full disk"])
def test_what_cannot_be_written_is_one_sentence_and_nothing_is_left(name, room, tmp_path):
    code = (
        "import resource, sys; from pathlib import Path; from course.files import write_text;"
        "from course.errors import command;"
        f"room = {room}; room and resource.setrlimit(resource.RLIMIT_FSIZE, (room, room));"
        f"command(write_text)(Path({str(tmp_path)!r}) / 'new' / {name!r}, 'text' * 1000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: could not write ") and done.stderr.count("\n") == 1
    assert list((tmp_path / "new").iterdir()) == []


def test_a_folder_without_masters_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path))
    with pytest.raises(CourseError, match="looked for masters in .*, found none"):
        build.units()


def test_masters_are_plain_percent_scripts():
    for unit in build.units():
        path = build.solutions_folder() / f"{unit}.py"
        assert jupytext.reads(path.read_text(), fmt="py:percent").cells, f"{path} cannot be read"
