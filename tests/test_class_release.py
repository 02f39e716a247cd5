"""A class's folder: the same verdicts without solutions, nothing of them in it, and nobody's work lost."""

import json
import lzma
import os
import pickle
import re
import subprocess
import sys

import nbformat
import pytest
import torch
from click.testing import CliRunner
from conftest import ROOT
from exercises import EXERCISES

from course.checks import large_batch as check
from course.engine import expected as reference
from course.engine.outcome import Outcome
from course.engine.stops import Raised, Stop
from course.engine.wire import pack, unpack
from course.errors import CourseError
from course.learner.copies import digest
from course.learner.solved import Unsolved
from course.notebook import registry as units
from course.notebook import solutions
from course.notebook.cells import grade_id
from instructor.release import asked, command
from instructor.release import class_folder as class_release

CPU = torch.device("cpu")
UNIT = "03_large_batch"
PART = "2_the_map"


@pytest.fixture
def without_solutions(tmp_path, monkeypatch):
    """A function: {exercise: record} of a unit -> this process works as in a class's folder that holds these facts."""

    def enter(unit, records):
        for module in (solutions, units):
            monkeypatch.setattr(module, "solutions_folder", lambda: tmp_path)
        monkeypatch.setattr(reference, "CHECKS", tmp_path)
        file = reference.facts_file(unit, CPU)
        file.parent.mkdir()
        file.write_bytes(reference.pack_facts(records))
        return file

    return enter


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_recorded_facts_give_the_verdicts_of_the_live_reference(exercise, without_solutions, monkeypatch, tier):
    """The shorter tiers take two mistakes of each exercise, and no alternative.

    Some mistakes of broadcast_naive are told apart by the message of an error alone.
    """
    mistakes = exercise.mistakes()[: None if tier == "all" or exercise.name == "broadcast_naive" else 2]
    monkeypatch.setattr(exercise, "mistakes", lambda: mistakes)
    judge = exercise.at(CPU)
    is_class = judge.asks_for_class()
    right = judge.expected()
    half = dict(list(right.facts.items())[: len(right.facts) // 2])
    seen = [
        right,
        Outcome(half),
        Outcome(half, Raised(Stop.RAISED, "ValueError", "no")),
        Outcome(dict.fromkeys(right.facts)),
    ]
    seen += [Outcome(raised=Raised(Stop.NOT_WRITTEN, "NotImplementedError")), judge.outcome(None, is_class)]
    seen += [known.outcome for known in judge.known_mistakes()]
    seen += [judge.run(answer) for answer in exercise.alternatives()] if tier == "all" else []
    live = [judge.verdict(outcome) for outcome in seen]
    without_solutions(exercise.unit, {exercise.name: judge.record()})
    recorded = exercise.at(CPU)
    assert recorded is not judge and recorded.asks_for_class() is is_class
    assert [recorded.verdict(outcome) for outcome in seen] == live
    assert live[0].correct and any(verdict.mistake for verdict in live)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A class's folder with one unit."""
    dest = tmp_path_factory.mktemp("release") / "class"
    files = class_release.release_files(asked.resolve(only=[UNIT]))
    assert class_release.release(files | class_release.recorded_facts(UNIT), dest) == []
    return dest


ANSWERS = """
def right(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * (batch * accumulation * ranks / base_batch)

def wrong(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * batch / base_batch

for answer in (wrong, right):
    try:
        check.scaled_lr(answer)
    except AssertionError as failed:
        print(failed)
"""


def test_a_class_folder_checks_and_opens_without_solutions(folder, capsys):
    notebook = nbformat.read(folder / "notebooks" / UNIT / f"{PART}.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    first = next(i for i, cell in enumerate(cells) if cell.startswith("check."))
    code = f"""
import json, sys
from course.checks import large_batch as check
{ANSWERS}
import course
assert course.solved(check.scaled_lr) is right
try:
    course.solved(check.LARS).step()
except course.errors.CourseError as error:
    print(error)
assert course.__file__.startswith({str(folder)!r}) and not {{"jupytext", "nbgrader"}} & sys.modules.keys()
for cell in json.loads({json.dumps(json.dumps(cells[: first + 1]))}):
    exec(cell)
"""
    env = os.environ | {"PYTHONPATH": str(folder), "COURSE_DEVICE": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True)
    exec(ANSWERS, {"check": check})
    live = capsys.readouterr().out
    assert "This looks like a known mistake" in live and "scaled_lr: correct" in live
    assert done.stdout.startswith(
        live + "LARS: not solved yet, and this folder holds no reference answer.\nthis needs your answer to LARS"
    )
    assert done.stderr.rstrip().endswith("Not written yet: replace `raise NotImplementedError()`.")


def pairs(text):
    """Every two lines that follow each other and are long enough to be nobody else's."""
    lines = [line.strip() for line in text.splitlines()]
    both = zip(lines, lines[1:], strict=False)
    return {pair for pair in both if min(map(len, pair)) > 8 and len("".join(pair)) > 60}


def test_records_of_machines_and_their_pages_are_in_it():
    names = class_release.given_files().keys()
    records = {path.relative_to(ROOT).as_posix() for path in (ROOT / "recorded").glob("*.json")}
    assert len(records) > 1 and records <= names, "the line beside a claim reads them"
    for page in ("claims", "results", "results-gpu"):
        for link in re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / f"docs/{page}.md").read_text()):
            assert f"docs/{link}" in names, f"docs/{page}.md links to it"


def test_no_solution_no_mistake_and_no_hidden_seed_is_in_it(folder):  # the notebooks: test_build.py
    given = [content.decode() for content in class_release.given_files().values()]
    known = set().union(*map(pairs, given))
    masters = "\n".join(path.read_text() for path in (ROOT / "solutions").glob("*/[0-9]_*.py"))
    for solution in re.findall(r"### BEGIN SOLUTION\n(.*?)\s*### END SOLUTION", masters, re.S):
        assert not pairs(solution) & known
    for wrong_or_right in (ROOT / "solutions").glob("*/answers/*.py"):
        assert not pairs(wrong_or_right.read_text().partition("\n@")[2]) & known  # what comes after the imports
    given += [path.read_text() for path in (folder / "notebooks").rglob("*.ipynb")]
    for hidden in re.findall(r"^check\..*seed=.*$", masters, re.M):
        assert not any(hidden in text for text in given)
    file = folder / reference.facts_file(UNIT, CPU).relative_to(ROOT)
    facts = str(unpack(lzma.decompress(file.read_bytes())))
    for path in (ROOT / "solutions" / UNIT / "answers").glob("*.py"):
        code = path.read_text().partition("\n@")[2].splitlines()
        returns = [line for line in map(str.strip, code) if re.search(r"\breturn\b", line) and line[0] not in "\"'"]
        assert not [line for line in returns if len(line) > 30 and line in facts]  # advice, in quotes, belongs there


def test_a_facts_file_that_does_not_fit_is_one_sentence(without_solutions):
    file = without_solutions(UNIT, {"linear_warmup": {"is_class": False}})
    with pytest.raises(CourseError, match="holds facts of seed 0 alone; leave the seed out"):
        check.linear_warmup(None, seed=5, device="cpu")
    with pytest.raises(CourseError, match=r"looked for recorded facts in .*cuda.facts, found no such file"):
        check.linear_warmup(None, device="cuda")
    with pytest.raises(CourseError, match="looked for the reference answers of 00_none in .*, found none"):
        solutions.load_solutions("00_none")
    good = file.read_bytes()
    for damaged in (b"", good[:-20], lzma.compress(b"x" * 99), lzma.compress(pack([1]))):
        file.write_bytes(damaged)
        reference.load_facts.cache_clear()
        with pytest.raises(CourseError, match="should hold recorded facts, but cannot be read"):
            check.linear_warmup(None, device="cpu")
    (file.parents[1] / "compare.py").write_text("# another version")
    file.write_bytes(good)
    with pytest.raises(CourseError, match="does not match the checks in"):
        check.linear_warmup(None, device="cpu")


def test_what_stands_for_an_unsolved_answer_says_so_when_it_is_used():
    there = pickle.loads(pickle.dumps(Unsolved("LARS")))
    for use in (lambda: there([1], lr=2), lambda: there.step):
        with pytest.raises(CourseError, match="needs your answer to LARS"):
            use()


def test_an_earlier_release_is_renewed_and_nobodys_work_is_lost(tmp_path):
    def notebook(text):
        nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text, id="a")])
        nb.metadata.course = {"sources": digest(nb)}
        return nb

    def texts():
        return {path.relative_to(dest).as_posix(): path.read_text() for path in dest.rglob("*") if path.is_file()}

    dest = tmp_path / "a class"
    first = {"a.py": b"1", "b/old.py": b"1"} | {f"n/{name}.ipynb": notebook("1") for name in "uvwx"}
    assert class_release.release(first, dest) == []
    before = texts()
    assert class_release.release(first, dest) == [] and texts() == before
    for name in "uv":
        mine = notebook("my work")
        mine.metadata.course = notebook("1").metadata.course
        nbformat.write(mine, dest / "n" / f"{name}.ipynb")
    (dest / "mine.txt").write_text("mine")
    second = {"a.py": b"2", "n/u.ipynb": notebook("2"), "n/w.ipynb": notebook("2")}
    assert class_release.release(second, dest) == ["n/u.ipynb", "n/v.ipynb"]
    after = texts()
    assert after.keys() == {".class-release", "a.py", "mine.txt", "n/u.ipynb", "n/v.ipynb", "n/w.ipynb"}
    assert (after["a.py"], after["mine.txt"]) == ("2", "mine") and '"2"' in after["n/w.ipynb"]
    assert "my work" in after["n/u.ipynb"] and "my work" in after["n/v.ipynb"]


