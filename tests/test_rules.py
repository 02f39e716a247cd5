"""The rules on the source: what a task forbids is found under its names, honest code passes."""

import itertools
import linecache
import sys
import types

import pytest
from exercises import EXERCISES

from course.engine import rules
from course.engine.exercise import CheckFailed
from course.notebook.solutions import exercise_parts, load_definitions
from instructor.jail.forbidden import Forbidden

pytestmark = pytest.mark.check

SETUP = "import torch\nimport torch.distributed as dist\nfrom torch import nn\n"
FORBIDS = ("torch.nn.DataParallel", "torch.nn.parallel", "torch.distributed.reduce", "torch.amp.GradScaler")
WITH_RULES = {exercise.name: exercise for exercise in EXERCISES if exercise.forbids}
numbers = itertools.count()


@pytest.fixture
def ran(monkeypatch):
    """A function of cells: the names of a notebook that ran them, whose text Python finds as it does in a kernel."""
    notebook = types.ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", notebook)

    def run(*cells):
        for text in cells:
            file = f"<test of rules {next(numbers)}>"
            linecache.cache[file] = len(text), None, text.splitlines(True), file
            exec(compile(text, file, "exec"), vars(notebook))
        return vars(notebook)

    return run


def inside(line, head=""):
    return f"{head}\ndef f(m, x):\n    {line}\n"


@pytest.mark.parametrize(
    "cell",
    [
        inside("return nn.DataParallel(m)(x)"),
        inside("return D(m)(x)", "from torch.nn.parallel import DistributedDataParallel as D"),
        inside("return parallel.data_parallel(m, x)", "from torch.nn import parallel"),
        inside("return torch.nn.parallel.comm.scatter(x)"),
        inside("import torch.nn.parallel as p\n    return p.gather(m)"),
        inside("P = torch.nn\n    D = P.DataParallel\n    return D(m)(x)"),
        inside("return (lambda m, D=nn.DataParallel: D(m))(m)"),
        inside("return helper(m, x)", "def helper(m, x):\n    return nn.DataParallel(m)(x)"),
        inside("return scaler.scale(x)", "scaler = torch.amp.GradScaler('cpu')"),
        "f = nn.DataParallel",
        "class f(nn.DataParallel):\n    pass",
        "def make():\n    def g(m):\n        return nn.DataParallel(m)\n    return g\nf = make()",
        "def make(kind):\n    def g(m):\n        return kind(m)\n    return g\nf = make(nn.DataParallel)",
        "class F:\n    def __call__(self, m):\n        return nn.DataParallel(m)\nf = F()",
        "@torch.no_grad()\ndef f(m):\n    return nn.DataParallel(m)",
        inside("dist.reduce(x, 0)"),
        inside("torch.distributed.distributed_c10d.reduce(x, 0)"),
        inside("return torch.amp.grad_scaler.GradScaler()"),
    ],
)
def test_what_is_forbidden_is_found_under_its_names(cell, ran):
    sentence = rules.refusal(ran(SETUP, cell)["f"], FORBIDS)
    assert sentence and sentence.endswith("which the task does not allow. Write it yourself.")


@pytest.mark.parametrize(
    "cell",
    [
        inside("return torch.ops.aten.gelu(x)"),
        inside("return torch.ops.aten.gelu_(x.clone())"),
        inside("return torch.ops.aten.gelu.default(x)"),
        inside("return torch._C._nn.gelu(x)"),
        inside("import torch._refs as refs\n    return refs.nn.functional.gelu(x)"),
        inside("from torch._refs.nn.functional import gelu\n    return gelu(x)"),
        inside('return getattr(torch.ops.aten, "gelu")(x)'),
        inside('return getattr(getattr(torch, "nn"), "functional").gelu(x)'),
        inside('step = getattr(torch, "_fused_adamw_")\n    step(x)'),
        inside("torch.ops.aten._fused_sgd_(x)"),
        inside("import torch.optim.adamw as a\n    a.adamw(x)"),
        inside("with off():\n        pass", "from torch.utils._python_dispatch import _disable_current_modes as off"),
    ],
)
def test_private_parts_of_torch_that_do_the_same_are_found(cell, ran):
    assert rules.refusal(ran(SETUP, cell)["f"], ("torch.nn.functional.gelu", "torch.optim"))


