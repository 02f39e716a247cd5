"""The ragged transformer: packed batches against padded ones in float64, and one at a time."""

import pytest
import torch

from course.datasets import sequences
from course.training import ragged_training
from course.training import ragged_transformer as ragged

ROW = 40


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ragged.RaggedTransformer(sequences.TEXT_VOCABULARY, 16, 2).double()


@pytest.fixture
def texts():
    drawn = sequences.load("text", rows=12)
    return [drawn[i][0][:ROW] for i in range(len(drawn))]


def pack_of(members):
    """(tokens, positions, cu_seqlens) and the mask, written in the plainest way."""
    lengths = [len(tokens) for tokens in members]
    positions = torch.cat([torch.arange(length) for length in lengths])
    ends = torch.tensor([0, *lengths]).cumsum(0)
    mask = torch.block_diag(*[torch.ones(n, n).tril() for n in lengths]).bool()
    return (torch.cat(members), positions, ends), mask


def summed(model, losses):
    loss = losses.sum()
    return loss.item(), ragged.gradient_of(model, loss)


def test_rows_of_several_sequences_have_the_loss_and_the_gradient_of_the_padded_batch(model, texts):
    expected, gradient = summed(model, ragged.padded_losses(model, texts)[0])
    packs, masks = zip(*(pack_of(texts[i : i + 3]) for i in range(0, len(texts), 3)), strict=True)
    tokens, positions, mask, targets = ragged.rows_of(packs, masks)
    found, packed = summed(model, ragged.losses_of(model(tokens, positions, mask), targets))
    assert found == pytest.approx(expected, rel=1e-12)
    assert (packed - gradient).norm() < 1e-11 * gradient.norm()


def test_padding_changes_no_sequence(model, texts):
    losses, mask = ragged.padded_losses(model, texts)
    for text, row, kept in zip(texts, losses, mask, strict=True):
        alone, of_alone = ragged.padded_losses(model, [text])
        torch.testing.assert_close(row[kept], alone[of_alone])


@pytest.mark.parametrize("wrong", ["borders", "positions"])
def test_borders_and_positions_matter(model, texts, wrong):
    expected, _ = summed(model, ragged.padded_losses(model, texts)[0])
    pack, mask = pack_of(texts)
    tokens, positions, mask, targets = ragged.rows_of([pack], [mask])
    if wrong == "borders":
        mask = torch.ones_like(mask).tril()
    else:
        positions = torch.arange(tokens.shape[1])
    found, _ = summed(model, ragged.losses_of(model(tokens, positions, mask), targets))
    assert abs(found - expected) > 1e-3 * expected


def test_the_loss_on_a_set_is_the_mean_over_its_targets(model, texts):
    losses, mask = ragged.padded_losses(model, texts)
    assert ragged.loss_on(model, texts, at_once=5) == pytest.approx(losses[mask].mean().item())


def test_the_last_token_of_each_sequence_has_no_target():
    tokens, lengths = torch.arange(5), torch.tensor([2, 1, 2])
    assert ragged.targets_of(tokens, lengths).tolist() == [1, -1, -1, 4, -1]


def test_each_shape_is_compiled_once(model):
    inputs = [(torch.zeros(2, n, dtype=torch.int64), torch.arange(n)) for n in (3, 5, 3, 9, 5)]
    assert ragged.graphs_compiled(model, inputs) == 3


def test_long_texts_are_mostly_of_kind_one():
    drawn = sequences.load("text", rows=2000)
    is_long = drawn.lengths > drawn.lengths.median()
    assert drawn.labels[is_long].mean() > 0.6 > 0.4 > drawn.labels[~is_long].mean()


def test_four_micro_batches_make_the_update_of_the_whole_batch(model, texts):
    ends = []
    for batches in ([texts], [texts[:1], texts[1:3], texts[3:4], texts[4:]]):
        torch.manual_seed(0)
        copy = ragged.RaggedTransformer(sequences.TEXT_VOCABULARY, 16, 2).double()
        ragged_training.update(copy, torch.optim.SGD(copy.parameters(), lr=1), batches)
        ends.append(torch.cat([weight.detach().flatten() for weight in copy.parameters()]))
    torch.testing.assert_close(*ends)


def test_a_curve_is_read_between_its_points():
    curve = ragged_training.Curve([0, 2, 4], [0.0, 1.0, 3.0], [4.0, 2.0, 1.0])
    assert [curve.at_time(t) for t in (0.5, 2.0, 9.0)] == [3.0, 1.5, 1.0]


def test_steps_take_so_many_batches_and_begin_a_new_epoch():
    steps = ragged_training.steps_of(lambda epoch: [[epoch, i] for i in range(3)], 2)
    assert [next(steps) for _ in range(3)] == [[[0, 0], [0, 1]], [[0, 2]], [[1, 0], [1, 1]]]


def test_orders_that_no_interval_tells_from_the_best_are_among_the_lowest():
    losses = {"a": torch.arange(6.0), "b": torch.arange(6.0) + 1, "c": torch.arange(6.0).flip(0) + 0.1}
    assert ragged_training.lowest(losses) == ["a", "c"]
