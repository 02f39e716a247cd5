"""What a hostile submission is, how it is written down, and how it gets into an inbox."""

import ast
import copy
import inspect
import json
import textwrap
from dataclasses import dataclass
from typing import Any

from course.checks import rules

UNIT, PART, OTHER_PART = "03_large_batch", "1_attacked", "2_beside"
GIVEN = ["import torch", "from course.checks import large_batch as check"]  # what the setup cell imports
EXERCISES = "leave_one_out", "sample_negatives", "scaled_lr", "linear_warmup", "polynomial_decay"
SOLVED = "scaled_lr", "polynomial_decay"
BESIDE = "flushed_share"  # the exercise of the other part, which every submission answers: no attack reaches it
GIB = 2**30
ENDED, LATE, LARGE = "ended by itself", "no answer within", "of memory"


@dataclass
class Attack:
    """One hostile submission: what is due to it, None if it is none at all, and the reason that must be given."""

    make: Any
    earns: float | None
    note: str
    forges: bool  # it makes up facts in the learner's own process
    is_file: bool
    at: str = ""


ATTACKS = {}


def cell(earns=4, note="", at="linear_warmup", forges=False):
    def mark(function):
        ATTACKS[function.__name__] = Attack(function, earns, note, forges, False, at)
        return function

    return mark


def file(earns=4, note=""):
    def mark(function):
        ATTACKS[function.__name__] = Attack(function, earns, note, False, True)
        return function

    return mark


def source(attack, host):
    """The text of the cell that the body of the function is."""
    text = textwrap.dedent(inspect.getsource(attack.make))
    body = ast.parse(text).body[0].body[1:]
    lines = text.splitlines()[body[0].lineno - 1 :]
    text = f"host = {host!r}\n" * ("host" in text) + textwrap.dedent("\n".join(lines)) + "\n"
    if rules.reaching(text, GIVEN):  # hidden from those who read it: here the wall is tested, not the fence
        return f"get_ipython().run_cell(bytes.fromhex('{text.encode().hex()}').decode())"
    return text


def hand_in(name, folder, honest, beside, host):
    """Put the submission `name` into its folder in the inbox `folder`, made from the notebook `honest`.

    Args:
        beside: the text of the other part's notebook, which is not attacked.
    """
    attack, notebook = ATTACKS[name], copy.deepcopy(honest)
    place = folder / name / UNIT / f"{PART}.ipynb"
    place.parent.mkdir(parents=True)
    if attack.is_file:
        made = attack.make(place, notebook)
    else:
        by_id(notebook)[attack.at]["source"] = source(attack, host)
        made = notebook
    if isinstance(made, dict):
        made = json.dumps(made)
    if made is not None:
        place.write_bytes(made.encode() if isinstance(made, str) else made)
    if not place.parent.is_symlink():
        (place.parent / f"{OTHER_PART}.ipynb").write_text(beside)


def by_id(notebook):
    return {c["metadata"]["nbgrader"]["grade_id"]: c for c in notebook["cells"] if "nbgrader" in c["metadata"]}


def extra(text, **metadata):
    return {"cell_type": "code", "id": "mine", "metadata": metadata, "source": text, "outputs": [],
            "execution_count": None}  # fmt: skip


FORGED = """
import inspect, re
text = inspect.getsource(check.sample_negatives.probe)
def forged(seed):
    facts = {fact: True for fact in re.findall(r'yield "(.*?)",', text)}
    form = {"dtype": "torch.int64", "shape": (600 + seed % 13,), "device": "cpu"}
    return facts | {"returns one whole number for each row": form,
                    "an empty batch gives an empty answer": [((0,), "torch.int64")]}
"""
