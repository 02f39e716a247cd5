"""Masters -> notebooks: the same bytes every time, current, without a solution for the learner."""

import functools
import re
import resource
import subprocess
import symtable

import nbformat
import pytest
from click.testing import CliRunner
from conftest import ROOT
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from submissions import source

from course.errors import CourseError
from course.learner.copies import digest
from course.notebook.cells import grade_id
from course.notebook.registry import load_part, parts, units
from course.system.files import write_text
from instructor.authoring import build, command, documents, masters
from instructor.grading.folders import course_folders

PARTS = [(unit, part) for unit in units() for part in parts(unit)]
every_part = pytest.mark.parametrize("unit, part", PARTS, ids=["-".join(pair) for pair in PARTS])
every_unit = pytest.mark.parametrize("unit", units())


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A function: unit -> a folder in which its parts were built, once for all tests."""

    @functools.cache
    def folder_of(unit):
        folder = tmp_path_factory.mktemp(unit)
        for part in parts(unit):
            build.build(unit, part, root=folder)
        return folder

    return folder_of


@every_part
def test_release_in_the_repository_is_current(unit, part, built):
    fresh = (built(unit) / "notebooks" / unit / f"{part}.ipynb").read_text()
    mine = ROOT / "notebooks" / unit / f"{part}.ipynb"
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", str(mine)], cwd=ROOT, capture_output=True)
    if changed.returncode == 1:
        pytest.skip("you have worked in this notebook; what is committed is tested in a fresh clone")
    assert mine.read_text() == fresh, "run course build and commit"


@pytest.mark.parametrize("folder", ["notebooks", "solutions"])
def test_there_is_no_notebook_of_a_part_that_is_gone(folder):
    tracked = subprocess.run(["git", "ls-files", f"{folder}/*.ipynb"], cwd=ROOT, capture_output=True, text=True).stdout
    assert {*tracked.split()} <= {f"{folder}/{unit}/{part}.ipynb" for unit, part in PARTS}


@every_unit
def test_release_is_what_nbgrader_itself_would_write(unit, built):
    folder = built(unit)
    config, _ = course_folders(ROOT)
    config.CourseDirectory.update(root=str(folder), source_directory="build/source", release_directory="release")
    config.CourseDirectory.assignment_id = unit
    config.SaveCells.enabled, config.GenerateAssignment.no_database = False, True
    GenerateAssignment(config=config, coursedir=CourseDirectory(config=config)).start()
    for part in parts(unit):
        theirs, ours = (folder / name / unit / f"{part}.ipynb" for name in ("release", "notebooks"))
        assert theirs.read_text() == ours.read_text(), part


@every_part
def test_no_solution_and_no_hidden_test_in_the_release(unit, part):
    release = masters.release_notebook(source(part, unit))
    text = "\n".join(cell.source for cell in release.cells)
    assert not re.search(r"SOLUTION|HIDDEN|MARK SCHEME|seed=\d{2}", text)
    code = "\n".join(cell.source for cell in release.cells if cell.cell_type == "code")  # hints may come close
    for cell in source(part, unit).cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution"):
            for solution in re.findall(r"### BEGIN SOLUTION\n(.*?)\s*### END SOLUTION", cell.source, re.S):
                assert solution.strip() not in code, f"{grade_id(cell)}: the release shows its solution"


@every_part
def test_generated_files_say_so_and_ids_are_stable(unit, part):
    for nb in (source(part, unit), masters.release_notebook(source(part, unit))):
        assert f"Built from solutions/{unit}/{part}.py" in nb.cells[0].source
        assert (nb.metadata.course.unit, nb.metadata.course.part) == (unit, part)
        ids = [cell.id for cell in nb.cells]
        assert len(set(ids)) == len(ids)
        assert all(cell.id == (grade_id(cell) or f"cell-{i:03d}") for i, cell in enumerate(nb.cells))


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


@every_part
def test_graded_cells_do_not_need_an_experiment(unit, part):
    of_experiments, of_others, needed = set(), set(), set()
    for cell in source(part, unit).cells:
        if cell.cell_type == "code":
            made, used = global_names(cell.source)
            if "experiment" in cell.metadata.get("tags", []):
                of_experiments |= made
            else:
                of_others |= made
                needed |= used
    assert not (of_experiments - of_others) & needed, "a grader skips experiments; these names would be missing"


FACTS = "**Points** 2 · **{}** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2"


def test_a_section_with_extra_exercises_alone_says_so():
    texts = ["## One\n\nread", "### a\n\n" + FACTS.format("Extra"), "end of one\n\n## Two",
             "### b\n\n" + FACTS.format("Core"), "### c\n\n" + FACTS.format("Extra"), "## Three\n\nread",
             "## Four · extra"]  # fmt: skip
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text) for text in texts])
    masters._mark_extra_sections(nb)
    marked = [f"## One\n\n{masters.EXTRA}\n\nread", *texts[1:-1], f"## Four · extra\n\n{masters.EXTRA}"]
    assert [cell.source for cell in nb.cells] == marked


@every_part
def test_a_failed_check_does_not_stop_run_all(unit, part):
    cells = masters.release_notebook(source(part, unit)).cells
    checks = [cell for cell in cells if (grade_id(cell) or "").endswith("-visible")]
    assert checks or not load_part(unit, part).exercises
    assert all("raises-exception" in cell.metadata.tags for cell in checks)


def test_edited_notebook_is_kept_and_an_unedited_one_renewed(tmp_path):
    release = masters.release_notebook(masters.source_notebook(*PARTS[0]))
    path = tmp_path / "a.ipynb"
    assert [build.write_release(path, release) for _ in range(2)] == ["written", "unchanged"]
    untouched = path.read_text()
    answered, executed = (nbformat.reads(untouched, as_version=4) for _ in range(2))
    answered.cells[-1].source = "my answer"
    next(c for c in executed.cells if c.cell_type == "code").outputs = [nbformat.v4.new_output("stream", text="hours")]
    release.cells[-1].source += "\nmore"  # the master changes
    release.metadata.course.sources = digest(release)
    for mine in (nbformat.writes(answered), nbformat.writes(executed), "{ broken, but mine"):
        path.write_text(mine)
        assert build.write_release(path, release) == "kept" and path.read_text() == mine
    nbformat.write(nbformat.reads(untouched, as_version=4), path)  # only metadata that JupyterLab writes
    assert build.write_release(path, release) == "written"
    assert list(tmp_path.iterdir()) == [path]


def test_a_unit_or_a_part_can_be_built_alone(tmp_path, monkeypatch):
    unit, part = PARTS[0]
    for function in (build.build, build.remove_gone):
        monkeypatch.setattr(function, "__defaults__", (tmp_path,))
    monkeypatch.setattr(documents.write_documents, "__defaults__", (documents.FOLDER, tmp_path / "docs"))
    for folder in ("notebooks", "build/source"):
        release = masters.release_notebook(masters.source_notebook(unit, part))
        build.write_release(tmp_path / folder / unit / "9_gone.ipynb", release)
    assert command.selected([f"{unit}/{part}", "01"]) == {unit: parts(unit)}
    assert command.selected([]) == {name: parts(name) for name in units()}
    done = CliRunner().invoke(command.build, [f"{unit}/{part}"])
    assert done.exit_code == 0 and done.output.startswith(f"notebooks/{unit}/{part}.ipynb: written")
    assert f"notebooks/{unit}/9_gone.ipynb: removed, its part is gone\n" in done.output
    assert [path.stem for path in tmp_path.rglob("*.ipynb")] == [part, part]
    assert {path.name for path in (tmp_path / "docs").iterdir()} == {
        "claims.md",
        "flip-map.md",
        "results.md",
        "results-gpu.md",
    }


@pytest.mark.parametrize("name, room", [("x" * 300, None), ("a.ipynb", 1000)], ids=["refused name", "full disk"])
def test_what_cannot_be_written_is_one_sentence_and_nothing_is_left(name, room, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room or before[0], before[1]))
    try:
        with pytest.raises(CourseError, match=r"^could not write .*$"):
            write_text(tmp_path / "new" / name, "text" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((tmp_path / "new").iterdir()) == []
