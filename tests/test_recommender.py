"""The setting of unit 03 must hold two ratings of each user out, repeat itself exactly and need no exercise."""

import math
from types import SimpleNamespace

import pytest
import torch

from course.datasets import movielens
from course.notebook.solutions import load_solutions
from course.training import half_precision, implicit_feedback
from course.training.models import NEUMF_SIZES, NeuMF
from course.training.rate_maps import sgd
from course.training.recommender import Experiment, print_run

SIZES = SimpleNamespace(dataset="tiny", base_batch=64, epochs=1)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    answers, patch = load_solutions("03_large_batch"), pytest.MonkeyPatch()
    patch.setenv("COURSE_DATA", str(tmp_path_factory.mktemp("data")))
    patch.setenv("COURSE_DEVICE", "cpu")
    functions = {name: getattr(answers, name) for name in ("leave_one_out", "sample_negatives", "rank_metrics")}
    yield Experiment(SIZES, **functions), movielens.load("tiny")
    patch.undo()


def test_the_latest_two_ratings_of_each_user_are_held_out_and_negatives_are_unrated(experiment):
    data, ratings = experiment[0].data, experiment[1]
    assert data.judged == (data.valid_items, data.valid_duplicate)
    assert len(data.train_users) == len(ratings.users) - 2 * ratings.n_users
    for user in (0, 7, ratings.n_users - 1):
        mine = ratings.users == user  # rows stand in order of time
        assert ratings.items[mine][-2:].tolist() == [data.valid_items[user, 0], data.test_items[user, 0]]
        for held in (data.valid_items[user].tolist(), data.test_items[user].tolist()):
            assert not data.seen[user, held[0]] and not {*held[1:]} & {*ratings.items[mine].tolist()}
    assert not torch.equal(data.valid_items[:, 1:], data.test_items[:, 1:])


def test_popularity_beats_guessing_and_test_scores_a_model(experiment):
    assert 0.15 < experiment[0].popularity < 0.9
    model = experiment[0].fresh_model()
    hit_rate, ndcg = experiment[0].test(model)
    assert 0 < ndcg < hit_rate < 0.3 and model.training


def test_every_fresh_model_and_every_first_batch_must_be_the_same(experiment):
    one, two = (experiment[0].fresh_model() for _ in range(2))
    assert one is not two and all(map(torch.equal, one.parameters(), two.parameters()))
    assert all(map(torch.equal, experiment[0].first_batch(64), experiment[0].first_batch(64)))


def test_updates_to_time_use_one_batch_and_the_given_step(experiment):
    seen = []

    def step(model, users, items, labels, optimizer):
        seen.append((users, optimizer))

    experiment[0].some_updates(sgd(1.0), 64, 3, step=step)()
    assert len(seen) == 3 and all(users is seen[0][0] and len(users) == 64 for users, _ in seen)
    one, two = experiment[0].first_batches(2, 64, seed=5)
    assert not torch.equal(one[0], two[0])


def test_a_run_makes_one_epoch_of_updates_and_is_printed_in_one_line(experiment, capsys):
    history = experiment[0].train_fresh(sgd(1.0), 1024)
    assert history.updates == 95 == len(history.losses) and history.epoch == [1.0]
    capsys.readouterr()
    print_run("16×", history)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("16×") and not history.diverged


def test_a_schedule_multiplies_the_learning_rate_of_each_group_by_its_scale(experiment):
    one, _ = experiment
    model = one.fresh_model()
    slow, fast = list(model.parameters())[:2]
    optimizer = torch.optim.SGD([{"params": [slow], "lr_scale": 0.25}, {"params": [fast]}], lr=1.0)
    one.train(model, optimizer, 4096, 0.05, schedule=lambda step, n: 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.5]


def test_the_library_splits_draws_and_ranks_as_the_reference_answers_do():
    answers, draw = load_solutions("03_large_batch"), torch.Generator().manual_seed(0)
    for n in (1, 5, 3000):
        users, times = (torch.randint(most, (n,), generator=draw) for most in (40, 25))
        seen, scores = torch.rand(40, 200, generator=draw) < 0.3, torch.randint(20, (n, 101), generator=draw).float()
        duplicate = torch.rand(n, 101, generator=draw) < 0.2
        duplicate[:, 0], scores[scores == 7] = False, math.nan
        of_both = []
        for own in (answers, implicit_feedback):
            drawn = own.sample_negatives(users, seen, torch.Generator().manual_seed(n))
            of_both.append((*own.leave_one_out(users, times), drawn, torch.tensor(own.rank_metrics(scores, duplicate))))
        for reference, library in zip(*of_both, strict=True):
            torch.testing.assert_close(library, reference)


def test_sixteen_bits_of_the_library_are_those_of_the_reference_answers():
    answers, tensors = load_solutions("03_large_batch"), [torch.randn(500) * 1e-7, torch.zeros(3)]
    assert half_precision.lost_in_fp16(tensors) == pytest.approx(100 * answers.flushed_share(tensors))
    assert half_precision.lost_in_fp16([torch.zeros(2)]) == 0.0
    assert half_precision.largest([torch.tensor([1.0, -3.0]), torch.zeros(2)]) == 3.0
    models = [NeuMF(5, 6, **NEUMF_SIZES["paper"], std=0.1) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    users, items, labels = torch.tensor([0, 4]), torch.tensor([5, 1]), torch.tensor([1.0, 0.0])
    for step, model in zip((answers.amp_step, half_precision.bf16_step), models, strict=True):
        step(model, users, items, labels, torch.optim.SGD(model.parameters(), lr=1.0))
    assert all(map(torch.equal, models[0].parameters(), models[1].parameters()))
