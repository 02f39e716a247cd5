"""The rules on the source: shortcuts are found under any name, honest code passes."""

import ast
import functools
import itertools
import linecache
import sys
import types

import pytest
from exercises import EXERCISES

from course.checks import rules
from course.checks.engine import CheckFailed
from course.checks.expected import exercise_parts, load_definitions, masters
from course.units import solutions_folder, units

pytestmark = pytest.mark.check

SETUP = "import torch\nimport torch.distributed as dist\nfrom torch import nn\n"
CHECK = "import course\nfrom course.checks import data_parallel as check"
FORBIDS = ("torch.nn.DataParallel", "torch.nn.parallel", "torch.distributed.reduce", "torch.amp.GradScaler")
WITH_RULES = {exercise.name: exercise for exercise in EXERCISES if exercise.forbids}


def inside(line, head=""):
    return f"{head}\ndef f(m, x):\n    {line}\n"


@pytest.mark.parametrize(
    "cell",
    [
        inside("return nn.DataParallel(m)(x)"),
        inside("return torch.nn.DataParallel(m)(x)"),
        inside("return n.DataParallel(m)(x)", "import torch.nn as n"),
        inside("return D(m)(x)", "from torch.nn.parallel import DistributedDataParallel as D"),
        inside("return D(m)(x)", "from torch.nn.parallel.data_parallel import DataParallel as D"),
        inside("return parallel.data_parallel(m, x)", "from torch.nn import parallel"),
        inside("return replicate(m, x)", "from torch.nn.parallel import *"),
        inside("return torch.nn.parallel.comm.scatter(x)"),
        inside("return P.gather(x)", "P = torch.nn.parallel"),
        inside("return Q.gather(x)", "P = torch.nn\nQ = P.parallel"),
        inside("return D(m)(x)", "D, E = nn.DataParallel, nn.Linear"),
        inside("return D(m)(x)", "try:\n    D = nn.DataParallel\nfinally:\n    pass"),
        inside("return D(m)(x)", "if torch.cuda.is_available():\n    D = nn.DataParallel\nelse:\n    D = None"),
        inside("from torch.nn import DataParallel\n    return DataParallel(m)(x)"),
        inside("import torch.nn.parallel as p\n    return p.gather(m)"),
        inside("D = nn.DataParallel\n    return D(m)(x)"),
        inside("return (lambda m, D=nn.DataParallel: D(m))(m)"),
        inside("return [D(m) for D in [nn.DataParallel]]"),
        inside('return getattr(nn, "DataParallel")(m)'),
        inside('return getattr(torch.nn, "Data" "Parallel")(m)'),
        inside('return getattr(torch.nn, "Data" + "Parallel", None)(m)'),
        inside("return getattr(torch.nn, f\"Data{'Parallel'}\")(m)"),
        inside('return __import__("torch.nn").nn.DataParallel(m)').replace('torch.nn")', 'torch")'),
        inside('return importlib.import_module("torch.nn").DataParallel(m)', "import importlib"),
        inside("return (nn.DataParallel if x is None else nn.Linear)(m)"),
        inside("return (D := nn.DataParallel)(m)"),
        inside("return helper(m, x)", "def helper(m, x):\n    return nn.DataParallel(m)(x)"),
        inside('return table["d"](m)', 'table = {"d": nn.DataParallel}'),
        inside("return Mine(m)(x)", "class Mine(nn.DataParallel):\n    pass"),
        inside("%time\n    return nn.DataParallel(m)(x)"),
        "%%time\n" + inside("return nn.DataParallel(m)(x)", "!ls"),
        "f = nn.DataParallel",
        "from torch.nn import DataParallel as f",
        "import functools\nf = functools.partial(nn.DataParallel, dim=0)",
        "class f(nn.DataParallel):\n    pass",
        "class f:\n    def __call__(self, m):\n        self.d = nn.DataParallel(m)",
        "@nn.DataParallel\ndef f(m):\n    pass",
        "def make():\n    def g(m):\n        return nn.DataParallel(m)\n    return g\nf = make()",
        inside("dist.reduce(x, 0)"),
        inside("torch.distributed.distributed_c10d.reduce(x, 0)"),
        inside("return torch.cuda.amp.GradScaler()"),
        inside("return torch.amp.grad_scaler.GradScaler()"),
        inside("return load_solutions(m)", "from course.checks.expected import load_solutions"),
        inside("return check.gather.reference()(m)", CHECK),
        inside("return course.solved(check.f)(m)", CHECK),
        inside("return check.DDP_TOPICS", CHECK),
        inside("return errors.error_of(m)", "from course.checks.probing import errors"),
        inside("return [c.mistakes() for c in (check.gather, check.scatter)]", CHECK),
        inside("return [check.gather][0].known_mistakes(m, 0)", CHECK),
    ],
)
def test_shortcuts_are_found_under_any_name(cell):
    (first, *_) = rules.shortcuts([SETUP, cell], "f", FORBIDS)
    assert first.startswith("line ") and first.endswith((" Write it yourself.", " Write your own."))


