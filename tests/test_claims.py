"""Claims and predictions: one line whatever is passed, the same in a terminal and a notebook, nothing raised."""

import io
import json
import math
import sys

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

import course
from course.learner import recorded
from course.learner.claims import MARK, SMOKE_UNDECIDED, WORDS
from course.learner.predictions import leaders
from course.measure.comparison import Interval

SENTENCE = "two workers are faster"


def at_smoke(words):
    """The words before a claim's sentence; that nothing is decided at this scale stands in each line."""
    return SMOKE_UNDECIDED if words == UNDECIDED else f"{words} at smoke scale"


class Broken:
    """Refuses everything that may be asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __bool__(self):
        raise SystemExit("no")

    __float__ = __str__ = __repr__ = __format__ = __bool__


HOLDS, NOT, UNDECIDED = "Holds here", "Does not hold here", "Not decided"
KINDS = [(HOLDS, yes) for yes in (True, 1, np.bool_(True), torch.tensor(True), torch.tensor([2.0]))]
KINDS += [(NOT, no) for no in (False, 0, np.float64(0), torch.tensor(False))]
KINDS += [(UNDECIDED, odd) for odd in (float("nan"), torch.tensor(float("nan")), torch.ones(2), None, "yes", "1", [])]
KINDS += [(UNDECIDED, odd) for odd in (Broken(), ValueError("x"))]


@pytest.mark.parametrize("words, holds", KINDS, ids=[f"{words}-{type(holds).__name__}" for words, holds in KINDS])
def test_a_claim_holds_or_not_or_is_undecided(words, holds, capsys):
    course.claim(SENTENCE + ".", holds, 0.87654321)
    assert capsys.readouterr() == (f"{at_smoke(words)}: two workers are faster (0.8765).\n", "")


@pytest.mark.parametrize("holds, shown", [(True, ""), (False, " You have one core."), (None, "")])
def test_the_explanation_is_printed_only_where_a_claim_fails(holds, shown, capsys):
    course.claim(SENTENCE, holds, "0.9 times", otherwise="You have one core.")
    assert capsys.readouterr().out.endswith(f"two workers are faster (0.9 times).{shown}\n")


NULLS = [
    (HOLDS, Interval(1.5, 1.2, 1.8), {"above": 1.1}),
    (UNDECIDED, Interval(1.5, 1.05, 1.8), {"above": 1.1}),
    (NOT, Interval(0.9, 0.8, 1.05), {"above": 1.1}),
    (HOLDS, Interval(0.9, 0.8, 0.95), {"below": 1}),
    (UNDECIDED, Interval(0.9, 0.8, 1.05), {"below": 1}),
    (NOT, Interval(1.5, 1.2, 1.8), {"below": 1}),
    (HOLDS, Interval(1, 0.97, 1.03), {"within": (0.95, 1.05)}),
    (UNDECIDED, Interval(1, 0.9, 1.03), {"within": (0.95, 1.05)}),
    (NOT, Interval(1.2, 1.1, 1.3), {"within": (0.95, 1.05)}),
    (UNDECIDED, Interval(1.2, -math.inf, math.inf), {"above": 1}),
    (UNDECIDED, Interval(1.03, 1.004, 1.07), {"above": 1}),  # as the verdict of the comparison
    (HOLDS, Interval(1.03, 1.006, 1.07), {"above": 1}),
    (UNDECIDED, Interval(0.97, 0.93, 0.996), {"above": 1}),
]


@pytest.mark.parametrize("words, interval, null", NULLS)
def test_a_measured_claim_holds_only_if_its_interval_excludes_the_null(words, interval, null, capsys):
    course.claim(SENTENCE, interval, **null)
    assert capsys.readouterr().out == f"{at_smoke(words)}: two workers are faster. Here {interval}.\n"


def test_next_to_a_claim_stands_what_other_machines_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    monkeypatch.setattr(sys.modules["course.device"], "machine_name", lambda: "2 cores, Here")

    def record(machine, **facts):
        facts = {"sentence": SENTENCE, "value": "text", "estimate": None} | facts
        data = {"machine": machine, "parts": {"01/2": {"claims": [facts]}}}
        tmp_path.joinpath(f"{machine}.json").write_text(json.dumps(data))

    record("H200", held=False, estimate=0.8123)
    record("Desk", held=False, estimate=1.0004)
    record("Laptop", held=True, value="7 messages")
    record("2 cores, Here", held=True, estimate=9.0)
    course.claim(SENTENCE, Interval(1.5, 1.2, 1.8), above=1)
    others = {"Desk 1.00 (does not hold there)", "H200 0.812 (does not hold there)", "Laptop 7 messages"}
    here, _, recorded_text = capsys.readouterr().out.rstrip(".\n").partition(" Recorded: ")
    assert here.endswith("Here 1.50 (1.20 to 1.80).")
    assert set(recorded_text.split("; ")) == others
    course.claim(SENTENCE, Interval(0.5, 0.2, 0.8), above=1)
    assert "Laptop 7 messages (holds there)" in capsys.readouterr().out
    course.claim(SENTENCE, None, above=1)  # what only other scales measure
    printed = capsys.readouterr().out
    assert "(not measured here). Recorded: " in printed
    assert "H200 0.812 (does not" in printed
    course.claim("another sentence", True)
    assert "Recorded" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "value, shown",
    [
        (torch.tensor(1.5), "(1.5)"),
        (torch.ones(2), "(tensor([1., 1.]))"),
        (float("nan"), "(nan)"),
        ("a\nb\x1b[31m\tc", "(a b [31m c)"),
        ("x" * 1000, "x...)"),
        (None, "two workers are faster.\n"),
    ],
)
def test_every_value_is_one_short_line(value, shown, capsys):
    course.claim(SENTENCE, True, value)
    out, err = capsys.readouterr()
    assert shown in out and out.count("\n") == 1 and len(out) < 400 and not err


def test_a_terminal_without_umlauts_or_without_anything_is_no_error(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii", write_through=True))
    course.claim("größer", True)
    assert b"gr??er" in raw.getvalue()
    monkeypatch.setattr(sys, "stdout", None)
    course.claim(Broken(), Broken(), Broken())


def test_a_notebook_gets_colour_plain_text_and_the_facts():
    cell = nbformat.v4.new_code_cell("import course\ncourse.claim('a < b & c', False, '0.9 times')")
    nb = nbformat.v4.new_notebook(cells=[cell])
    NotebookClient(nb, kernel_name="python3").execute()
    (output,) = nb.cells[0].outputs
    assert output.data["text/plain"] == "Does not hold here at smoke scale: a < b & c (0.9 times)."
    assert "a &lt; b &amp; c" in output.data["text/html"] and WORDS[False] in output.data["text/html"]
    facts = output.metadata[MARK]
    assert (facts.sentence, facts.held, facts.value, facts.scale) == ("a < b & c", False, "0.9 times", "smoke")
    assert facts.machine == course.machine()
    nbformat.validate(nb)


def test_names_within_the_margin_of_the_best_lead_together():
    seconds = {"a": 1.2, "b": 1.0, "c": 1.05}
    assert leaders(seconds, 0.1) == ["b", "c"] and leaders(seconds, 0) == ["b"]
    assert leaders(seconds, 0.1, most=True) == ["a"]
    assert leaders(seconds, 0.3) == []  # all of them: nothing is decided
    never = float("inf")
    assert leaders({"a": never, "b": never}, 0.1) == ["a"] and leaders({"a": never, "b": 1.0}, 0.1) == ["b"]
