"""The check-up sees a training as it is, puts everything back, and ends in a report or in one clear sentence."""

import copy
import json
import pickle
import sys
import threading
import time

import pytest
import torch
from torch import nn
from torch.optim import optimizer
from torch.utils.data import DataLoader, TensorDataset

import course
from course import cli
from course.checkup import condition, counted, padding, phases, run, schedule, summary, text
from course.checkup.facts import Facts, padding_of
from course.checkup.schedule import Enough
from course.checkup.watch import Watch
from course.datasets import sequences
from course.errors import CourseError

LOOP = """
import itertools, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(2, (64,))), 8)
criterion = nn.CrossEntropyLoss()
"""
TRAIN = """
for epoch in itertools.count():  # however fast the machine is, the check-up ends it
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
"""


@pytest.fixture(autouse=True)
def short_look(monkeypatch):
    monkeypatch.setattr(schedule, "LOOK_SECONDS", 0.05)


def small():
    """(model, optimizer, loader) of a tiny training."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    return model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(data, 8)


def train(model, optimizer, loader, extra=lambda loss: None):
    """Train until the check-up ends it."""
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            extra(loss)


def watched(training, *args, steps=20):
    """The Watch of a training."""
    with Watch(steps) as found, pytest.raises(Enough):
        training(*args)
    return found


@pytest.fixture
def checkup(tmp_path, capfd, monkeypatch):
    """A function: (exit code, stdout, stderr) of `course checkup` on a script with this source, in this process."""

    def run(source, *arguments, options=("--only-watch", "--steps", "20"), name="train.py"):
        (tmp_path / name).write_text(source)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as ended:
            cli.main(["checkup", *options, name.removesuffix(".py") if "-m" in options else name, *arguments])
        out, err = capfd.readouterr()
        message = f"{ended.value.code}\n" if isinstance(ended.value.code, str) else ""
        return int(ended.value.code) if not message else 1, out, err + message

    return run


# ---- what is seen


def test_every_phase_of_a_timed_step_is_seen_and_the_pieces_fill_the_step():
    found = watched(train, *small())
    timed = [step for step in found.steps if step.kind == phases.TIMED]
    assert timed  # how many depends on what they cost
    for step in timed:
        names, begins, ends = zip(*step.pieces, strict=True)
        assert {phases.DATA, phases.FORWARD, phases.BACKWARD, phases.OPTIMIZER, phases.CODE} <= {*names}
        assert begins[1:] == ends[:-1]  # without gaps
    shares = [phase.share for phase in summary.phases(found.steps).values()]
    assert sum(shares) == pytest.approx(1)


def everything_that_is_patched():
    modules, loading = torch.nn.modules.module, torch.utils.data.dataloader
    return [
        DataLoader.__iter__, loading._BaseDataLoaderIter.__next__, torch.autograd.backward, torch.autograd.grad,
        torch.optim.Optimizer.zero_grad, torch.compile, torch.distributed.barrier, threading.active_count(),
        len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks),
        len(optimizer._global_optimizer_pre_hooks), len(optimizer._global_optimizer_post_hooks),
        *(getattr(torch.Tensor, name) for name in counted.SYNCS), {*vars(torch.Tensor)},
    ]  # fmt: skip


@pytest.mark.parametrize("steps", [0, 3, None])
def test_everything_is_put_back_however_far_it_got(steps):
    before = everything_that_is_patched()
    model, optimizer, loader = small()
    if steps is None:
        watched(train, model, optimizer, loader)
    else:
        with Watch(8):
            for x, _ in [*loader][:steps]:
                model(x).sum().backward()
                optimizer.step()
    assert everything_that_is_patched() == before
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_training_computes_the_same_as_without_the_check_up():
    one, other = small(), small()
    found = watched(train, *one)
    steps = iter(found.steps[1:])
    with pytest.raises(StopIteration):
        train(*other, lambda loss: next(steps))
    torch.testing.assert_close([*one[0].parameters()], [*other[0].parameters()], rtol=0, atol=0)


def test_a_line_that_asks_for_values_is_counted_per_step():
    def three(loss):
        for _ in range(3):
            loss.item()

    found = summary.summarise(watched(train, *small(), three))
    ((call, line, n),) = found.syncs
    assert call == ".item()" and line.startswith("test_checkup.py:") and n == pytest.approx(3, abs=0.2)


def test_accumulation_is_one_step_and_two_optimizers_are_one_step():
    model, optimizer, loader = small()

    def accumulate():
        while True:
            for i, (x, _) in enumerate(loader):
                model(x).sum().backward()
                if i % 4 == 3:
                    optimizer.step()
                    optimizer.zero_grad()

    found = summary.summarise(watched(accumulate))
    assert found.backwards == pytest.approx(4, abs=0.5)
    other = torch.optim.Adam(model.parameters())

    def two(loss):
        other.step()

    found = summary.summarise(watched(train, model, optimizer, loader, two))
    assert found.optimizers.steps == 2 and found.optimizers.names == {"SGD": 1, "Adam": 1}


def test_evaluation_is_told_from_training_and_its_graphs_are_named():
    model, optimizer, loader = small()
    held = torch.randn(8, 8)

    def evaluate(loss, graphs=True):
        model.eval()
        with torch.set_grad_enabled(graphs):
            model(held)
        model.train()

    found = summary.summarise(watched(train, model, optimizer, loader, evaluate)).evaluation
    assert found.times and found.graphs
    assert all(line.startswith("test_checkup.py:") for line in found.graphs)
    found = summary.summarise(watched(train, model, optimizer, loader, lambda loss: evaluate(loss, False))).evaluation
    assert found.times and not found.graphs


def test_a_script_without_a_loader_names_the_line_that_makes_its_data():
    model, optimizer, _ = small()

    def without_loader():
        while True:
            time.sleep(0.01)  # makes a batch
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()

    report = run.analyse(watched(without_loader), "train.py", "")
    number = without_loader.__code__.co_firstlineno + 2
    assert report.facts.lines["code"][0].line == f"test_checkup.py:{number}"
    assert text.where(report.facts, "code") == f"mostly before forward, at test_checkup.py:{number}"
    assert not report.facts.loader and "by the script's own code" in report.regime


def test_memory_is_counted_from_sizes():
    model, _, loader = small()
    adam = torch.optim.Adam(model.parameters())
    memory = summary.memory(watched(train, model, adam, loader))
    n = sum(p.numel() for p in model.parameters())
    assert memory.weights == memory.gradients == 4 * n
    assert memory.optimizer == 8 * n + 4 * 4  # two moments, and a step per parameter
    assert memory.activations >= 8 * 16 * 4  # the hidden layer of a batch


def test_memory_that_autograd_saves_is_told_by_the_line_of_the_forward_pass():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.few, self.many = nn.Linear(8, 4), nn.Linear(4, 64)

        def forward(self, x):
            hidden = self.few(x).exp()
            return self.many(hidden).exp()

    model, (_, _, loader) = Model(), small()

    def training():
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        while True:
            for x, _ in loader:
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()

    memory = summary.memory(watched(training))
    first = Model.forward.__code__.co_firstlineno
    few, many = 8 * (8 + 4) * 4, 8 * 64 * 4  # bytes: the batch and the hidden layer; the outputs
    assert dict(memory.lines) == {
        f"test_checkup.py:{first + 2}": pytest.approx(many / (few + many)),
        f"test_checkup.py:{first + 1}": pytest.approx(few / (few + many)),
    }
    assert memory.activations == few + many
    assert "saved       for backward: 84% at test_checkup.py" in str(run.report_on(Facts(memory=memory), "", ""))


def test_a_model_that_is_copied_or_saved_while_it_is_watched_is_a_model():
    model, optimizer, loader = small()
    copies = []
    watched(train, model, optimizer, loader, lambda loss: copies.append((copy.deepcopy(model), pickle.dumps(model))))
    x = torch.randn(2, 8)
    assert torch.equal(pickle.loads(copies[-1][1])(x), copies[-1][0](x))


def test_a_compiled_function_is_a_forward_and_a_compiled_model_keeps_its_hooks_outside(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **options: model)  # stands for a compiler
    model, optimizer, loader = small()

    def compiled():
        train(torch.compile(model), optimizer, loader)

    found = watched(compiled)
    assert found.seen.compiled and summary.phases(found.steps).share(phases.FORWARD) > 0


# ---- padding


def test_padding_is_read_from_a_mask_or_from_equal_tokens_at_the_end():
    lengths = torch.tensor([3, 5, 8, 2])
    mask = torch.arange(8) < lengths[:, None]
    tokens = torch.where(mask, torch.arange(1, 9), 0)
    for batch in ({"ids": torch.ones(4, 8), "mask": mask}, (tokens, torch.ones(4)), {"mask": (~mask)}, [mask.long()]):
        found, width = padding.padded_rows(batch)
        assert found.tolist() == lengths.tolist() and width == 8
    for other in (torch.randint(1, 50, (64, 20)), torch.randn(4, 8), torch.rand(16, 9) > 0.5):
        assert padding.padded_rows([other]) is None


def test_waste_is_cells_per_token_and_buckets_leave_what_sorting_leaves():
    one, two = torch.tensor([[1, 0, 0, 0], [2, 1, 3, 4]]), torch.tensor([[5, 0, 0, 0], [7, 7, 8, 9]])
    found = padding_of([one, two])
    assert found["waste"] == pytest.approx(16 / 10) and found["bucketed"] == 1.0
    labels = torch.randint(2, 50, (2, 500))  # wider rows that are no sequences
    assert padding_of([(one, labels), (two, labels)])["waste"] == found["waste"]
    assert padding_of([torch.randn(3, 4)]) == {}


def test_the_batches_seen_are_sorted_in_one_window_and_more_of_them_waste_less():
    lengths = sequences.draw("lognormal", rows=4096).lengths
    of_epoch = [(torch.arange(int(batch.max())) < batch[:, None]).long() for batch in lengths.split(16)]
    waste = []
    for n_batches in (4, 16, 64, 256):
        found = padding_of(of_epoch[:n_batches])
        assert found["batches"] == n_batches
        cells = sum(16 * int(batch.max()) for batch in lengths[: 16 * n_batches].sort().values.split(16))
        assert found["bucketed"] == pytest.approx(cells / int(lengths[: 16 * n_batches].sum()))
        waste.append(found["bucketed"])
    assert waste == sorted(waste, reverse=True)  # so a few batches are no estimate of an epoch


# ---- the notebook


def test_in_a_notebook_a_loader_and_a_step_are_enough():
    model, optimizer, loader = small()

    def step(batch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    found = course.checkup(loader, step, steps=8, only_watch=True)
    assert found.data["loader"]["batch_size"] == 8 and "Check-up of your loader and step" in str(found)
    assert "backward" in found.brief and found.brief.splitlines()[0] == str(found).splitlines()[0]
    assert "memory" not in found.brief
    json.loads(found.json())
    with pytest.raises(CourseError, match="step must train"):
        course.checkup(loader, lambda batch: None, steps=8)


# ---- the command


def test_a_script_is_run_unchanged_and_reported(checkup):
    source = LOOP + "print(sys.argv, __name__, __file__)\n" + TRAIN + "print('never')\n"
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    code, out, _ = checkup(source, "--lr", "0.1")
    assert code == 0 and "never" not in out
    assert "['train.py', '--lr', '0.1'] __main__ train.py" in out
    assert "Check-up of train.py" in out and "batch 8, 0 workers" in out
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


def test_modules_json_and_conditions(checkup, tmp_path):
    options = ("--only-watch", "--steps", "20", "--json", "r.json", "--fail-if", "forward > 0%", "-m")
    code, out, err = checkup(LOOP + TRAIN, options=options, name="train_as_module.py")
    assert code == 1 and "fails: forward > 0%" in err
    data = json.loads((tmp_path / "r.json").read_text())
    steps = data["steps"]
    assert data["name"] == "train_as_module.py" and 20 <= steps["watched"] < steps["run"]
    assert f"{steps['watched']} steps watched, {steps['run']} run in all" in " ".join(out.split())


def test_a_condition_is_a_share_of_a_phase_or_a_number_of_lines():
    report = run.report_on(Facts(), "train.py", "it ended")
    assert not condition.parse("evaluation > 20%").holds(report)
    assert condition.parse("data < 0.1").holds(report) and condition.parse("advice < 1").holds(report)
    with pytest.raises(CourseError, match="write a phase, < or >, and a share.*data, transfer.*evaluation, advice"):
        condition.parse("dada > 20%")


ENDINGS = {
    "ends": ("pass", 1, "never trained"),
    "exits": ("import sys; sys.exit(7)", 7, "exit code 7 before its first optimizer step"),
    "needs arguments": (
        "import argparse; p = argparse.ArgumentParser(); p.add_argument('data'); p.parse_args()",
        2,
        "its arguments go after its name",
    ),
    "never steps": (LOOP + "model(torch.randn(2, 8)).sum().backward()", 1, "called backward 1 time and no optimizer"),
    "raises": ("raise ValueError('broken')", 1, "raised ValueError: broken before its first optimizer step"),
    "own processes": (
        "import multiprocessing as m\np = m.get_context('fork').Process(target=print)\np.start(); p.join()",
        1,
        "starts other processes",
    ),
    "no Python": ("def", 1, "is not a Python script"),
}


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("how", ENDINGS)
def test_a_script_in_which_no_step_is_seen_gets_one_sentence_and_keeps_its_exit_code(checkup, how):
    source, expected, sentence = ENDINGS[how]
    code, _, err = checkup(source)
    assert code == expected and sentence in err
    assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 1


@pytest.mark.parametrize(
    ("how", "expected", "words"),
    [
        ("raise ValueError('late')", 1, "raised ValueError: late"),
        ("sys.exit(4)", 4, "exit code 4"),
        ("raise KeyboardInterrupt", 130, "Ctrl-C"),
    ],
)
def test_what_was_seen_is_reported_when_the_script_raises_exits_or_is_stopped(checkup, how, expected, words):
    code, out, _ = checkup(LOOP + TRAIN + f"        if epoch == 1: {how}\n")
    assert code == expected and words in " ".join(out.split()) and "4 steps watched, 9 run in all" in out


def test_steps_that_only_warm_up_lead_to_no_verdict(checkup):
    code, out, _ = checkup(
        LOOP + TRAIN.replace("itertools.count()", "range(1)").replace("in loader", "in [*loader][:3]")
    )
    assert code == 0 and "Check-up of train.py: too few steps to tell" in out and "Let the script train" in out
    assert "Nothing to advise" not in out and "At most so many" not in out


def test_own_code_is_seen_in_the_only_step_that_was_timed():
    step = phases.Step(phases.TIMED)
    step.pieces = [phases.Piece(phases.FORWARD, 0.0, 0.1), phases.Piece(phases.CODE, 0.1, 1.0)]
    assert summary.phases([step]).share(phases.CODE) == pytest.approx(0.9)


def test_a_slow_step_is_counted_once_although_the_minutes_are_over():
    def slowly(loss):
        time.sleep(0.03)

    with Watch(60, minutes=0.005) as found, pytest.raises(Enough):
        train(*small(), slowly)
    assert len(found.steps) < 60 and found.counted.saved_bytes
    assert [*found.seen.calls.values()][0].gradients


def test_a_notebook_is_told_what_to_call(checkup):
    code, _, err = checkup("{}", options=(), name="train.ipynb")
    assert code == 1 and "call course.checkup(loader, step)" in err and len(err.splitlines()) == 1


def test_a_trace_and_a_comparison_are_written(checkup, tmp_path):
    options = ("--only-watch", "--steps", "20", "--json", "r.json", "--trace", "t.json")
    assert checkup(LOOP + TRAIN, options=options)[0] == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    code, out, _ = checkup("", options=("--compare", "r.json", "r.json"))
    assert code == 0 and out.startswith("train.py is 1.00 (1.00 to 1.00) times as fast")


def test_no_such_script(checkup):
    code, _, err = checkup("", options=("--steps", "20", "nowhere.py"))
    assert code == 1 and err.startswith("error: looked for the script nowhere.py: No such file or directory.")