@pytest.mark.parametrize(
    "cell",
    [
        inside("return nn.Linear(m)(x)"),
        inside('return "nn.DataParallel"'),
        inside('"""As nn.DataParallel does it."""\n    return x  # not nn.DataParallel'),
        inside("return x.DataParallel + m.parallel.gather(x)"),
        inside("return functools.reduce(m, x) + x.reduce()", "import functools"),
        inside("return reduce(m, x)", "from functools import reduce"),
        "def f(dist, nn):\n    return dist.reduce(nn.DataParallel)",
        "def f(m):\n    for nn in m:\n        nn.DataParallel",
        "def f(m: nn.DataParallel):\n    d: nn.DataParallel = m\n    return d",
        "from torch.nn.parallel import gather\ndef gather(x):\n    return x\ndef f(x):\n    return gather(x)",
        "def f(m, x):\n    return m(x)\nprint(f(1, 2) - nn.DataParallel(1)(2))",
        "def other(m):\n    return nn.DataParallel(m)\ndef f(m):\n    return m",
        "gather = course.solved(check.gather)\ndef f(x):\n    return gather(x)",
        "from course.checks import data_parallel as check\nf = lambda x: course.solved(check.gather)(x)",
        "class f:\n    parallel = 1\n    def __getitem__(self, i):\n        return self.parallel",
        "def f(:\n    nn.DataParallel",
        "%%bash\nls nn.DataParallel",
        "",
    ],
)
def test_honest_lookalikes_pass(cell):
    assert rules.shortcuts([SETUP, cell], "f", FORBIDS) == []


def test_a_shortcut_is_told_with_its_line_the_answers_own_first():
    cells = [
        SETUP + "def helper(m):\n    return nn.DataParallel(m)",
        "def f(m):\n\n    dist.reduce(m)\n    return helper(m)",
    ]
    own, helpers = rules.shortcuts(cells, "f", FORBIDS)
    assert own == (
        "line 3, `dist.reduce(m)`, uses torch.distributed.reduce, which the task does not allow. Write it yourself."
    )
    assert helpers.startswith("line 5, `return nn.DataParallel(m)`, uses torch.nn.DataParallel")


