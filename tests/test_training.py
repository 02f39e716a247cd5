"""Epochs hold every positive once and only true negatives; a run does the updates it reports, and scores all."""

import io
import math
import os
import signal
import threading

import pytest
import torch
from tqdm import tqdm

from course.notebook.solutions import load_solutions
from course.training.metrics import candidates, evaluate
from course.training.models import DotProduct
from course.training.recommender_loop import Interactions, epoch_batches, train, training_step

PRETENDED_CUDA = True  # see conftest.py

N_USERS, N_ITEMS = 12, 40


@pytest.fixture(scope="module")
def answers():
    return load_solutions("03_large_batch")


@pytest.fixture
def data(device):
    """Users like the items of their own half: something to learn."""
    generator = torch.Generator().manual_seed(0)
    likes = torch.stack([torch.randperm(N_ITEMS // 2, generator=generator)[:8] for _ in range(N_USERS)])
    likes += (torch.arange(N_USERS) % 2)[:, None] * (N_ITEMS // 2)
    users = torch.arange(N_USERS).repeat_interleave(7)
    other_half = N_ITEMS // 2 * (1 - torch.arange(N_USERS) % 2)[:, None] + torch.arange(15)
    return Interactions.from_split(users, likes[:, 1:].reshape(-1), likes[:, 0], other_half, N_USERS, N_ITEMS, device)


def run(data, answers, epochs=2, batch_size=32, lr=0.05, optimizer=None, **arguments):
    torch.manual_seed(0)
    model = DotProduct(N_USERS, N_ITEMS, 4).to(data.device)
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr)
    functions = dict(sample_negatives=answers.sample_negatives, rank_metrics=answers.rank_metrics)
    return model, train(model, optimizer, data, batch_size=batch_size, epochs=epochs, **functions, **arguments)


@pytest.mark.parametrize("batch_size", [1, 100, 419, 420, 421])
def test_an_epoch_holds_every_positive_once_and_only_true_negatives(data, answers, batch_size):
    generator = torch.Generator(data.device).manual_seed(0)
    batches = list(epoch_batches(data, batch_size, answers.sample_negatives, 4, generator))
    assert [len(batch[0]) for batch in batches[:-1]] == [batch_size] * (420 // batch_size - (420 % batch_size == 0))
    users, items, labels = (torch.cat(column) for column in zip(*batches, strict=True))
    assert labels.dtype == torch.float32 and users.dtype == items.dtype == torch.int64 and len(users) == 420
    positive = labels == 1
    keys = sorted((users * N_ITEMS + items)[positive].tolist())
    assert keys == sorted((data.train_users * N_ITEMS + data.train_items).tolist())
    assert not data.seen[users[~positive], items[~positive]].any()
    assert torch.equal(users[~positive].bincount(), 4 * data.train_users.bincount())
    assert 0 < labels[:84].sum() < 40  # unshuffled: 84 positives first


def test_training_step_is_one_step_of_gradient_descent_on_the_mean_loss(device):
    torch.manual_seed(0)
    model = DotProduct(3, 3, 2).double().to(device)
    users, items = torch.tensor([0, 1, 1], device=device), torch.tensor([2, 0, 1], device=device)
    labels = torch.tensor([1.0, 0.0, 1.0], device=device)
    parameters = list(model.parameters())
    p = torch.sigmoid(model(users, items))
    expected = -(labels * p.log() + (1 - labels) * (1 - p).log()).mean()
    gradients = torch.autograd.grad(expected, parameters)
    wanted = [parameter.detach() - 0.1 * gradient for parameter, gradient in zip(parameters, gradients, strict=True)]
    loss = training_step(model, users, items, labels, torch.optim.SGD(parameters, 0.1))
    assert not loss.requires_grad
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close([parameter.detach() for parameter in parameters], wanted, rtol=1e-5, atol=1e-7)


def test_history_counts_what_was_done(data, answers):
    _, history = run(data, answers, epochs=3)
    assert history.updates == 3 * math.ceil(420 / 32) == len(history.losses)
    assert history.epoch == [1, 2, 3] and history.samples == [420] * 3
    for entries in (history.hit_rate, history.ndcg, history.loss, history.seconds_train, history.seconds_eval):
        assert len(entries) == 3 and all(isinstance(entry, float) for entry in entries)
    assert history.throughput[0] == pytest.approx(420 / history.seconds_train[0])
    assert not history.diverged and history.updates_to_target is None


def test_loss_is_the_mean_over_all_samples(data, answers):
    losses = []

    def constant_steps(model, users, items, labels, optimizer):
        losses.append((float(len(losses)), len(users)))
        return torch.tensor(losses[-1][0], device=users.device)

    _, history = run(data, answers, epochs=1, step=constant_steps)
    assert [n for _, n in losses] == [32] * 13 + [4]
    assert history.loss == pytest.approx([sum(loss * n for loss, n in losses) / 420])
    assert history.losses == [loss for loss, _ in losses] and history.steps_per_epoch == 14


def test_schedule_sets_the_rate_of_every_update(data, answers):
    seen = []

    def step(model, users, items, labels, optimizer):
        seen.append([group["lr"] for group in optimizer.param_groups])
        return training_step(model, users, items, labels, optimizer)

    run(data, answers, step=step, schedule=lambda step, per_epoch: 0.01 * (step + per_epoch))
    assert seen == [[0.01 * (step + 14)] for step in range(28)]


def test_divergence_is_marked_and_ends_the_run(data, answers):
    _, history = run(data, answers, epochs=5, schedule=lambda step, _: math.inf if step == 3 else 0.01)
    assert history.diverged and history.epoch == [1] and math.isnan(history.hit_rate[-1])
    assert len(history.seconds_eval) == len(history.ndcg) == 1


def test_target_stops_the_run(data, answers):
    _, history = run(data, answers, epochs=50, target=0.6, evaluate_every=0.5)
    assert history.hit_rate[-1] >= 0.6 and all(rate < 0.6 for rate in history.hit_rate[:-1])
    assert history.updates_to_target == history.updates < 50 * 14


@pytest.mark.parametrize("every, expected", [(0.5, [0.5, 1, 1.5, 2, 2.5, 3]), (2, [2, 3]), (100, [3])])
def test_evaluations_come_when_asked_and_at_the_end(data, answers, every, expected):
    _, history = run(data, answers, epochs=3, evaluate_every=every)
    assert history.epoch == expected and sum(history.samples) == 3 * 420


def test_perf_mode_leaves_the_warm_up_out_and_draws_no_epoch(data, answers):
    drawn, updates = [], []

    def sample_negatives(*args):
        drawn.append(len(updates))
        return answers.sample_negatives(*args)

    def step(*args):
        updates.append(1)
        return training_step(*args)

    model = DotProduct(N_USERS, N_ITEMS, 4).to(data.device)
    functions = dict(sample_negatives=sample_negatives, rank_metrics=answers.rank_metrics, step=step)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    history = train(model, optimizer, data, batch_size=32, mode="perf", max_steps=20, **functions)
    assert drawn == [0, 0] and len(updates) == history.updates == 120  # 20 updates are two epochs of 14
    assert len(history.throughput) == 5 and history.hit_rate == []


def test_runs_learn_and_are_evaluated_on_validation_items(data, answers):
    _, history = run(data, answers, epochs=15)
    data.valid_items, data.valid_duplicate = data.test_items.flip(1), data.duplicate  # a negative as the one to find
    _, other = run(data, answers, epochs=15)
    assert history.hit_rate[-1] > 0.9 > other.hit_rate[-1]
    by = 0 if data.device.type == "cpu" else 1e-4  # a GPU's atomic additions round in another order
    assert history.losses == pytest.approx(other.losses, rel=by, abs=0)
    assert history.loss[-1] < history.loss[0]


def test_an_unknown_mode_is_refused(data, answers):
    with pytest.raises(ValueError, match="'fast'"):
        run(data, answers, mode="fast")


def test_same_seed_must_train_the_same(data, answers):
    one, two, three = (run(data, answers, seed=seed)[0] for seed in (0, 0, 1))
    one, two, three = (model.user.weight for model in (one, two, three))
    same = torch.equal if data.device.type == "cpu" else torch.allclose  # a GPU's atomic additions have no order
    assert same(one, two) and not torch.allclose(one, three)


def test_a_process_killed_in_its_bar_does_not_stop_ours():
    tqdm.get_lock()  # made before the fork, as by any earlier bar
    child = os.fork()
    if not child:
        tqdm.get_lock().acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    ours = threading.Thread(target=lambda: tqdm(file=io.StringIO()).close(), daemon=True)
    ours.start()
    ours.join(5)
    assert not ours.is_alive()


class Table(torch.nn.Module):
    """A model whose score of every pair is known."""

    def __init__(self, scores):
        super().__init__()
        self.scores, self.modes = scores, []

    def forward(self, users, items):
        self.modes.append((self.training, torch.is_grad_enabled()))
        return self.scores[users, items]


def rank_of_first(scores, duplicate, k):
    """(share of rows whose column 0 ranks before `k`, mean rank), by loops."""
    ranks = []
    for row, skip in zip(scores.tolist(), duplicate.tolist(), strict=True):
        ranks.append(sum(score > row[0] and not gone for score, gone in zip(row, skip, strict=True)))
    return sum(rank < k for rank in ranks) / len(ranks), sum(ranks) / len(ranks)


def test_duplicates_equal_a_loop_with_a_set(device):
    drawn = torch.randint(9, (50, 13), generator=torch.Generator().manual_seed(0))
    test_items, negatives = drawn[:, 0], drawn[:, 1:]
    items, duplicate = candidates(test_items.to(device), negatives.to(device))
    assert torch.equal(items.cpu(), drawn)
    for row, repeats in zip(items.tolist(), duplicate.tolist(), strict=True):
        assert repeats == [item in row[:place] for place, item in enumerate(row)]


@pytest.mark.parametrize("batch_size", [1, 7, 2**20])
def test_evaluate_scores_every_candidate_of_its_own_user(device, batch_size):
    scores = torch.randn(20, 30, generator=torch.Generator().manual_seed(0)).to(device)
    negatives = torch.randint(30, (20, 9), generator=torch.Generator().manual_seed(1)).to(device)
    items, duplicate = candidates(torch.arange(20, device=device), negatives)
    own = torch.stack([scores[user, row] for user, row in enumerate(items)])
    assert evaluate(Table(scores), items, duplicate, rank_of_first, 3, batch_size) == rank_of_first(own, duplicate, 3)


@pytest.mark.parametrize("training", [True, False])
def test_evaluate_is_without_gradient_in_eval_mode_and_restores_the_mode(device, training):
    model = Table(torch.zeros(2, 3, device=device)).train(training)
    items, duplicate = candidates(torch.tensor([0, 1], device=device), torch.tensor([[1], [2]], device=device))
    evaluate(model, items, duplicate, rank_of_first)
    assert model.modes == [(False, False)] and model.training is training
    model.scores = None
    with pytest.raises(TypeError, match="not subscriptable"):
        evaluate(model, items, duplicate, rank_of_first)
    assert model.training is training
