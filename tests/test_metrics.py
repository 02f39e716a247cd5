"""Candidates, their duplicates and the evaluation, against tables worked by hand and slow loops."""

import pytest
import torch

from course.training.metrics import candidates, evaluate

PRETENDED_CUDA = True  # see conftest.py


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


def test_evaluate_restores_the_mode_when_the_model_fails():
    class Broken(torch.nn.Module):
        def forward(self, users, items):
            raise RuntimeError("as asked")

    model, items = Broken(), torch.zeros(1, 1, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="as asked"):
        evaluate(model, items, items > 0, rank_of_first)
    assert model.training