@pytest.mark.parametrize(
    "cell, words",
    [
        ("import course.grading", "uses course.grading"),
        ("from course.checks.expected import load_solutions", "load_solutions"),
        ("from course.lfw_dataset import load_definitions", "load_definitions"),
        ("import solutions.mistakes", "uses solutions"),
        ("from course.checks import engine", "course.checks.engine"),
        ("from course.checks.engine import solved_answers", "solved_answers"),
        ("check.scatter.reference()", "check"),
        ("check.scatter.probe = None", "check"),
        ("check.scatter.reference()", "uses course.checks.data_parallel.scatter.reference"),
        ("check.scatter.expected(None, 0)", "scatter.expected, which belongs to the checks; call check.<exercise>"),
        ("getattr(check.scatter, 'mistakes')()", "scatter.mistakes"),
        ("check.scatter.__wrapped__", "__wrapped__"),
        ("now = course.solved(check.scatter)\nnow.__wrapped__", "__wrapped__"),
        ("c = check.scatter\nc.probe", "scatter.probe"),
        ("for c in [check.scatter, check.gather]:\n    c.reference()", "scatter.reference"),
        ("type(check.scatter)", "hands on course.checks.data_parallel.scatter"),
        ("import copy\ncopy.copy(check.scatter)", "hands on"),
        ("import functools\nfunctools.partial(print, x=check.scatter)", "hands on"),
        ("check.DDP_TOPICS", "uses course.checks.data_parallel.DDP_TOPICS, which belongs to the checks"),
        ("check.shared.anything", "course.checks.data_parallel.shared"),
        ("from course.checks.data_parallel import TOPICS", "data_parallel.TOPICS"),
        ("from course.checks.data_parallel.ddp_facts import TOPICS as t", "ddp_facts.TOPICS"),
        ("from course.checks.data_parallel import *", "course.checks.data_parallel.*"),
        ("import course.checks.probing.tensors", "course.checks.probing.tensors"),
        ("from course.checks.probing import errors", "course.checks.probing"),
        ("from course.checks import probing\nprobing.errors", "course.checks.probing"),
        ("from course.checks import solved", "course.checks.solved"),
        ("import course.answers", "uses course.answers"),
        ("from course import carry", "uses course.carry"),
        ("check.scatter = lambda answer: None", "changes course.checks.data_parallel"),
        ("import sys\nsys.modules['course']", "uses sys.modules"),
        ("torch.sys.modules", "uses torch.sys.modules"),
        ("from sys import modules as m", "uses sys.modules"),
        ("import sys\nsys._getframe(1)", "_getframe"),
        ("import sys as s\ns.settrace(print)", "settrace"),
        ("import inspect\ninspect.stack()", "inspect.stack"),
        ("import gc\ngc.get_objects()", "get_objects"),
        ("import ctypes\nctypes.py_object", "py_object"),
        ("import builtins", "uses builtins"),
        ("import marshal", "uses marshal"),
        ("from unittest import mock", "unittest.mock"),
        ("import importlib\nimportlib.import_module('course.grading')", "importlib"),
        ("__import__('os')", "uses __import__"),
        ("exec('x = 1')", "uses exec"),
        ("e = eval\ne('1')", "uses eval"),
        ("compile('1', '', 'eval')", "uses compile"),
        ("globals()['x'] = 1", "uses globals"),
        ("f.__globals__", "__globals__"),
        ("f.__code__ = g.__code__", "__code__"),
        ("getattr(f, '__clo' + 'sure__')", "__closure__"),
        ("object.__subclasses__()", "__subclasses__"),
        ("__builtins__", "__builtins__"),
        ("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    e.__traceback__.tb_frame.f_back", "f_back"),
        ("torch.equal = lambda a, b: True", "changes torch"),
        ("torch.Tensor.__eq__ = lambda a, b: True", "changes torch.Tensor"),
        ("T = torch.Tensor\nT.__eq__ = None", "changes torch.Tensor"),
        ("import time\ntime.perf_counter = lambda: 0", "changes time"),
        ("from torch import distributed as d\nd.send: int = print", "changes torch.distributed"),
        ("del torch.equal", "changes torch"),
        ("setattr(torch, 'equal', print)", "changes torch"),
        ("type.__setattr__(torch.Tensor, 'x', 1)", "changes torch.Tensor"),
        ("torch.__dict__['equal'] = print", "__dict__"),
        ("vars(torch)['equal'] = print", "looks into torch"),
        ("getattr(torch, name)", "getattr on torch"),
        ("open('/proc/self/maps')", "/proc/"),
        ("open(f'/proc/{pid}/mem')", "/proc/"),
        ("open('/dev/' + 'shm/x')", "/dev/shm"),
        ("def f(x=exec):\n    x('')", "uses exec"),
        ("!ls\nexec('')", "uses exec"),
        ("a = 'b\x1cc\x0c'\rexec('')", "line 2, `exec('')`, uses exec"),
        ("if a:\n    b = a.c\n" * 2000 + "exec('')", "uses exec"),
        ("a = " + "(" * 150 + "exec" + ")" * 150, "uses exec"),
        ("a = " + "+".join(["x"] * 2000), "too deeply"),
    ],
)
def test_what_reaches_for_the_grader_is_told(cell, words):
    before = [SETUP + "from course.checks import data_parallel as check\nimport course"]
    assert any(words in sentence for sentence in rules.reaching(cell, before)), rules.reaching(cell, before)


