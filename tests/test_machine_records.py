"""recorded/: what is written, kept and dropped, and the pages that are made from it."""

import json
import re
from dataclasses import asdict

import nbformat
import pytest
from click.testing import CliRunner
from conftest import ROOT

from course.learner import recorded
from course.learner.claims import MARK, NOT_MEASURED, Claim
from course.notebook.cells import read_cells
from course.notebook.registry import all_parts, solutions_folder
from instructor.authoring import documents, records
from instructor.authoring.records import Machine
from instructor.bench import tables
from instructor.bench.command import bench
from instructor.bench.tables import Table

CPU = Machine("2 cores, Intel Xeon", "Intel(R) Xeon(R) Processor, 2 cores, 1 thread, torch 2", is_gpu=False)
GPU = Machine("H200", "NVIDIA H200, torch 2", is_gpu=True)
PARTS = [("01_a", "1_a"), ("01_a", "2_b")]
VALUES = [{"what": "two over none", "measured": "1.13"}]


def claim(sentence, held=True, value="2 times", scale="laptop", **facts):
    return asdict(Claim(sentence, held, value, "a machine", scale, **facts))


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Two parts and their executed notebooks: a function that gives a part its master and its claims."""
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path / "solutions"))
    for module in (records, documents):
        monkeypatch.setattr(module, "all_parts", lambda: PARTS)
    monkeypatch.setattr(records, "this_machine", lambda: CPU)
    (tmp_path / "solutions/01_a").mkdir(parents=True)

    def make(part, code, claims):
        outputs = [nbformat.v4.new_output("display_data", metadata={MARK: facts}) for facts in claims]
        cell = nbformat.v4.new_code_cell(code, outputs=outputs)
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / f"solutions/01_a/{part}.ipynb")
        (tmp_path / f"solutions/01_a/{part}.py").write_text(f"# %%\n{code}\n")

    for _, part in PARTS:
        make(part, "", [])
    return make


def claims_of(folder, machine, place):
    return [facts["sentence"] for facts in records.read_record(machine, folder)["parts"][place]["claims"]]


@pytest.mark.parametrize("machine, name", [(CPU, "2-cores-intel-xeon.json"), (GPU, "nvidia-h200.json")])
def test_a_machine_has_one_file(machine, name):
    assert machine.file_name == name


def test_an_execution_renews_its_parts_and_leaves_the_others(course, tmp_path):
    course("1_a", 'claim("a")', [claim("a")])
    course("2_b", 'claim("b")', [claim("b", estimate=2.0, low=1.5, high=2.5, null="above 1")])
    records.record_executed("01_a", {"1_a": [], "2_b": VALUES}, tmp_path)
    course("1_a", 'claim("a2")', [claim("a2")])
    assert records.record_executed("01_a", {"1_a": []}, tmp_path)[0].endswith(f"/{CPU.file_name}: 01_a/1_a renewed")
    assert claims_of(tmp_path, CPU, "01_a/1_a") == ["a2"]
    part = records.read_record(CPU, tmp_path)["parts"]["01_a/2_b"]
    assert part["scale"] == "laptop" and part["details"] == "a machine" and re.fullmatch(r"\d{4}-\d\d-\d\d", part["on"])
    assert part["predictions"] == VALUES
    (facts,) = part["claims"]
    assert facts == dict(sentence="b", held=True, value="2 times", otherwise="",
                         estimate=2.0, low=1.5, high=2.5, null="above 1")  # fmt: skip


def test_a_smoke_run_overwrites_nothing(course, tmp_path):
    course("1_a", 'claim("a")', [claim("a")])
    records.record_executed("01_a", {"1_a": []}, tmp_path)
    course("1_a", 'claim("a")', [claim("a", held=False, scale="smoke")])
    before = (tmp_path / CPU.file_name).read_bytes()
    assert "at smoke scale nothing is recorded" in records.record_executed("01_a", {"1_a": []}, tmp_path)[0]
    assert (tmp_path / CPU.file_name).read_bytes() == before


def test_what_only_another_scale_measures_is_not_recorded():
    record = {"parts": {}, "details": "a machine"}
    unmeasured = claim("b", None, scale="gpu") | {"value": NOT_MEASURED}
    records.record_part(record, "01_a/1_a", [claim("a", scale="gpu"), unmeasured])
    assert [each["sentence"] for each in record["parts"]["01_a/1_a"]["claims"]] == ["a"]


def test_a_part_that_was_cut_off_keeps_the_claims_that_it_did_not_reach():
    record = records.read_record(GPU, ROOT / "no such folder")
    records.record_part(record, "01_a/1_a", [claim("a", scale="gpu"), claim("b", scale="gpu")])
    records.record_part(record, "01_a/1_a", [claim("a", False, scale="gpu")], is_whole=False)
    made = [(facts["sentence"], facts["held"]) for facts in record["parts"]["01_a/1_a"]["claims"]]
    assert made == [("a", False), ("b", True)]
    records.record_part(record, "01_a/1_a", [], is_whole=False)
    assert len(record["parts"]["01_a/1_a"]["claims"]) == 2


def test_a_sentence_that_moved_to_another_part_is_recorded_once():
    record = records.read_record(GPU, ROOT / "no such folder")
    records.record_part(record, "01_a/1_a", [claim("a", scale="gpu"), claim("b", scale="gpu")])
    records.record_part(record, "01_a/2_b", [claim("a", scale="gpu")])
    assert [facts["sentence"] for facts in record["parts"]["01_a/1_a"]["claims"]] == ["b"]


def test_claims_that_no_master_makes_leave_every_record_with_a_line(course, tmp_path):
    record = records.read_record(GPU, tmp_path)
    made_there = ["said", "at size 64, it is faster", "made on a GPU", "gone"]
    records.record_part(record, "01_a/1_a", [claim(text, scale="gpu") for text in made_there])
    records.record_part(record, "01_a/2_b", [claim("not executed now", scale="gpu")])
    records.record_part(record, "01_a/9_gone", [claim("in a part that is gone", scale="gpu")])
    record["steps"] |= {"01_a/9_gone": {}, "01_a/1_a": {}, "ncf": {}}
    records.write_record(record, tmp_path)
    code = 'claim("sa" "id")\nfor n in (64,):\n    claim(f"at size {n}, it is faster")\nclaim("made on a GPU")'
    course("1_a", code, [claim("said")])
    lines = records.record_executed("01_a", {"1_a": []}, tmp_path)
    assert sorted(lines[1:]) == [
        "dropped from H200: 01_a/1_a: gone",
        "dropped from H200: 01_a/9_gone",
        "dropped from H200: 01_a/9_gone: in a part that is gone",
    ]
    assert claims_of(tmp_path, GPU, "01_a/1_a") == made_there[:3]
    assert claims_of(tmp_path, GPU, "01_a/2_b") == ["not executed now"]
    record = records.read_record(GPU, tmp_path)
    assert list(record["parts"]) == ["01_a/1_a", "01_a/2_b"] and list(record["steps"]) == ["01_a/1_a", "ncf"]


def test_a_claim_of_the_record_stands_beside_that_of_another_machine(course, tmp_path):
    course("1_a", 'claim("a")', [claim("a", value="1.13 times")])
    records.record_executed("01_a", {"1_a": []}, tmp_path)
    recorded._by_sentence.cache_clear()
    found = recorded._by_sentence(tmp_path)["a"]
    assert [(each.machine, each.held, each.value) for each in found] == [(CPU.name, True, "1.13 times")]


@pytest.fixture
def two(course, tmp_path):
    """The records of two machines that agree on one claim and not on another."""
    cpu, gpu = records.read_record(CPU, tmp_path), records.read_record(GPU, tmp_path)
    records.record_part(cpu, "01_a/1_a", [claim("a | b", value="2 times"), claim("same"), claim("open", None)])
    there = [claim("same", scale="gpu"), claim("a | b", False, "0.5 times", "gpu", otherwise="Too | small."),
             claim("copies overlap", scale="gpu"), claim("open", scale="gpu")]  # fmt: skip
    records.record_part(gpu, "01_a/1_a", there)
    gpu["steps"]["ncf"] = {"status": "done", "seconds": 3.2, "rows": [["fp32", "1.0"]]}
    gpu["steps"]["01_a/1_a"] = {"status": "done", "seconds": 9, "rows": [["claims that held", "2 of 3"]]}
    table = {"title": "T", "command": "course bench lfw paths", "on": "2026-11-27", "notes": ["before", "behind"]}
    cpu["benchmarks"]["lfw paths, batch 4"] = table | {"columns": ["way", "ms"], "rows": [["a", "1"]]}
    return [cpu, gpu]


def test_claims_have_a_column_per_machine_and_flips_are_marked(two):
    lines = documents.claims_text(two).splitlines()
    assert lines[-6:] == [
        "| unit | part | claim | 2 cores, Intel Xeon | H200 |",
        "|---|---|---|---|---|",
        "| 01_a | 1_a | a \\| b (**flips**) | yes 2 times | **no** 0.5 times |",
        "| 01_a | 1_a | same | yes 2 times | yes 2 times |",
        "| 01_a | 1_a | open | not decided 2 times | yes 2 times |",
        "| 01_a | 1_a | copies overlap |  | yes 2 times |",
    ]


def test_results_begin_with_what_flips_and_hold_the_benchmarks(two):
    text = documents.results_text(two)
    flip = "- **a | b** (part 1): holds on 2 cores, Intel Xeon (2 times), fails on H200 (0.5 times)."
    assert f"**01 A**\n\n{flip} Its cell says there: “Too | small.”\n" in text and text.count("- **") == 1
    assert text.index(flip) < text.index("### 01 Parallel loading")
    assert "`course bench lfw paths`\n\nbefore\n\n| way | ms |\n|---|---|\n| a | 1 |\n\nbehind\n" in text
    assert documents.NO_FLIPS in documents.results_text(two[:1])


def test_a_step_that_did_not_run_says_so(two):
    text = documents.gpu_text(two, ["tests", "01_a/1_a", "ncf"])
    assert "| tests | not measured yet |  |  |  |  |" in text and "| tests | not measured yet |  |" in text
    assert "| 01_a/1_a | done | 9 |  | 2 of 3 |  |" in text and "| ncf | fp32 | 1.0 |" in text
    assert "Intel" not in text
    assert "No GPU has a record: not measured yet." in documents.gpu_text(two[:1], ["tests"])


def test_the_pages_are_those_of_the_records():
    for name, text in documents.document_texts().items():
        assert (ROOT / "docs" / name).read_text() == text, f"docs/{name}: run course build"
        assert not re.search(r"(?<![\w.`])/(?:work|home|root|tmp|Users)\b", text), f"docs/{name} names a folder here"


def test_every_record_is_as_it_is_written(tmp_path):
    for path in recorded.FOLDER.glob("*.json"):
        record = json.loads(path.read_text())
        assert records.write_record(record, tmp_path).read_text() == path.read_text(), path.name


def test_what_executed_notebooks_claim_is_recorded():
    known = {}
    for record in records.read_records():
        for place, part in record["parts"].items():
            known.setdefault(place, []).append([facts["sentence"] for facts in part["claims"]])
    for unit, part in all_parts():
        claims = records.claims_in(read_cells(solutions_folder() / unit / f"{part}.ipynb"))
        assert [facts["sentence"] for facts in claims] in known[f"{unit}/{part}"], f"build --execute {unit}/{part}"


def test_a_benchmark_prints_its_table_and_keeps_it_if_asked(tmp_path, monkeypatch):
    table = Table("checks", "Seconds", ["answer", "s"], "2 exercises")
    table.add("right", 0.5)
    assert str(table) == "\nSeconds: 2 exercises\n\n| answer | s   |\n|--------|-----|\n| right  | 0.5 |\n"
    monkeypatch.setattr("instructor.bench.checks.run", lambda: [table])
    kept = []
    monkeypatch.setattr(tables, "keep", lambda found, machine: kept.append(found) or "written")
    assert CliRunner().invoke(bench, ["checks"]).output == "" and kept == []
    assert CliRunner().invoke(bench, ["checks", "--record"]).output == "written\n" and kept == [[table]]


def test_a_kept_table_replaces_that_of_its_key_and_names_no_folder_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(tables.records.read_record, "__defaults__", (tmp_path,))
    monkeypatch.setattr(tables.records.write_record, "__defaults__", (tmp_path,))
    monkeypatch.setattr(tables, "write_documents", lambda: "pages")
    monkeypatch.setattr(tables.sys, "argv", ["/x/course", "bench", "lfw", "paths", "--folder", "/x/y", "--record"])
    for seconds in (1, 2):
        tables.keep([Table("lfw paths", "T", ["way", "s"], rows=[["a", str(seconds)]])], CPU)
    found = records.read_record(CPU, tmp_path)["benchmarks"]
    assert found["lfw paths"]["rows"] == [["a", "2"]] and len(found) == 1
    assert found["lfw paths"]["command"] == "course bench lfw paths --folder FOLDER"
