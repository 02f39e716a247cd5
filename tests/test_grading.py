"""A real nbgrader round trip: release, submit, autograde, feedback; full marks, none, and part of them."""

import itertools
import re
import shutil
import subprocess

import forks
import nbformat
import pytest
from conftest import ROOT
from exercises import EXERCISES
from submissions import UNIT, alternatives_source, part_of, release, solved, source

from course.notebook.cells import grade_id
from course.notebook.registry import parts, units
from course.system.files import write_text
from instructor.authoring import build, masters
from instructor.grading import command as grade_command
from instructor.grading import demo, gradebook
from instructor.grading.gradebook import scores

NOISE = """import functools, logging, os, sys, warnings
logging.basicConfig(stream=sys.stderr)
def noisy(answer):
    @functools.wraps(answer)
    def call(*args, **kwargs):
        print("print"); warnings.warn("warn"); logging.warning("log"); os.write(2, b"descriptor\\n")
        return answer(*args, **kwargs)
    return call
"""


every_unit = pytest.mark.parametrize("unit", units())
SILENT = ("lightning_fit",)  # exercises whose task asks that nothing is printed


def solutions(notebook):
    """{exercise or text: its solution cell} of a notebook."""
    marked = (cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution"))
    return {grade_id(cell): cell for cell in marked}


def answered_by(kind, source):
    """Names of the exercises of a notebook whose answer is a "def" or a "class"."""
    return [n for n in solutions(source) if any(re.match(rf"{kind} {n}\b", c.source) for c in source.cells)]


def share(cells):
    return sum(score for score, _ in cells.values()) / sum(points for _, points in cells.values())


def noisy_solved(unit, part):
    """The solved notebook; what functions answer prints and warns."""
    nb = solved(part, unit)
    for name in answered_by("def", source(part, unit)):
        if name not in SILENT:
            solutions(nb)[name].source += f"\n{NOISE}\n{name} = noisy({name})"
    return nb


def other_styles(unit, part):
    """The released notebook with the first alternative of each exercise; functions print."""
    nb = release(part, unit)
    functions, ours = answered_by("def", source(part, unit)), {e.name: e for e in EXERCISES if e.unit == unit}
    for name, cell in solutions(nb).items():
        if name in ours:
            first = ours[name].alternatives()[0].__name__
            noise = f"{NOISE}\n{name} = noisy({first})" if name in functions and name not in SILENT else ""
            cell.source = f"{alternatives_source(ours[name])}\n{noise or f'{name} = {first}'}"
    return nb


def breakable(unit, part):
    """Functions that a submission can lack without harm to another answer of the part."""
    nb = source(part, unit)
    used = {n for name, cell in solutions(nb).items() for n in re.findall(r"\b(\w+)\(", cell.source) if n != name}
    return [name for name in answered_by("def", nb) if name not in used]


def parts_to_break(unit):
    """The parts with the most to break, as many as it takes for three and some that nobody begins."""
    by_most = sorted(parts(unit), key=lambda part: -len(breakable(unit, part)))
    counts = itertools.accumulate(len(breakable(unit, part)) for part in by_most)
    return by_most[: 1 + next(i for i, count in enumerate(counts) if count >= 5)]


def begun(unit, chosen):
    """({part: notebook}, names that are right, names untouched): every second exercise is solved, three are broken.

    One is no Python, one ends the process, one is an empty cell.
    """
    names = [name for part in chosen for name in solutions(source(part, unit))]
    broken = [name for part in chosen for name in breakable(unit, part)][:3]
    tried = {*names[::2], *broken}
    notebooks = {part: release(part, unit) for part in chosen}
    answers = {name: cell.source for part in chosen for name, cell in solutions(source(part, unit)).items()}
    no_python, ends_the_process, empty = broken
    answers[no_python] = "def this is not Python"
    answers[ends_the_process] = f"def {ends_the_process}(*args, **kwargs):\n    raise SystemExit"
    answers[empty] = ""
    for nb in notebooks.values():
        for name, cell in solutions(nb).items():
            if name in tried:
                cell.source = answers[name]
    there = tried - {*broken}
    missing = {*names} - there
    functions = {name for part in chosen for name in answered_by("def", source(part, unit))}
    called = {name: {*re.findall(r"\b(\w+)\(", answers[name])} - {name} for name in functions & there}
    right = there - {name for name, names_called in called.items() if names_called & missing}
    return notebooks, right, {*names} - tried


def hand_in(folder, learner, unit, notebooks):
    for part, nb in notebooks.items():
        write_text(folder / "submitted" / learner / unit / f"{part}.ipynb", masters.text_of(nb))


def errors(folder):
    """The messages of all exceptions in the notebooks of a folder."""
    cells = [cell for path in folder.glob("*.ipynb") for cell in nbformat.read(path, as_version=4).cells]
    return " ".join(output.get("evalue", "") for cell in cells for output in cell.get("outputs", []))


def graded_here(inbox, unit, root, theirs, capfd):
    """{learner: {grade cell: (score, points)}} by `course grade`, for cells alone that `theirs` has scores of.

    It counts parts not handed in, too.  Who is not in `theirs` has the cells of the submission that was begun.
    """
    grade_command.grade.main([str(inbox), "--unit", unit, "--course", str(root)], standalone_mode=False)
    checks = len([cell for cell in theirs["begun"] if cell.endswith(("-visible", "-hidden"))])
    said = capfd.readouterr().out
    assert re.search(rf" {checks}/{checks} .*right answers", said), "only parts that were handed in are asked"
    found = scores(unit, root)
    return {who: {cell: found[who][cell] for cell in theirs.get(who, theirs["begun"])} for who in found}


@every_unit
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_class_is_graded(unit, tmp_path, tier, one_zygote, capfd, monkeypatch):
    """One round for all, since nbgrader takes seconds to start: a solved, an untouched, a begun and broken submission.

    Then the last two, and right answers in other styles, by `course grade`.  Right answers print and warn in both.
    The last tier takes all parts of the unit, shorter ones those with the most answers to break: `make demo` has graded
    all parts, solved and untouched.  Those grade an untouched submission of one unit alone, of which nbgrader itself
    makes the gradebook and the pages of feedback.
    """
    whole = unit == UNIT or tier == "all"
    chosen = parts(unit) if tier == "all" else parts_to_break(unit)
    begun_notebooks, right, untouched = begun(unit, chosen)
    hand_in(tmp_path, "solved", unit, {part: noisy_solved(unit, part) for part in chosen})
    hand_in(tmp_path, "begun", unit, begun_notebooks)
    if whole:
        hand_in(tmp_path, "untouched", unit, {part: release(part, unit) for part in chosen})
    monkeypatch.setattr(demo, "NBGRADER", forks.python("nbgrader"))
    monkeypatch.setattr("nbgrader.api.get_alembic_version", lambda: "0")  # it starts a program, which takes seconds
    if whole:
        for part in chosen:
            build.build(unit, part, root=tmp_path)
        demo.nbgrader("generate_assignment", unit, tmp_path)
    else:
        gradebook.prepare(unit, tmp_path, {part: source(part, unit) for part in chosen})
    for action in ("autograde", *["generate_feedback"] * whole):
        demo.nbgrader(action, unit, tmp_path)
    theirs = scores(unit, tmp_path)

    # output of an answer costs no points, a broken or missing one its own only
    assert share(theirs["solved"]) == 1 and (not whole or share(theirs["untouched"]) == 0)
    full = {cell.rsplit("-", 1)[0] for cell, (score, points) in theirs["begun"].items() if score == points}
    assert full == right & {cell.rsplit("-", 1)[0] for cell in theirs["begun"]}
    left = {cell: score for cell, (score, _) in theirs["begun"].items() if cell.rsplit("-", 1)[0] in untouched}
    assert left and not any(left.values()), "what is not begun has no point"

    said = {who: errors(tmp_path / "autograded" / who / unit) for who in theirs}
    assert "Not written yet" in said["begun"] and "SystemExit" in said["begun"]
    if whole:
        pages = [page.read_text() for page in (tmp_path / "feedback" / "untouched" / unit).iterdir()]
        assert len(pages) == len(chosen) and all("Not written yet" in page for page in pages)
    for part in chosen:
        nb = nbformat.read(tmp_path / "autograded" / "solved" / unit / f"{part}.ipynb", as_version=4)
        experiments = [cell for cell in nb.cells if "experiment" in cell.metadata.get("tags", [])]
        assert all(not cell.get("outputs") for cell in experiments), "experiments are not run when grading"

    hand_in(tmp_path, "other", unit, {part: other_styles(unit, part) for part in chosen})
    shutil.rmtree(tmp_path / "submitted" / "solved")  # its points are those of the alternatives
    ours = graded_here(tmp_path / "submitted", unit, tmp_path / "ours", theirs, capfd)
    checked = {cell: found for cell, found in ours.pop("other").items() if cell.endswith(("-visible", "-hidden"))}
    assert {cell for cell, (score, points) in checked.items() if score < points} == set(), (
        "other styles keep full marks"
    )
    del theirs["solved"]
    assert ours == theirs, "the verdicts of course grade are nbgrader's"


def test_validate_of_nbgrader_agrees(tmp_path):
    """One part, since parts differ in what they ask, not in how a check speaks to nbgrader."""
    nb = solved(part_of("scaled_lr"), UNIT)
    nb.cells = [c for c in nb.cells if "experiment" not in c.metadata.get("tags", [])]  # nbval runs those
    (tmp_path / "solved.ipynb").write_text(masters.text_of(nb))
    call = forks.python("nbgrader", "validate", str(tmp_path / "solved.ipynb"))
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert re.search(r"Success! Your notebook passes all the tests", done.stdout + done.stderr), done.stdout[-2000:]


def test_failed_command_is_one_sentence_with_the_end_of_the_log(tmp_path):
    from course.errors import CourseError

    with pytest.raises(CourseError, match=r"nbgrader autograde 99_none failed \(exit code 1\)"):
        demo.nbgrader("autograde", "99_none", tmp_path)