def layers(number, width=50):
    """Cells of names that stand for lists of names, each of which stands for lists of names."""
    lines = [f"n0_{i} = [torch.nn, torch.optim]" for i in range(width)]
    for layer in range(1, number):
        below = ", ".join(f"n{layer - 1}_{i}" for i in range(width))
        lines += [f"n{layer}_{i} = [{below}]" for i in range(width)]
    return "\n".join(lines)


def test_what_would_be_followed_for_ever_is_told(monkeypatch):
    monkeypatch.setattr(rules, "_MOST_STEPS", 20_000)
    (said,) = rules.reaching(layers(4), [SETUP])
    assert "too tangled" in said and rules.shortcuts([layers(4) + "\ndef f():\n    return n3_0"], "f") == [said]
    assert rules.reaching(layers(1), [SETUP]) == []


def test_lines_of_ipythons_behind_much_python_are_looked_for_a_few_times(monkeypatch):
    parsed, parse = [], ast.parse
    monkeypatch.setattr(ast, "parse", lambda text: parsed.append(text) or parse(text))
    assert rules.reaching("x = 1\n" * 300 + "%time x\n" * 200 + "exec('')")[0].startswith("line 501")
    assert len(parsed) <= 11


def test_a_cell_is_read_once_however_many_follow_it(monkeypatch):
    read, bindings = [], rules._bindings
    monkeypatch.setattr(rules, "_bindings", lambda node: read.append(node) or bindings(node))
    cells = [f"many_{number} = [1, 2, 3]" for number in range(40)]
    for place in range(40):
        assert rules.reaching(cells[place], cells[:place]) == []
    assert len(read) == 40


def test_thousands_of_faults_cut_the_cell_into_lines_once():
    rules._lines.cache_clear()
    assert len(rules.reaching("exec\n" * 3000)) == 3000 and rules._lines.cache_info().misses == 1


HONEST = """
import copy, ctypes, gc, inspect, io, mmap, os, pickle, random, sys, threading, time, warnings, weakref
import importlib.util
import course, numpy as np, matplotlib.pyplot as plt
from PIL import ImageFile
from course.checks import data_parallel as check
from course.plots import data_parallel as plots
ImageFile.LOAD_TRUNCATED_IMAGES = True
torch.backends.cudnn.benchmark = True
plt.rcParams["font.size"] = 9
os.environ["OMP_NUM_THREADS"] = "1"
check.scatter(print)
check.scatter(answer=print, seed=3, device="cpu")
now = course.solved(check.scatter)
help(check.scatter)
print(check.scatter, check.scatter.name, check.scatter.__doc__)
for one, mine in ((check.scatter, print), (check.gather, len)):
    one(mine)
import course.checks
from course import checks
from course.checks import parallel_loading as loading, data_parallel
workers = course.solved(loading.choose_workers)
data_parallel.scatter(now)
self_made = type("Own", (), {"reference": 1, "expected": 2})
self_made.reference, self_made.probe, self_made.expected
assert importlib.util.find_spec("torch")
class Mine(torch.utils.data.Dataset):
    "Reads what lies below /proc/ as a text, and never does."
    count = 0
    def __init__(self, table, **settings):
        self.table, self.x = table, None
        self.__dict__.update(settings)
        for name, value in settings.items():
            setattr(self, name, value)
        type(self).count += 1
    def __getitem__(self, i):
        return self.table[i]
    def __len__(self):
        return len(self.table)
    def __getstate__(self):
        return self.__dict__ | {"lock": None}
    def __setstate__(self, state):
        vars(self).update(state)
    def __del__(self):
        gc.collect()
def step(model, p, group, eval=False):
    p.grad = None
    group["lr"] = 0.1
    model.eval()
    model.train(not eval)
    info = torch.utils.data.get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)
    mine = copy.deepcopy(model)
    mine.weight = torch.nn.Parameter(torch.zeros(1))
    for name, value in model.named_parameters():
        setattr(mine, name, getattr(model, name))
    object.__setattr__(mine, "weight", 1)
    return pickle.loads(pickle.dumps(mine)), torch.compile(mine), inspect.signature(step), "of /proc/ nothing"
buffer = (ctypes.c_float * 4).from_buffer(mmap.mmap(-1, 16))
os.preadv, os.replace, threading.Thread, weakref.finalize
flags = getattr(mmap, "MAP_NORESERVE", 0)
%timeit step(1, 2, 3)
files = !ls /proc/
print(sys.argv, sys.stdout, sys.platform, time.perf_counter(), random.random())
torch.load("a", weights_only=True)
nn.Module.__init__
"""


