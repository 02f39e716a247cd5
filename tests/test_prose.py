"""The rules of docs/style.md: each refuses a planted offence; documents and messages have none."""

import ast
import doctest
import io
import re
import tokenize
from collections import Counter

import pytest
from conftest import ROOT
from small_master import GOOD, MEASURES, faults_of

from course.checks import exercises
from course.notebook.cells import cells_of, script_cells
from course.notebook.registry import parts, units
from instructor.authoring import masters, prose

STYLE_ITSELF = {"docs/style.md"}  # it shows what not to write
DOCUMENTS = sorted({*ROOT.glob("*.md"), *ROOT.glob("learners/*.md"), *ROOT.glob("docs/**/*.md")})
SENTENCES = sorted({*(ROOT / "course").rglob("*.py"), *ROOT.glob("solutions/*/answers/*.py")})
CORE = "### Exercise 1 · Return it"


@pytest.fixture
def faults(tmp_path, monkeypatch):
    """A function: the text of a master -> what the build says of it."""
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path))
    return lambda text: faults_of(text, tmp_path)


MUST = "# **Must** take one; take two; take three.\n# {}\n#\n# **Convention** from 0."


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("", "", ""),
        ("# **Convention** from 0.", MUST.format(""), ""),
        ("# **Convention** from 0.", MUST.format("Take four."), "4 conditions under **Must**, more than 3"),
        ("from 0. ", "from 0. To 9. In order.", "3 conditions under **Convention**, more than 2"),
        ("Is it fast?", "Speed", "make its heading, or the bold line below it, the question"),
        ("Is it fast?", "Speed\n#\n# **Is it fast?**", ""),
        ("Is it fast?", "Is it fast? · extra", ""),
        ("**Takeaway**", "So:", "it needs one paragraph **Takeaway** after that, not 0"),
        ("It is fast.", "It is fast. " * 11, "has a takeaway of over 30 words"),
        ("**Predict**", "It is 2.75 times. **Predict**", "says 2.75 above a prediction"),
        ("**Predict**", "```\n# 2.75\n# ```\n#\n# **Predict**", ""),
        (CORE, "## One · extra\n#\n# " + CORE, '"One · extra" is called extra and has a core exercise'),
        ("**Core**", "**Extra**", '"One" has extra exercises only: end its heading with "· extra"'),
        ("5 core", "9 core", ""),
        ("5 core · 10", "12 core · 20", "its header says 12 minutes for the core, the formula of docs/style.md 8"),
        ("**Predict**", "**Source** section 2.75.\n#\n# **Predict**", ""),
        (
            "print(f",
            "print('a line')\n" * 100 + "print(f",
            "its header says 5 minutes for the core, the formula of docs/style.md 12",
        ),
        ("An introduction.", "It waits for ever.", "write forever, or: hangs"),
        ("An introduction.", "It waits `for ever`.", ""),
        (
            "An introduction.",
            "Make N\n# - 1 steps.",
            "break this line elsewhere, its operator makes a list: - 1 steps.",
        ),
        ("An introduction.", "Cut `a[b : b\n# + n]`.", "break this line elsewhere, its operator makes a list: + n]`."),
        ("An introduction.", "Cut `a` into\n# - `b`\n# - 1 part", ""),
    ],
)
def test_each_rule_refuses_its_offence(old, new, words, faults):
    text = (
        GOOD.replace("# ### Exercise", "# ## One\n#\n# ### Exercise") + MEASURES if "Extra" in new else GOOD + MEASURES
    )
    assert old in text
    said = faults(text.replace(old, new, 1))
    assert words in said if words else said == ""


def test_the_core_uses_nothing_of_an_extra_section(faults):
    text = f"{GOOD}{MEASURES}\n# %% [markdown]\n# ## Then\n#\n# Print it.\n\n# %%\nprint(predicted_speed)\n"
    assert faults(text) == ""
    assert '"Then" uses predicted_speed of an extra' in faults(text.replace("Is it fast?", "Is it fast? · extra"))


