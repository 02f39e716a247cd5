"""An answer is carried with what it needs of its notebook, however it is written; what cannot be carried says why."""

import ast
import linecache
import pickle

import cloudpickle
import pytest

from course.learner import carry
from course.notebook.code import as_python


def notebook(*cells):
    """(names, texts) of a notebook whose `cells` ran in turn."""
    names = {"__name__": "__main__"}
    for number, cell in enumerate(map(as_python, cells)):
        file = f"<cell {number} of a test>"
        linecache.cache[file] = len(cell), None, cell.splitlines(True), file
        exec(compile(cell, file, "exec"), names)
    return names, [as_python(cell) for cell in cells]


def carried(*cells, answer="f"):
    """The object `answer` of a notebook, made anew from its script alone."""
    names, texts = notebook(*cells)
    script, name = carry.script_of(names[answer], answer, names, texts)
    return carry.load_script(script, name, "<carried>")


@pytest.mark.parametrize(
    "cells",
    [
        ("def f(x): return x + 3",),
        ("def g(x): return x + LATER", "LATER = 3", "def f(x): return g(x)"),
        ("import math as m\nfrom functools import partial", "f = partial(lambda a, b: int(m.sqrt(a * a)) + b, b=3)"),
        ("def by(n):\n    def add(x):\n        return x + n\n    return add", "f = by(3)"),
        ("import functools\ndef twice(g): return lambda x: g(g(x))", "@twice\ndef f(x):\n    return x + 1.5"),
        ("class Base:\n    N = 3", "class Add(Base):\n    def add(self, x): return x + self.N", "f = Add().add"),
        ("def even(x): return 3 if x < 1 else odd(x - 1)", "def odd(x): return 1 + even(x - 1) if x else 4",
         "def f(x): return x + even(0)"),
        ("from collections import defaultdict\nSEEN = defaultdict(int)", "def f(x):\n    SEEN[x] += 3\n    return 7"),
        ("kinds = {}", "def f(x): return x + kinds.setdefault('n', 3)", "f(1)"),
        ("%%time\ndef f(x): return x + 3", "!ls\nf(3)"),
        ("import threading\nlock, table = threading.Lock(), {}\nfor n in range(9): table[n] = n + 3\n"
         "def f(x):\n    with lock: return table[x]",),
        ("def f(x): return x + f.more\nf.more = 3\nf.more = f.more",),
        ("from dataclasses import dataclass\n@dataclass\nclass Add:\n    n: int\nADD = Add(3)",
         "def f(x): return x + ADD.n"),
        ("x = object()  # not the x of f", "def f(x): return [x + 3 for _ in 'a'][0]"),
        ("n = 3; f = lambda x: x + n  # two statements on a line",),
        ("try:\n    import not_there\nexcept ImportError:\n    def add(x): return x + 3\ndef f(x): return add(x)",),
    ],
)  # fmt: skip
def test_an_answer_works_alone(cells):
    assert carried(*cells)(4) == 7


def test_the_latest_cell_counts():
    assert carried("def g(x): return 1", "def f(x): return g(x)", "def g(x): return 2")(0) == 2


def test_a_name_in_an_index_is_read_and_not_set():
    assert carry._names_in(ast.parse("found[len(limits)] = 1").body[0].targets[0]) == {"found"}
    assert carry._names_in(ast.parse("f(x).calls = 1").body[0].targets[0]) == {"f", "x"}


def test_a_dataclass_with_hints_in_quotes_comes_along_and_can_be_sent_to_a_rank():
    fields = "    x: 'int'\n    def twice(self): return 2 * self.x"
    made = carried(f"from dataclasses import dataclass\n@dataclass\nclass f:\n{fields}")
    assert pickle.loads(cloudpickle.dumps(made))(3).twice() == 6


def test_lines_of_a_carried_answer_are_shown_in_tracebacks():
    with pytest.raises(ZeroDivisionError):
        carried("def f(x):\n    return x / 0")(1)
    assert "x / 0" in linecache.getline("<carried>", 2)


@pytest.mark.parametrize(
    "cell",
    [
        "import threading\nrecords = threading.current_thread()",
        "for records in range(4): pass",
        "records = {}\nrecords['a'] = 1\n",
        "from os import *",
    ],
)
def test_what_another_cell_computes_is_named(cell):
    with pytest.raises(carry.NotCarried, match="uses (records|sep), which no definition sets; set it in the cell of"):
        carried(cell, "def f(x): return sep if 'sep' in globals() else records")


def test_an_answer_without_a_name_and_one_that_does_not_run_alone_are_refused():
    with pytest.raises(carry.NotCarried, match="has no name in the notebook"):
        carry.script_of(lambda x: x, "f", {}, [])
    with pytest.raises(carry.NotCarried, match="cannot be defined on its own .NameError"):
        carried("import functools\ndef f(x): return x", "f = functools.cache(f)")


def test_ipythons_own_open_stays_where_it_is():
    names, texts = notebook("def f(path):\n    with open(path) as file:\n        return file.read()")
    names["open"] = lambda *args, **kwargs: None  # as IPython puts one into every notebook
    script, _ = carry.script_of(names["f"], "f", names, texts)
    assert script.count("open") == 1