@pytest.mark.parametrize("unit", units())
def test_every_master_and_every_alternative_passes(unit):
    for path in masters(unit):
        assert rules.reaching(path.read_text()) == []
    marks = "from course.checks.engine import alternative, mistake"
    for path in (solutions_folder() / unit / "answers").glob("*.py"):
        assert rules.reaching(path.read_text().replace(marks, "")) == [], path


def test_honest_code_passes():
    assert rules.reaching(HONEST, [SETUP]) == []


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_reference_and_alternatives_take_no_shortcut(exercise):
    copy = load_definitions(exercise_parts(exercise.unit)[exercise.name])
    for answer in (getattr(copy, exercise.name), *exercise.alternatives()):
        cells, name = rules._cells_of(answer, exercise.name)
        assert name in "\n".join(cells), "its source was not found, so nothing was looked at"
        assert rules.refusal(answer, exercise.name, exercise.forbids) is None


numbers = itertools.count()


@pytest.fixture
def ran(monkeypatch):
    """A function of cells: the names of a notebook that ran them, whose text Python finds as it does in a kernel."""
    notebook = types.ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    return functools.partial(run, vars(notebook))


def run(names, *cells):
    for text in cells:
        file = f"<test of rules {next(numbers)}>"
        linecache.cache[file] = len(text), None, text.splitlines(True), file
        exec(compile(text, file, "exec"), names)
    return names