@pytest.mark.parametrize(
    "place, added, minutes",
    [
        ("def f(x):\n", "    x\n" * 25, 1),  # of the stub
        ("predicted_speed = None\n", "1\n" * 25, 1),
        ("### BEGIN SOLUTION\n", "    x\n" * 25, 0),
        ("check.f(f)\n", "1\n" * 25, 0),
        ("import course\n", "1\n" * 25, 0),  # of the setup
        ("predicted_speed = None\n", "# a comment\n\n" * 25, 0),
    ],
)
def test_a_learner_reads_25_lines_of_code_per_minute(place, added, minutes):
    master = GOOD + MEASURES
    longer = master.replace(place, place + added, 1)
    assert longer != master
    assert prose.core_minutes(script_cells(longer), {}) == prose.core_minutes(script_cells(master), {}) + minutes


def test_the_build_tells_the_length_of_a_part_and_of_its_long_tasks(faults, tmp_path):
    assert faults(GOOD + MEASURES) == ""
    nb = masters.source_notebook("00_a", "1_a")
    assert (
        prose.measured(cells_of(nb), tmp_path / "none.ipynb") == "96 words, 7 core minutes"
    )  # no minute of an experiment
    nb.cells[2].source = nb.cells[2].source.replace("from 0.", "word " * 151)
    assert "; Exercise 1 · Return it has 154 words" in prose.measured(cells_of(nb), tmp_path / "none.ipynb")


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if f"docs/{path.name}" not in STYLE_ITSELF],
                         ids=lambda path: path.name)  # fmt: skip
def test_documents_have_no_word_of_the_list(path):
    assert [*prose.offences(path.read_text())] == []


def sentences(path):
    """(line, text) of the strings of at least four words in a module; of docstrings, those that a command prints."""
    tree = ast.parse(path.read_text())
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    helps = {
        id(node.body[0]) for node in ast.walk(tree) if "command" in ast.unparse(getattr(node, "decorator_list", []))
    }
    quiet = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and id(node) not in helps}
    return [(node.lineno, node.value) for node in strings if id(node) not in quiet and node.value.count(" ") > 2]


def test_messages_have_no_word_of_the_list():
    words_at = {f"{path.relative_to(ROOT)}:{line}": [*prose.offences(text)] for path in SENTENCES
             for line, text in sentences(path)}  # fmt: skip
    assert {place: words for place, words in words_at.items() if words} == {}


CODE = sorted({*(ROOT / "course").rglob("*.py"), *(ROOT / "instructor").rglob("*.py")})


def remarks(path):
    """The docstrings and comments of a module, as one text."""
    text = path.read_text()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join([*comments, *(ast.get_docstring(node) or "" for node in nodes)])


def test_docstrings_and_comments_have_no_word_of_the_list():
    """`pytest -k word_of_the_list -rP` prints where they are."""
    count = Counter()
    for path in CODE:
        for words, instead in prose.offences(remarks(path)):
            count[instead] += 1
            print(f"{path.relative_to(ROOT)}: write {instead}: {words}")
    assert count == {}, "write something else; the list above says what"


@pytest.mark.parametrize("unit", units())
def test_worked_examples_of_tasks_are_true(unit):
    references = {exercise.name: exercise.reference() for exercise in exercises(unit)}
    for part in parts(unit):
        nb = masters.source_notebook(unit, part)
        for code in [match["code"] for task in prose.tasks(cells_of(nb)) for match in prose.EXAMPLE.finditer(task)]:
            import numpy as np
            import torch

            from course.parallel import pipeline
            from course.training import plans

            names = {name: references[name] for name in references if re.search(rf"\b{name}\b", code)}
            known = {"np": np, "torch": torch, "Gpt": plans.Gpt, "Plan": plans.Plan, **vars(pipeline), **names}
            example = doctest.DocTestParser().get_doctest(code, known, part, None, None)
            results = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE, verbose=False).run(example)
            assert names and results.failed == 0, f"{part}: {code}"
