"""course loader-report: right about loaders with planted faults, one sentence for each bad input."""

import dataclasses
import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT

from course.commands import loader_report
from course.errors import CourseError
from course.loading import batch_fields, judge, own_loader

TRAIN = """
import sys, time
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

x, y = torch.rand(1024, 8), torch.arange(1024) // 64

def shuffled(): return DataLoader(TensorDataset(x, y), 32, shuffle=True)
def in_order(): return DataLoader(TensorDataset(x, y), 32)
def none(): pass
def number(): return 5
def needs(argument): return [x]
def empty(): return []
def one(): return [x]
def raises():
    yield x
    raise KeyError("the row")
def leaves(): sys.exit(3)
def hangs():
    yield x
    time.sleep(100)
def endless():
    while True:
        yield torch.rand(8, 3), ["a"] * 8
def once():
    used.append(0)
    return iter([x[:8], x[8:16]] if len(used) == 1 else [])
used = []
def words(): return [["a", "b"], ["c", "d"], ["e", "f"]]
def nothing_to_read(): return [object(), object()]
class Broken(IterableDataset):
    def __iter__(self):
        yield torch.rand(4)
        raise ValueError("a broken row")
def worker(): return DataLoader(Broken(), 1, num_workers=1)
def step(batch): (batch[0] @ batch[0].T).sum()
def bad_step(batch): raise RuntimeError("no model")
size = 7
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "train_u04.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def report(function, seconds=3.0, **options):
    asked = loader_report.Asked(f"train_u04:{function}", seconds=seconds, **options)
    return "\n".join(loader_report.lines(asked))


def test_a_shuffled_loader_is_called_random_and_changes_its_order():
    text = report("shuffled", step="train_u04:step")
    assert "32 batches of 32, 1,024 samples: a whole epoch" in text
    assert "Shuffle more" not in text and "in another order" in text
    assert "your step, train_u04:step" in text and "as long as copying the same bytes" in text


def test_sorted_batches_are_told_with_the_field_that_shows_it():
    text = report("in_order")
    assert "Shuffle more" in text and "in the same order" in text and "'1'" in text
    assert "that only reads the batch" in text and "--step" in text


@pytest.mark.parametrize(
    "function, sentence",
    {
        "none": "none() returned nothing, which cannot be iterated; return the loader.",
        "number": "number() returned an object of type int, which cannot be iterated; return the loader.",
        "needs": "needs(), called without arguments, raised TypeError: needs() missing 1 required positional "
        "argument: 'argument'.",
        "empty": "the loader gave no batch; is its dataset empty, or its iterator used up?",
        "raises": "batch 1 of raises() raised KeyError: 'the row' (train_u04.py, line 17).",
        "leaves": "leaves(), called without arguments, raised SystemExit: 3 (train_u04.py, line 18).",
        "hangs": "batch 1 of hangs() took longer than 1 s.",
        "worker": "batch 1 of worker() raised ValueError: a broken row.",
        "nothing_to_read": "batch 0, of type object, holds no tensor and no list of samples; return a tensor, a dict "
        "or a tuple with an entry per sample.",
        "shufled": "train_u04 has no function 'shufled'; did you mean shuffled?",
        "size": "train_u04:size is of type int; name a function that returns it.",
    }.items(),
)
def test_a_bad_loader_ends_in_one_sentence(function, sentence):
    with pytest.raises(CourseError) as error:
        report(function, seconds=1 if function == "hangs" else 20)
    assert str(error.value) == sentence


def test_a_fault_of_the_step_names_the_step():
    with pytest.raises(CourseError, match=r"bad_step\(batch\) raised RuntimeError: no model"):
        report("shuffled", step="train_u04:bad_step")


def test_an_iterator_that_cannot_be_made_again_is_told():
    with pytest.raises(CourseError, match="can be iterated again|gave no batch"):
        report("once")


@pytest.mark.parametrize(
    "target, sentence",
    {
        "train_u04": "expected MODULE:FUNCTION, such as train:make_loader, and got 'train_u04'.",
        "trian_u04:one": "no module is called 'trian_u04' here or among the installed ones; did you mean train_u04?",
        "missing.py:one": "there is no file missing.py.",
        "half:one": "importing half raised ModuleNotFoundError: No module named 'not_there' (half.py, line 1).",
    }.items(),
)
def test_a_bad_name_ends_in_one_sentence(folder, target, sentence):
    (folder / "half.py").write_text("import not_there\n")
    with pytest.raises(CourseError) as error:
        own_loader.function_of(target)
    assert str(error.value) == sentence


def test_a_loader_without_an_end_is_looked_at_for_a_while():
    text = report("endless", batches=40)
    assert "40 batches of 8, 320 samples: the beginning of an epoch" in text
    assert "1: 8 of str" in text


def test_of_one_batch_the_randomness_is_not_known():
    text = report("one")
    assert "1 batch of 1024" in text and "not known: one batch has no variance" in text


def test_texts_are_judged_by_their_sorted_order():
    assert "by 'batch'" in report("words")


def test_a_batch_without_an_end_of_the_time_limit_does_not_outlast_it():
    start = judge.time.monotonic()
    with pytest.raises(CourseError, match="longer than"):
        report("hangs", seconds=0.3)
    assert judge.time.monotonic() - start < 60


def test_the_command_prints_the_report_and_exits_with_1_where_it_cannot(folder):
    file = folder / "train_u04.py"
    call = [sys.executable, "-m", "course.cli", "loader-report"]
    done = subprocess.run([*call, f"{file}:shuffled", "--seconds", "3"], capture_output=True, text=True)
    assert done.returncode == 0 and "a whole epoch" in done.stdout
    done = subprocess.run([*call, f"{file}:none"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "error: none() returned nothing, which cannot be iterated; return the loader.\n"


def test_a_notebook_prints_the_report_of_a_file_or_why_there_is_none(folder, capsys):
    own_loader.print_report(folder / "train_u04.py", "none")
    assert "none() returned nothing" in capsys.readouterr().out
    own_loader.print_report(folder / "train_u04.py", "shuffled", seconds=3)
    assert "a whole epoch" in capsys.readouterr().out


# ---- batches of every kind


@dataclasses.dataclass
class Pair:
    x: torch.Tensor
    y: torch.Tensor


X, Y = torch.arange(12.0).view(4, 3), torch.arange(4)


@pytest.mark.parametrize(
    "batch, names",
    [
        (X, ["batch"]),
        (X.numpy(), ["batch"]),
        ([X, Y], ["0", "1"]),
        ((X, ["a", "b", "c", "d"]), ["0", "1"]),
        ({"x": X, "meta": {"y": Y}, "epoch": 3, "scale": torch.tensor(2.0)}, ["x", "meta.y"]),
        (Pair(X, Y), ["x", "y"]),
        (SimpleNamespace(x=X, y=Y, _private=Y), ["x", "y"]),
        ([(row, 1) for row in X], ["0", "1"]),
        ([{"x": row, "key": "a"} for row in X], ["x", "key"]),
        ([torch.zeros(2), torch.zeros(3), torch.zeros(1), torch.zeros(4)], ["batch"]),
        ({"flat": torch.zeros(4, 2), "offsets": torch.zeros(9)}, ["flat"]),
        (np.array(["a", "b", "c", "d"]), ["batch"]),
        ([b"12", b"1", b"", b"123"], ["batch"]),
    ],
)
def test_a_batch_of_any_kind_has_its_columns(batch, names):
    columns = batch_fields.columns(batch)
    assert list(columns) == names
    assert {len(column) for column in columns.values()} == {4}
    assert all(len(batch_fields.values(column)) == 4 for column in columns.values())


def test_values_are_means_of_samples_in_float64():
    assert batch_fields.values(X) == [1.0, 4.0, 7.0, 10.0]
    assert batch_fields.values(torch.tensor([True, False])) == [1.0, 0.0]
    assert batch_fields.n_bytes({"x": X, "key": ["ab", "c"]}) == 48 + 3


# ---- how random


def test_the_variance_ratio_is_that_of_the_exercise():
    from course.notebook.solutions import load_solutions

    answers = load_solutions("04_fast_loading")
    values = torch.randn(60, generator=torch.Generator().manual_seed(0))
    wanted = answers.batch_bias(values, torch.arange(60), 5)
    assert judge.variance_ratio(values.numpy(), 5) == pytest.approx(wanted)
    assert judge.variance_ratio(np.ones(60), 5) is None
    assert judge.variance_ratio(values.numpy(), 60) is None


def test_random_batches_lie_in_their_range_19_times_in_20():
    rng = np.random.default_rng(0)
    low, high = judge.range_of_random(50)
    ratios = [judge.variance_ratio(rng.normal(size=800), 16) for _ in range(400)]
    inside = np.mean([low < ratio < high for ratio in ratios])
    assert 0.92 < inside < 0.98
    wide = judge.range_of_random(50, fields=10)
    assert wide[0] < low < 1 < high < wide[1]


@pytest.mark.parametrize("batches", [2, 3, 50])
def test_a_random_order_alarms_nobody(batches):
    rng = np.random.default_rng(0)
    _, alarm = judge.range_of_random(batches, normal=judge.RARE)
    ratios = [judge.variance_ratio(rng.normal(size=16 * batches), 16) for _ in range(4_000)]
    assert max(ratios) < alarm < judge.variance_ratio(np.arange(16.0 * batches), 16)


def test_what_chance_gives_now_and_then_is_not_called_a_fault():
    seen = judge.Seen(batches=2, batch_size=8, samples=16)
    for ratio, words in ((1.0, ""), (6.0, "may be chance"), (20.0, "Shuffle more")):
        bias = judge.Bias({"batch": ratio}, 0.1, 4.0, 10.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(judge, "bias_of", lambda *_, bias=bias: bias)
            text = loader_report._randomness(seen, [])
        assert words in text and ("Shuffle more" in text) == (ratio > 10)


def test_samples_that_come_twice_are_counted():
    seen = judge.look([X, X])
    assert (seen.samples, seen.distinct, seen.is_whole) == (8, 4, True)
    assert math.isnan(seen.from_disk) or seen.from_disk >= 0


def test_a_short_last_batch_is_left_out_of_the_variance():
    values = torch.arange(70.0)
    bias = judge.bias_of(judge.look(list(values.view(-1, 1).split(16))))
    assert bias.of_fields["batch"] == pytest.approx(judge.variance_ratio(values[:64].numpy(), 16))


def test_ten_batches_in_a_row_show_their_order():
    batches = torch.arange(1600.0).view(100, 16, 1)
    mixed = batches[torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    alone, ten = [], []
    for order in (batches, mixed):
        seen = judge.look(list(order))
        alone.append(judge.bias_of(seen).of_fields["batch"])
        ten.append(judge.bias_of(seen, in_a_row=10).of_fields["batch"])
    assert alone[0] == pytest.approx(alone[1])
    assert ten[0] > 5 * ten[1]
    assert judge.bias_of(judge.look(list(batches[:19])), in_a_row=10) is None


def test_the_places_of_a_sampler_are_its_row_numbers():
    from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

    rows = list(range(10))
    assert judge.places_of(DataLoader(rows, 4), 100) == rows
    batched = BatchSampler(SequentialSampler(rows), 4, drop_last=False)
    assert judge.places_of(DataLoader(rows, sampler=batched, batch_size=None), 100) == rows
    assert judge.places_of(rows, 100) == []


def test_what_the_loader_reads_is_dropped_from_the_page_cache_first(folder):
    (folder / "data").mkdir()
    (folder / "data" / "rows.bin").write_bytes(bytes(5000))
    assert loader_report.drop_data((folder / "data", folder / "train_u04.py")) == 5000 + len(TRAIN)


def test_docs_commands_has_the_command():
    assert "`course loader-report MODULE:FUNCTION" in (ROOT / "docs" / "commands.md").read_text()