OWN = "import torch.nn.parallel as torchs\n"
FROM_COLLECTIVE = "import torch.distributed as dist\n"
DDP = "from torch.nn.parallel import DistributedDataParallel as DDP\n"
SHORTCUTS = {
    "scatter": OWN + "def scatter(batch, transfers):\n    return torchs.scatter(batch, transfers.devices)",
    "replicate": OWN + "def replicate(module, transfers, n=None):\n    return torchs.replicate(module, [0])",
    "parallel_apply": OWN + "parallel_apply = lambda replicas, parts: torchs.parallel_apply(replicas, parts)",
    "gather": OWN + "def gather(outputs, transfers):\n    return torchs.gather(outputs, 0)",
    "data_parallel": OWN
    + "def data_parallel(module, batch, transfers):\n    return torchs.data_parallel(module, batch)",
    "broadcast_naive": FROM_COLLECTIVE + "def broadcast_naive(tensor, src):\n    dist.broadcast(tensor, src)",
    "reduce_naive": FROM_COLLECTIVE + "def reduce_naive(tensor, dst):\n    dist.reduce(tensor, dst)",
    "broadcast_tree": FROM_COLLECTIVE + "def broadcast_tree(tensor, src):\n    dist.scatter(tensor, [tensor])",
    "reduce_tree": FROM_COLLECTIVE + "def reduce_tree(tensor, dst):\n    dist.gather(tensor)",
    "ring_all_reduce": FROM_COLLECTIVE + "def ring_all_reduce(tensor):\n    dist.all_reduce(tensor)",
    "all_gather": FROM_COLLECTIVE + "def all_gather(shard):\n    dist.all_gather([shard], shard)",
    "halving_doubling": FROM_COLLECTIVE + "def halving_doubling(tensor):\n    dist.all_reduce(tensor)",
    "ShardSampler": "from torch.utils.data import DistributedSampler as D\nclass ShardSampler(D):\n    pass",
    "NaiveDDP": DDP + "class NaiveDDP(DDP):\n    def average_gradients(self):\n        pass",
    "OverlappedDDP": DDP + "class OverlappedDDP:\n    def __init__(self, module):\n        self.module = DDP(module)",
    "neumf_forward": "from course import models\ndef neumf_forward(weights, users, items):\n    models.NeuMF(1, 1)",
    "LossScaler": "import torch\nLossScaler = torch.amp.GradScaler",
    "fold_batchnorm": "from torch.nn.utils import fusion as f\ndef fold_batchnorm(*a):\n    f.fuse_conv_bn_eval(*a)",
    "fused_gelu": "from torch.nn import functional as F\ndef fused_gelu(x):\n    return F.gelu(x)",
    "checkpoint": "from torch.utils import checkpoint as c\ndef checkpoint(block, *inputs):\n    c.checkpoint(block)",
    "packed_order": "from torch.nn.utils import rnn\ndef packed_order(values, lengths):\n    rnn.pack_sequence(0)",
    "one_cycle": "from torch.optim import lr_scheduler as s\ndef one_cycle(step, *rest):\n    s.OneCycleLR(step)",
    "cyclic": "from torch.optim import lr_scheduler as s\ndef cyclic(step, *rest):\n    return s.CyclicLR(step)",
    "adamw_step": "from torch.optim import AdamW\ndef adamw_step(params, *rest):\n    AdamW(params).step()",
    "clip_grad_norm": "from torch.nn import utils\ndef clip_grad_norm(params, m):\n    utils.clip_grad_norm_(m)",
    "shares_memory": "import numpy as np\ndef shares_memory(convert, a):\n    return np.shares_memory(convert(a), a)",
}


def test_every_rule_of_an_exercise_has_its_shortcut_here():
    assert SHORTCUTS.keys() == WITH_RULES.keys()


@pytest.mark.parametrize("name", SHORTCUTS)
def test_check_refuses_the_shortcut_with_its_sentence(name, ran):
    exercise, cell = WITH_RULES[name], SHORTCUTS[name]
    with pytest.raises(CheckFailed) as info:
        exercise(ran(cell)[name], device="cpu")
    message = " ".join(str(info.value).split())
    assert message.startswith(f"{name}: not yet: line ") and "which the task does not allow" in message
    sentence, *_ = rules.shortcuts([cell], name, exercise.forbids)
    assert sentence.endswith(message.rpartition("`, ")[2]), "the check and the grader say the same"


@pytest.mark.parametrize(
    "cells",
    [
        ["import torch.nn as n", "def helper(m):\n    return n.DataParallel(m)", "def f(m):\n    return helper(m)"],
        ["from torch.nn import DataParallel as D", "import torch\n@torch.no_grad()\ndef f(m):\n    return D(m)"],
        ["D = __import__('torch').nn.DataParallel", "class f:\n    def run(self, m):\n        return D(m)"],
    ],
)
def test_names_of_earlier_cells_are_known_in_a_notebook(cells, ran):
    assert "torch.nn.DataParallel" in rules.refusal(ran(*cells)["f"], "f", FORBIDS)


def test_what_a_name_was_before_does_not_count(ran):
    cells = [
        "from torch.nn.parallel import gather\ndef own(x):\n    return x",
        "gather = own",
        "def f(x):\n    return gather(x)",
    ]
    assert rules.refusal(ran(*cells)["f"], "f", FORBIDS) is None


@pytest.mark.parametrize("answer", [None, 3, len, print, types.SimpleNamespace(), lambda m: m])
def test_nothing_is_said_without_a_source(answer):
    assert rules.refusal(answer, "f", FORBIDS) is None
