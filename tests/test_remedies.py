"""The table of remedies: each sentence is a claim of its unit, and the page shows what was found."""

import ast

import pytest

from course.notebook.cells import read_cells
from course.notebook.registry import all_parts, solutions_folder
from instructor.authoring import documents
from instructor.authoring.remedies import REMEDIES, Remedy


def claims_of(unit):
    """The constant sentences that the masters of `unit` claim."""
    sentences = set()
    for name in all_parts():
        if name.unit != unit:
            continue
        for cell in read_cells(solutions_folder() / unit / f"{name.part}.py"):
            if cell.kind == "code":
                for node in ast.walk(ast.parse(cell.source)):
                    if isinstance(node, ast.Call) and ast.unparse(node.func) == "course.claim":
                        if isinstance(node.args[0], ast.Constant):
                            sentences.add(node.args[0].value)
    return sentences


@pytest.mark.parametrize("remedy", REMEDIES, ids=[remedy.name for remedy in REMEDIES])
def test_every_sentence_is_a_claim_of_the_unit(remedy):
    made = claims_of(remedy.unit)
    missing = [sentence for sentence in (*remedy.wins, *remedy.loses) if sentence not in made]
    assert not missing, f"remedies.py: no master of {remedy.unit} claims {missing}"
    assert remedy.wins or remedy.loses


def test_no_remedy_stands_twice():
    names = [(remedy.unit, remedy.name) for remedy in REMEDIES]
    assert len(set(names)) == len(names)


def test_the_page_shows_the_verdict_of_each_machine(monkeypatch):
    known = Remedy("a", "03_large_batch", wins=("it wins",), loses=("it loses",))
    monkeypatch.setattr(documents, "REMEDIES", (known,))
    claim = {"sentence": "it wins", "held": True, "value": "2.0"}
    record = {"machine": "M", "parts": {"03_large_batch/x": {"claims": [claim]}}, "benchmarks": {}}
    text = documents.results_text([record])
    assert "| 03 | **a** | it wins (M: yes 2.0) | it loses (not measured yet) |" in text