@pytest.mark.parametrize(
    "cell",
    [
        inside("return torch.ops.aten.erf(x)"),
        inside("torch._foreach_add_(x, 1)"),
        inside('return getattr(x, "gelu")'),
        inside("import my_own.gelu as gelu\n    return gelu(x)"),
        inside("return torch.nn.functional.softplus(x)"),
    ],
)
def test_private_parts_that_do_other_work_pass(cell, ran):
    assert rules.refusal(ran(SETUP, cell)["f"], ("torch.nn.functional.gelu", "torch.optim")) is None


@pytest.mark.parametrize(
    "cell",
    [
        inside("return nn.Linear(m)(x)"),
        inside('return "nn.DataParallel"'),
        inside('"""As nn.DataParallel does it."""\n    return x  # not nn.DataParallel'),
        inside("return x.DataParallel + m.parallel.gather(x)"),
        inside("return functools.reduce(m, x) + x.reduce()", "import functools"),
        "def f(dist, nn):\n    return dist.reduce(nn.DataParallel)",
        "def f(m: nn.DataParallel) -> nn.DataParallel:\n    d: nn.DataParallel = m\n    return d",
        "from torch.nn.parallel import gather\ndef gather(x):\n    return x\ndef f(x):\n    return gather(x)",
        "def f(m, x):\n    return m(x)\nkept = [nn.DataParallel]",
        "def other(m):\n    return nn.DataParallel(m)\ndef f(m):\n    return m",
    ],
)
def test_honest_lookalikes_pass(cell, ran):
    assert rules.refusal(ran(SETUP, cell)["f"], FORBIDS) is None


def test_the_sentence_tells_the_line_the_answers_own_first(ran):
    names = ran(SETUP + "def helper(m):\n    return nn.DataParallel(m)", "def f(m):\n    dist.reduce(m)\n    helper(m)")
    words = "which the task does not allow. Write it yourself."
    assert rules.refusal(names["f"], FORBIDS) == f"line 2, `dist.reduce(m)`, uses torch.distributed.reduce, {words}"
    names = ran("def f(m):\n    return helper(m)")
    assert rules.refusal(names["f"], FORBIDS).startswith("line 5, `return nn.DataParallel(m)`, uses torch.nn.DataPar")
    names = ran("class f(nn.DataParallel):\n    pass")
    assert rules.refusal(names["f"], FORBIDS) == f"`f` is torch.nn.DataParallel or derived from it, {words}"


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_reference_and_alternatives_take_no_shortcut(exercise):
    copy = load_definitions(exercise_parts(exercise.unit)[exercise.name])
    for answer in (getattr(copy, exercise.name), *exercise.alternatives()):
        functions = rules._functions(answer)
        assert any(map(rules._syntax, functions)), "its source was not found, so nothing was looked at"
        assert rules.refusal(answer, exercise.forbids) is None


SHORTCUTS = [(exercise, path) for exercise in WITH_RULES.values() for path in exercise.forbids]


@pytest.mark.parametrize("exercise, path", SHORTCUTS, ids=lambda part: getattr(part, "name", part))
def test_the_check_refuses_each_shortcut_and_the_grader_says_the_same(exercise, path, ran):
    is_class, name = isinstance(exercise.reference(), type), exercise.name
    cell = f"class {name}:\n    def __init__(self, *args):\n        " if is_class else f"def {name}(*args):\n    "
    answer = ran(f"import {path.partition('.')[0]}\n{cell}return {path}(*args)\n")[name]
    with pytest.raises(CheckFailed) as info:
        exercise(answer, device="cpu")
    message = " ".join(str(info.value).split())
    assert message.startswith(f"{name}: not yet: ") and "which the task does not allow" in message
    forbidden = Forbidden(exercise.forbids)  # as the grader does before a check
    try:
        assert f"{name}: {exercise.refusal(answer, is_class)}" == message
    finally:
        forbidden.give_back()


@pytest.mark.parametrize("answer", [None, 3, len, print, types.SimpleNamespace(), eval("lambda m: m")])
def test_nothing_is_said_without_a_source(answer):
    assert rules.refusal(answer, FORBIDS) is None
