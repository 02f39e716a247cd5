"""What a hostile submission is, how it is written down, and how it gets into an inbox."""

import ast
import copy
import inspect
import json
import textwrap
from dataclasses import dataclass
from typing import Any

UNIT, PART, OTHER_PART, THIRD_PART = "03_large_batch", "1_attacked", "2_beside", "3_alone"
EXERCISES = "scaled_lr", "linear_warmup", "polynomial_decay"
SOLVED = "scaled_lr", "polynomial_decay"
# of a part that few attacks hand in, alone
THIRD = "LossScaler", "sgd_step", "neumf_forward", "shows_frozen_bias", "sample_negatives"
BESIDE = "flushed_share"  # the exercise of the part after the attacked one: no attack reaches it
GIB = 2**30
ENDED = "ended by itself"
LATE = "no answer within"
LARGE = "of memory"
FULL = "none could be started for a check"


@dataclass
class Attack:
    """One hostile submission: what is due to it, None if it is none at all, and the reason that must be given."""

    make: Any
    earns: float | None
    note: str
    forges: bool  # it makes up facts in the learner's own process
    is_file: bool
    at: str = ""
    text: Any = None  # of the cell, or what makes it, where it is no body of a function
    kind: str = ""  # the name of its module


ATTACKS = {}


def cell(earns=4, note="", at="linear_warmup", forges=False):
    def mark(function):
        ATTACKS[function.__name__] = Attack(
            function, 0 if at in THIRD else earns, note, forges, False, at, kind=function.__module__
        )
        return function

    return mark


def text(name, at, of, forges=False):
    """Enter the attack `name` whose cell is the text `of`, or what that gives when it is called."""
    kind = inspect.currentframe().f_back.f_globals["__name__"]
    ATTACKS[name] = Attack(None, 0 if at in THIRD else 4, "", forges, False, at, of, kind)


def some_of_each_kind(number):
    """{name: Attack} of about `number` attacks of each kind, those that a grader must wait for left out."""
    kinds = {}
    for name, attack in ATTACKS.items():
        if LATE not in attack.note:
            kinds.setdefault(attack.kind, []).append(name)
    chosen = [name for names in kinds.values() for name in names[:: -(-len(names) // number)]]
    return {name: ATTACKS[name] for name in chosen}


def file(earns=4, note=""):
    def mark(function):
        ATTACKS[function.__name__] = Attack(function, earns, note, False, True, kind=function.__module__)
        return function

    return mark


def source(attack, host):
    """The text of the cell that the body of the function is, or the text that stands for one."""
    if attack.text:
        written = attack.text() if callable(attack.text) else attack.text
        return _hidden(written)
    text = textwrap.dedent(inspect.getsource(attack.make))
    body = ast.parse(text).body[0].body[1:]
    lines = text.splitlines()[body[0].lineno - 1 :]
    return f"host = {host!r}\n" * ("host" in text) + textwrap.dedent("\n".join(lines)) + "\n"


def _hidden(text):
    """A cell that runs `text` and hides it from those who read it: here the wall is tested, not the fence."""
    return f"get_ipython().run_cell(bytes.fromhex('{text.encode().hex()}').decode())"


def hand_in(name, folder, honest, third, beside, host):
    """Put the submission `name` into its folder in the inbox `folder`, made from the notebook `honest`.

    Args:
        third: the released notebook of the part that an attack on one of THIRD hands in instead.
        beside: the text of the other part's notebook, which is graded after `honest` and is not attacked.
    """
    attack = ATTACKS[name]
    part, notebook = (THIRD_PART, third) if attack.at in THIRD else (PART, honest)
    notebook = copy.deepcopy(notebook)
    place = folder / name / UNIT / f"{part}.ipynb"
    place.parent.mkdir(parents=True)
    if attack.is_file:
        made = attack.make(place, notebook)
    else:
        by_id(notebook)[attack.at]["source"] = "import torch\n" + source(attack, host)
        made = notebook
    if isinstance(made, dict):
        made = json.dumps(made)
    if made is not None:
        place.write_bytes(made.encode() if isinstance(made, str) else made)
    if attack.at not in THIRD and not place.parent.is_symlink():
        (place.parent / f"{OTHER_PART}.ipynb").write_text(beside)


def by_id(notebook):
    return {c["metadata"]["nbgrader"]["grade_id"]: c for c in notebook["cells"] if "nbgrader" in c["metadata"]}


def extra(text, **metadata):
    return {"cell_type": "code", "id": "mine", "metadata": metadata, "source": text, "outputs": [],
            "execution_count": None}  # fmt: skip


FORGED = r"""
import inspect, re
text = inspect.getsource(check.sample_negatives.probe)
def forged(seed):
    n = 600 + seed % 13
    laws = re.findall(r'yield (?:\(\s*)?"(.*?)", (tried)?', text)
    facts = {fact: {"tried on": n} if is_tried else True for fact, is_tried in laws}
    form = {"dtype": "torch.int64", "shape": (n,), "device": "cpu"}
    return facts | {"returns one whole number for each row": form}
"""
