"""The ragged transformer: packed batches against padded ones in float64, and one at a time."""

import pytest
import torch

from course.datasets import sequences
from course.errors import CourseError
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


def test_packed_losses_are_those_of_the_padded_batch_in_other_cells(model, texts):
    def mask_of(lengths, causal):
        assert causal
        return torch.block_diag(*[torch.ones(n, n).tril() for n in lengths.tolist()]).bool()

    padded, _ = ragged.padded_losses(model, texts)
    rows = [texts[i : i + 3] for i in range(0, len(texts), 3)]
    packed, mask = ragged.packed_losses(model, rows, lambda members: pack_of(members)[0], mask_of, row_length=200)
    assert packed.shape == mask.shape == (len(rows), 200)
    assert packed.sum().item() == pytest.approx(padded.sum().item(), rel=1e-12)
    assert int(mask.sum()) == sum(map(len, texts)) - len(texts) and not packed[~mask].any()


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


@pytest.mark.parametrize(("dynamic", "graphs"), [(False, 3), (None, 2), (True, 1)])
def test_each_shape_is_compiled_once_unless_sizes_are_dynamic(model, dynamic, graphs):
    inputs = [(torch.zeros(2, n, dtype=torch.int64), torch.arange(n)) for n in (3, 5, 3, 9, 5)]
    assert ragged.graphs_compiled(model, inputs, dynamic) == graphs


def test_long_texts_are_mostly_of_kind_one():
    drawn = sequences.load("text", rows=2000)
    is_long = drawn.lengths > drawn.lengths.median()
    assert drawn.labels[is_long].mean() > 0.6 > 0.4 > drawn.labels[~is_long].mean()


@pytest.mark.parametrize("kept", ["tokens", "texts"])
def test_a_control_keeps_lengths_and_a_share_of_each_kind_and_mixes_the_kinds(kept):
    sets = [sequences.text(4000, 0), sequences.text(4000, 0, kinds_keep=kept)]
    assert torch.equal(sets[0].lengths, sets[1].lengths)
    shares = []
    for drawn in sets:
        weights = drawn.lengths if kept == "tokens" else torch.ones(4000)
        shares.append(float((drawn.labels * weights).sum() / weights.sum()))
    assert shares[0] == pytest.approx(shares[1], abs=0.03)
    is_long = sets[1].lengths > sets[1].lengths.median()
    share_of_long = sets[1].labels[is_long].mean().item()
    assert share_of_long == pytest.approx(sets[1].labels[~is_long].mean().item(), abs=0.05)


def test_rows_are_filled_up_to_a_given_length(texts):
    packs, masks = zip(*(pack_of([text]) for text in texts), strict=True)
    tokens, positions, mask, targets = ragged.rows_of(packs, masks, 64)
    assert tokens.shape == positions.shape == targets.shape == (len(texts), 64)
    assert mask.shape == (len(texts), 64, 64)


def test_four_micro_batches_make_the_update_of_the_whole_batch(model, texts):
    ends = []
    for batches in ([texts], [texts[:1], texts[1:3], texts[3:4], texts[4:]]):
        torch.manual_seed(0)
        copy = ragged.RaggedTransformer(sequences.TEXT_VOCABULARY, 16, 2).double()
        ragged_training.update(copy, torch.optim.SGD(copy.parameters(), lr=1), batches)
        ends.append(torch.cat([weight.detach().flatten() for weight in copy.parameters()]))
    torch.testing.assert_close(*ends)


def test_a_curve_is_read_between_its_measured_points_and_nowhere_else():
    curve = ragged_training.Curve([0, 2, 4], [0, 100, 300], [0.0, 1.0, 3.0], [4.0, 2.0, 1.0])
    assert [curve.at_cells(cells) for cells in (100, 200, 300)] == [2.0, 1.5, 1.0]
    for cells in (50, 301):
        with pytest.raises(CourseError, match="measured from 100 to 300"):
            curve.at_cells(cells)
    assert curve.at_update(4) == 1.0


def test_trainings_last_until_they_have_the_cells_of_the_first(texts):
    data = sequences.text(32, 0)
    sizes = {"random": 8, "small": 2}

    def steps(order, data, seed):
        batches = torch.arange(len(data)).split(sizes[order])
        return ragged_training.steps_of(lambda epoch: [batch.tolist() for batch in batches])

    runs = ragged_training.train_each(
        list(sizes), data, data, steps, 1, to_equal_cells=True, dim=8, layers=1, updates=4, every=2
    )
    random, small = runs["random"][0], runs["small"][0]
    assert random.updates == [0, 2, 4]
    assert small.cells[-1] >= random.cells[-1] > small.cells[-3]
    assert ragged_training.by_updates(runs, 4)["random"] == [random.losses[-1]]
    at_first_stop = ragged_training.by_cells(runs, 2)
    assert at_first_stop["random"] == [random.losses[1]]
    assert at_first_stop["small"] == [small.at_cells(random.cells[1])]


def test_seconds_are_compared_by_pairs_of_seeds():
    def curves(*seconds):
        return [ragged_training.Curve([0, 1], [0, 1], [0.0, each], [2.0, 1.0]) for each in seconds]

    runs = {"random": curves(1, 2, 3, 4, 5, 6), "windows": curves(2, 4, 6, 8, 10, 12)}
    ratio = ragged_training.seconds_over(runs, "windows", "random")
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx((2, 2, 2))


class Sampler:
    """Batches of two from the sorted set; the last epoch is kept."""

    def __init__(self, lengths):
        self.batches = lengths.argsort().view(-1, 2).tolist()

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(self.batches)


def test_random_batches_have_the_tokens_of_the_sampler_up_to_their_last_text():
    lengths = torch.randint(1, 30, (40,), generator=torch.Generator().manual_seed(0))
    sampler = Sampler(lengths)
    found = list(ragged_training.with_the_tokens_of(sampler, lengths, 0)(3))
    assert sampler.epoch == 3
    for batch, of_sampler in zip(found, sampler.batches, strict=True):
        wanted = int(lengths[of_sampler].sum())
        assert int(lengths[batch].sum()) >= wanted > int(lengths[batch[:-1]].sum())
    drawn = sum(found, [])
    assert sorted(drawn[:40]) == list(range(min(len(drawn), 40)))


def test_steps_take_so_many_batches_and_begin_a_new_epoch():
    steps = ragged_training.steps_of(lambda epoch: [[epoch, i] for i in range(3)], 2)
    assert [next(steps) for _ in range(3)] == [[[0, 0], [0, 1]], [[0, 2]], [[1, 0], [1, 1]]]


def test_orders_that_no_interval_tells_from_the_best_are_among_the_lowest():
    six = range(6)
    losses = {"a": [*six], "b": [n + 1 for n in six], "c": [5.1 - n for n in six]}
    assert ragged_training.lowest(losses) == ["a", "c"]
