"""The commands must say what they cannot do, and count honestly what they time."""

import click
import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from course.datasets import movielens, regression
from course.training.models import DotProduct
from instructor.bench import command, critical_batch, loading, ncf


def test_factors_without_settings_are_refused():
    with pytest.raises(ncf.CourseError, match="neumf with 5 factors"):
        ncf.accuracy("neumf", 5)


def test_regularised_step_adds_the_squared_norms_of_the_rows_used():
    torch.manual_seed(0)
    model = DotProduct(3, 3, 2)
    users, items, labels = torch.tensor([0, 0, 1]), torch.tensor([2, 1, 1]), torch.tensor([1.0, 0.0, 0.0])
    parameters = dict(model.named_parameters())
    rows = model.user.weight[users].square().sum(1) + model.item.weight[items].square().sum(1)
    loss = F.binary_cross_entropy_with_logits(model(users, items), labels)
    gradients = torch.autograd.grad(loss + 0.3 / 2 * rows.mean(), list(parameters.values()))
    wanted = {name: p.detach() - 0.1 * g for (name, p), g in zip(parameters.items(), gradients, strict=True)}
    reported = ncf.regularised_step(0.3)(model, users, items, labels, torch.optim.SGD(model.parameters(), 0.1))
    torch.testing.assert_close(reported, loss.detach())
    torch.testing.assert_close({name: p.detach() for name, p in model.named_parameters()}, wanted)


@pytest.fixture
def faces(tmp_path):
    for i in range(6):
        (tmp_path / f"P_{i % 2}").mkdir(exist_ok=True)
        Image.new("RGB", (20, 16), (40 * i, 0, 0)).save(tmp_path / f"P_{i % 2}" / f"{i}.jpg")
    return tmp_path


def test_the_lfw_benchmark_runs(faces, capsys):
    bench("lfw", "paths", "--folder", str(faces), "--rounds", "2")
    assert "equal pixels, checked" in capsys.readouterr().out


def test_the_training_of_the_loading_benchmark_runs(capsys, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    monkeypatch.setattr(loading.gc, "collect", lambda: 0)  # before each turn: here it would look through all tests
    bench("loading", "sgd", "--sizes", "1001x20", "--batch-size", "64", "--rounds", "2")
    assert "times as long as without a loader" in capsys.readouterr().out


def test_what_sets_torchs_threads_when_it_is_imported_changes_neither_the_header_nor_the_others(monkeypatch, capsys):
    threads, turns = [2], []
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(loading.gc, "collect", lambda: turns.append(threads[-1]))  # in each turn, before it
    monkeypatch.setattr(loading, "ffcv_loaders", lambda data: threads.append(77) or {})
    monkeypatch.setattr(loading, "cores", lambda: 2)
    bench("loading", "epochs", "--sizes", "1001x20", "--batch-size", "64", "--rounds", "2")
    header, found = capsys.readouterr().out.split("1,001 rows", 1)
    assert "2 threads" in header and "times as fast as memcpy" in header + found
    assert 77 in threads and {*turns} == {1, 2}
    assert threads[-1] == 2, "and it is put back"


def test_a_loader_that_loses_a_row_or_mixes_labels_is_told(tmp_path):
    source = regression.prepare(100, 5, data=tmp_path)
    x, y = torch.from_numpy(np.array(source.x)), torch.from_numpy(np.array(source.y))
    loading.check([(x[:50], y[:50]), (x[50:], y[50:])], source)
    for wrong in ([(x[:99], y[:99])], [(x[:50], y[:50])] * 2, [(x, y + 100)]):
        with pytest.raises(loading.CourseError, match="rows|label"):
            loading.check(wrong, source)


def test_a_size_is_rows_and_columns():
    with pytest.raises(click.BadParameter, match="20 is not a size; write rows x columns like 200000x1000"):
        bench("loading", "sgd", "--sizes", "20")


def bench(*args):
    """Run `course bench ARGS` in this process."""
    command.bench.main(list(args), standalone_mode=False)


def test_ncf_validates_on_the_last_training_row_of_each_user_and_does_not_train_on_it(monkeypatch):
    users, items = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([3, 4, 5, 0, 1, 2])
    test = torch.tensor([6, 7]), torch.tensor([[0, 1], [3, 4]])
    split = movielens.Split("toy", users, items, *test, n_users=2, n_items=120)
    monkeypatch.setattr(movielens, "load_ncf_split", lambda: split)
    data = ncf._split("validation", "cpu", lambda users, seen, generator: torch.full_like(users, 9))
    assert data.train_items.tolist() == [3, 4, 0, 1] and data.test_items[:, 0].tolist() == [5, 2]
    data = ncf._split("test", "cpu", None)
    assert data.train_items.tolist() == items.tolist() and data.test_items.tolist() == [[6, 0, 1], [7, 3, 4]]


def test_ncf_chooses_on_validation_items_runs_all_seeds_on_the_test_once_and_resumes(monkeypatch, tmp_path, capsys):
    calls = []

    def score(model, factors, epochs, settings, seed, split):
        calls.append((split, seed))
        return (0.7 if settings["lr"] < 3e-3 else 0.6, 0.4)

    monkeypatch.setattr(ncf, "_train", score)
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    results = ncf.accuracy("dot", 8, seeds=2)
    assert results == [(0.7, 0.4)] * 2 and calls == [("validation", 0)] * 5 + [("test", 0), ("test", 1)]
    assert "'lr': 0.0015" in capsys.readouterr().out.split("chosen:")[1]
    assert ncf.accuracy("dot", 8, seeds=2) == results and len(calls) == 7


def test_the_search_for_learning_rates_takes_the_one_whose_slowest_seed_is_fastest(monkeypatch):
    needed = {1.0: (50, 60), 2.0: (40, 45), 4.0: (30, float("inf")), 8.0: (9, 9)}
    search = object.__new__(critical_batch.Search)
    monkeypatch.setattr(search, "updates", lambda name, batch, lr, seed, every: needed.get(lr, (99, 99))[seed], False)
    assert search.best("adam", 64, 1.0, 2, 5) == (2.0, 45)