@pytest.mark.parametrize("place, words", [("full", "no earlier release"), ("full/a", "is a file")])
def test_a_place_that_will_not_do_is_one_sentence(place, words, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("mine")
    done = CliRunner().invoke(command.release, [str(tmp_path / place)])
    assert isinstance(done.exception, CourseError) and words in str(done.exception)
    assert "\n" not in str(done.exception)
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "a"]


@pytest.fixture(scope="module")
def asked_less(tmp_path_factory):
    """The files of a class that is asked one exercise each of 02/6, 03/2 and 04/4, and none of 03/6."""
    dest = tmp_path_factory.mktemp("less") / "class"
    only = ["02/6", "03/6", "03/2", "04/4"]
    class_release.release(class_release.release_files(asked.resolve("scaled_lr,scatter,mean_and_std", only)), dest)
    return dest


def test_what_is_not_asked_stands_there_solved_and_without_grade_cells(asked_less):
    folders = sorted(path.relative_to(asked_less).as_posix() for path in asked_less.rglob("*.ipynb"))
    assert len(folders) == 4, folders
    notebook = nbformat.read(asked_less / "notebooks" / UNIT / f"{PART}.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = {grade_id(cell): cell for cell in notebook.cells if grade_id(cell)}
    graded = [name for name, cell in cells.items() if cell.metadata.nbgrader.grade]
    assert graded == ["scaled_lr-visible", "scaled_lr-hidden"]
    assert "raise NotImplementedError()" in cells["scaled_lr"].source
    given = cells["exponential_warmup"]
    assert given.metadata.nbgrader.locked and not given.metadata.nbgrader.solution
    assert "NotImplementedError" not in given.source and "SOLUTION" not in given.source
    text = notebook.cells[notebook.cells.index(given) - 1].source
    assert text.startswith("### Exercise ") and "\n\n> **Given here.**" in text and "<details>" not in text
    text = notebook.cells[notebook.cells.index(cells["scaled_lr"]) - 1].source
    assert "Given here" not in text and "<details>" in text


def test_later_cells_get_what_is_given_and_the_learners_answers_in_it(asked_less):
    code = """
import course, torch
from course.checks import data_parallel, fast_loading, large_batch
from course.notebook.registry import load_unit
asked = {e.name for e in load_unit("03_large_batch").exercises if e.asked}
assert asked == {"scaled_lr"}, asked
warmup = course.solved(large_batch.exponential_warmup)
assert callable(warmup) and "given" in warmup.__code__.co_filename, warmup
assert course.solved(large_batch.leave_one_out).__name__ == "leave_one_out"
from course.learner.solved import solved_answers
solved_answers["02_data_parallel", "scatter"] = scatter = lambda *args: "mine"
whole = course.solved(data_parallel.data_parallel)
assert whole.__globals__["scatter"] is scatter and callable(whole.__globals__["gather"])
print("given in silence")
course.solved(large_batch.scaled_lr)
course.solved(large_batch.LARS)
print(type(course.solved(fast_loading.mean_and_std)).__name__)
"""
    env = os.environ | {"PYTHONPATH": str(asked_less), "COURSE_DEVICE": "cpu", "COURSE_ANSWERS": "off"}
    done = subprocess.run([sys.executable, "-c", code], cwd=asked_less, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "given in silence" and said[1].startswith("scaled_lr: not solved yet")
    assert said[2].startswith("LARS: not solved yet"), "a part that was not released and that nothing needs"
    assert said[3:] == ["mean_and_std: not solved yet; using the answer that this folder gives.", "function"]


def test_a_release_says_what_it_asks(asked_less):
    choice = asked.of_release(asked_less)
    assert choice == asked.resolve("scaled_lr,scatter,mean_and_std", ["02/6", "03/6", "03/2", "04/4"])
    assert choice[UNIT] == {"6_from_ratings_to_a_score": frozenset(), PART: {"scaled_lr"}}
    with pytest.raises(CourseError, match="looked for .*asked.json, found none that can be read"):
        asked.of_release(asked_less / "course")


def test_a_release_of_another_version_is_refused(tmp_path):
    for content in ({UNIT: {PART: ["gone"]}}, {UNIT: {"9_gone": []}}, {"09_gone": {}, UNIT: {"1_whole": []}}):
        (tmp_path / "asked.json").write_text(json.dumps({"asked": content}))
        with pytest.raises(
            CourseError, match="asks .* which this version of the course does not have; make a new release"
        ):
            asked.of_release(tmp_path)


def test_a_choice_is_core_or_names_in_units_or_parts():
    core = asked.resolve("core", ["03"])
    exercises = units.load_unit(UNIT).exercises
    assert set().union(*core[UNIT].values()) == {e.name for e in exercises if e.core}
    assert asked.resolve("scaled_lr").keys() == {UNIT}, "units of which nothing is asked are not released"
    assert asked.resolve("fast_loading/gather") == asked.resolve("gather", ["04"])
    everything = asked.resolve("all")
    assert everything.keys() == {*units.units()}
    texts = {name for of_unit in everything.values() for names in of_unit.values() for name in names}
    assert "what_else" in texts, "questions in free text are asked, too"


@pytest.mark.parametrize(
    "ask, only, words",
    [
        ("scaled_rl", [], "no exercise is called 'scaled_rl'; did you mean scaled_lr?"),
        ("gather", [], "2 units have an exercise 'gather'; say data_parallel/gather or fast_loading/gather."),
        ("gather", ["03"], "no exercise is called 'gather'; "),
        ("all", ["3/nothing"], "no part of 03_large_batch is called 'nothing'; "),
        ("core", ["03/6"], "--ask core leaves no exercise to ask in 03_large_batch/6_from_ratings_to_a_score."),
        (",", ["03/6"], "--ask , leaves no exercise to ask"),
    ],
)
def test_a_choice_that_cannot_be_is_one_sentence(ask, only, words):
    with pytest.raises(CourseError) as raised:
        asked.resolve(ask, only)
    assert str(raised.value).startswith(words) and "\n" not in str(raised.value)
