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
from conftest import ROOT
from exercises import EXERCISES

from course.checks import expected as reference
from course.checks import large_batch as check
from course.checks.engine import Outcome
from course.checks.limits import NOTHING_YET, Raised
from course.checks.solved import Unsolved
from course.checks.wire import unpack
from course.errors import CourseError
from course.publish import release as class_release
from course.publish.build import digest, release_notebook, source_notebook
from course.units import units

CPU = torch.device("cpu")
UNIT = "03_large_batch"
SLOW = {"02_data_parallel", "LFWDataset", "batch_grid", "batch_plan", "seed_worker", "sample_seed", "write_records",
        "Records", "quasi_random_order", "PageReader", "read_ahead"}  # seconds a mistake  # fmt: skip


@pytest.fixture
def without_solutions(tmp_path, monkeypatch):
    """A function: {exercise: record} of a unit -> this process works as in a class's folder that holds these facts."""

    def enter(unit, records):
        monkeypatch.setattr(reference, "solutions_folder", lambda: tmp_path)
        monkeypatch.setattr(reference, "CHECKS", tmp_path)
        file = reference.facts_file(unit, CPU)
        file.parent.mkdir()
        file.write_bytes(reference.pack_facts(records))
        return file

    return enter


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_recorded_facts_give_the_verdicts_of_the_live_reference(exercise, without_solutions, monkeypatch):
    slow = {exercise.unit, exercise.name} & SLOW
    mistakes = exercise.mistakes()[: 1 if slow else None]
    monkeypatch.setattr(exercise, "mistakes", lambda: mistakes)
    is_class = exercise.asks_for_class(CPU, 0)
    right = exercise.expected(CPU, 0)
    half = dict(list(right.facts.items())[: len(right.facts) // 2])
    seen = [right, Outcome(half), Outcome(half, Raised("ValueError", "stopped")), Outcome(dict.fromkeys(right.facts))]
    seen += [Outcome(raised=Raised("NotImplementedError", NOTHING_YET)), exercise.outcome(None, CPU, 0, None, is_class)]
    seen += [outcome for _, _, outcome in exercise.known_mistakes(CPU, 0)]
    seen += [] if slow else [exercise.outcome(answer, CPU, 0) for answer in exercise.alternatives()]
    live = [exercise.verdict(outcome, CPU, 0) for outcome in seen]
    without_solutions(exercise.unit, {exercise.name: exercise.record(CPU)})
    assert exercise.asks_for_class(CPU, 0) is is_class
    assert [exercise.verdict(outcome, CPU, 0) for outcome in seen] == live
    assert live[0].correct and any(verdict.mistake for verdict in live)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A class's folder with one unit."""
    dest = tmp_path_factory.mktemp("release") / "class"
    notebook = {f"notebooks/{UNIT}/{UNIT}.ipynb": release_notebook(source_notebook(UNIT))}
    assert (
        class_release.release(class_release.given_files() | notebook | class_release.recorded_facts(UNIT), dest) == []
    )
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
    notebook = nbformat.read(folder / "notebooks" / UNIT / f"{UNIT}.ipynb", as_version=4)
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
    assert done.stderr.rstrip().endswith("Nothing here yet: raise NotImplementedError() stands where your code goes.")


def pairs(text):
    """Every two lines that follow each other and are long enough to be nobody else's."""
    lines = [line.strip() for line in text.splitlines()]
    both = zip(lines, lines[1:], strict=False)
    return {pair for pair in both if min(map(len, pair)) > 8 and len("".join(pair)) > 60}


def test_no_solution_no_mistake_and_no_hidden_seed_is_in_it(folder):  # the notebooks: test_build.py
    given = [content.decode() for content in class_release.given_files().values()]
    known = set().union(*map(pairs, given))
    masters = "\n".join((ROOT / "solutions" / f"{unit}.py").read_text() for unit in units())
    for solution in re.findall(r"### BEGIN SOLUTION\n(.*?)\s*### END SOLUTION", masters, re.S):
        assert not pairs(solution) & known
    for wrong_or_right in (ROOT / "solutions").glob("*/*.py"):
        assert not pairs(wrong_or_right.read_text().partition("\n@")[2]) & known  # what comes after the imports
    given += [path.read_text() for path in (folder / "notebooks").rglob("*.ipynb")]
    for hidden in re.findall(r"^check\..*seed=.*$", masters, re.M):
        assert not any(hidden in text for text in given)
    file = folder / reference.facts_file(UNIT, CPU).relative_to(ROOT)
    facts = str(unpack(lzma.decompress(file.read_bytes())))
    for path in (ROOT / "solutions").rglob(f"{UNIT[3:]}.py"):
        code = path.read_text().partition("\n@")[2].splitlines()
        assert not [line for line in code if len(line) > 30 and "return" in line and line.strip() in facts]


def test_recording_again_gives_the_same_bytes(folder):
    for exercise in EXERCISES:
        exercise._outcomes.clear()
    for name, content in class_release.recorded_facts(UNIT).items():
        assert (folder / name).read_bytes() == content


def test_a_facts_file_that_does_not_fit_is_one_sentence(without_solutions):
    file = without_solutions(UNIT, {"linear_warmup": {"is_class": False}})
    with pytest.raises(CourseError, match="holds facts of seed 0 alone; leave the seed out"):
        check.linear_warmup(None, seed=5, device="cpu")
    with pytest.raises(CourseError, match=r"looked for recorded facts in .*cuda.facts, found no such file"):
        check.linear_warmup(None, device="cuda")
    with pytest.raises(CourseError, match="looked for the reference answers of 00_none in .*, found none"):
        reference.load_solutions("00_none")
    good = file.read_bytes()
    for damaged in (b"", good[:-20], lzma.compress(b"x" * 99), lzma.compress(reference.pack([1]))):
        file.write_bytes(damaged)
        reference.load_facts.cache_clear()
        with pytest.raises(CourseError, match="should hold recorded facts, but cannot be read"):
            check.linear_warmup(None, device="cpu")
    (file.parents[1] / "compare.py").write_text("# another version")
    file.write_bytes(good)
    with pytest.raises(CourseError, match="was recorded with other checks than those in"):
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


@pytest.mark.parametrize(
    "place, words", [("", "make class-release DEST="), ("full", "no earlier release"), ("full/a", "is a file")]
)
def test_a_place_that_will_not_do_is_one_sentence(place, words, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("mine")
    with pytest.raises(SystemExit, match=f"^error: [^\n]*{words}[^\n]*$"):
        class_release.main([place and str(tmp_path / place)])
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "a"]
