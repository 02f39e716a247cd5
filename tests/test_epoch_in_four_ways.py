"""An epoch in four ways: the same gradient from all of them, and hand-counted cells and pairs."""

from types import SimpleNamespace

import pytest
import torch

from course.datasets import sequences
from course.notebook.solutions import load_solutions
from course.training.epoch_in_four_ways import BUCKETED, FLAT, PACKED, RANDOM, EpochInFourWays
from course.training.ragged_transformer import RaggedTransformer, gradient_of

SIZE = SimpleNamespace(training_batch=4, row_length=300)


@pytest.fixture(scope="module")
def unit():
    return load_solutions("05_batch_grouping")


@pytest.fixture
def epoch(unit):
    texts = sequences.text(10, 0)
    return EpochInFourWays(texts, unit.BucketBatchSampler, unit.pack, unit.block_mask, SIZE)


def test_each_way_computes_every_text_once_and_the_same_gradient(epoch):
    torch.manual_seed(0)
    model = RaggedTransformer(sequences.TEXT_VOCABULARY, 8, 1).double()
    gradients = {}
    for way in epoch.ways:
        members = [i for batch in epoch.batches[way] for row in batch for i in row]
        assert sorted(members) == list(range(10))
        loss = sum(epoch.loss(way, batch, model) for batch in epoch.batches[way])
        gradients[way] = gradient_of(model, loss)
        epoch.backward(way, model)
        added = torch.cat([weight.grad.flatten() for weight in model.parameters()])
        assert torch.allclose(added, gradients[way], rtol=1e-9, atol=1e-12)
        assert torch.allclose(gradients[way], gradients[RANDOM], rtol=1e-9, atol=1e-12)
        assert epoch.bytes_of_largest(way, model) > 0


def test_padded_batches_count_causal_pairs_and_packed_ones_all_pairs_of_a_row(epoch):
    lengths = epoch.texts.lengths
    epoch.batches = {RANDOM: [[[0], [1]]], BUCKETED: [[[2]]], FLAT: [[[0, 1]]], PACKED: [[[0], [1, 2]]]}
    widest = max(int(lengths[0]), int(lengths[1]))
    both = int(lengths[0] + lengths[1])
    alone = int(lengths[2])
    assert [epoch.cells(way) for way in epoch.ways] == [2 * widest, alone, both, 600]
    causal = [2 * widest * (widest + 1) // 2, alone * (alone + 1) // 2]
    assert [epoch.pairs(way) for way in epoch.ways] == [*causal, both**2, 2 * 300**2]


def test_a_shuffle_draws_other_batches_and_seed_0_the_first_ones(epoch):
    first = epoch.batches[RANDOM]
    epoch.shuffle(1)
    assert epoch.batches[RANDOM] != first
    epoch.shuffle(0)
    assert epoch.batches[RANDOM] == first
