"""What unit 05 is given to beat, and laws of its references against independent answers."""

import itertools
import re

import pytest
import torch

from course.datasets import sequences
from course.errors import CourseError
from course.measure.comparison import Interval
from course.notebook.solutions import load_solutions
from course.training import grouping, keep_source
from course.training.token_models import TokenAttention, TokenPool, attention_written_out

UNIT = "05_batch_grouping"
LENGTHS = torch.tensor([3, 1, 5, 2, 5, 1])


@pytest.fixture(scope="module")
def unit():
    return load_solutions(UNIT)


def sums(x, mask):
    return (x * mask).sum(1).float()


def test_groups_sample_by_sample_give_what_one_rectangle_gives():
    samples = list(torch.arange(1, int(LENGTHS.sum()) + 1).split(LENGTHS.tolist()))
    totals = grouping.grouped_sample_by_sample(sums, samples, [1, 3, 5])
    assert totals.tolist() == [float(sample.sum()) for sample in samples]


def test_greedy_thresholds_ascend_and_each_lowers_the_cells():
    lengths = sequences.draw("lognormal", rows=300).lengths
    thresholds = grouping.greedy_thresholds(lengths, 4)
    assert len(thresholds) == 4 and thresholds == sorted({*thresholds}) and thresholds[-1] == int(lengths.max())
    cost = grouping.cost_of_groups(lengths, lambda length: length)
    by_groups = [cost(grouping.greedy_thresholds(lengths, groups)) for groups in (1, 2, 3, 4)]
    assert by_groups == sorted(by_groups, reverse=True) and by_groups[0] == len(lengths) * thresholds[-1]


def test_a_group_costs_its_threshold_per_sequence_and_neighbours_are_one_move_away():
    cost = grouping.cost_of_groups(LENGTHS, lambda length: length**2)
    assert cost([1, 5]) == 2 * 1 + 4 * 25
    assert grouping.neighbours([2, 5], [1, 2, 3, 5]) == [[1, 5], [3, 5]]
    assert grouping.neighbours([5], [1, 2, 3, 5]) == []


def test_two_times_give_the_cost_of_a_group_and_of_a_cell():
    cells = {1: 100, 3: 60, 10: 20}
    seconds = {n: Interval(3 * n + 2 * cells[n], 0.0, 1e9) for n in cells}
    seconds[3] = Interval(9e9, 0.0, 1e10)  # which is tested, not used
    assert grouping.cost_of_group_and_cell(seconds, cells) == pytest.approx((3, 2))


def test_found_thresholds_are_those_of_the_demonstration(unit):
    lengths = torch.tensor([1] * 700 + [4] * 200 + [16] * 50 + [64] * 14)
    assert unit.find_thresholds(lengths, 4) == [1, 4, 16, 64]
    assert unit.find_thresholds(torch.tensor([1, 1, 1, 4, 4, 16]), k=2) == [4, 16]


def test_both_attentions_give_the_same_scores():
    model = TokenAttention(8, 16)
    x, mask = torch.randint(8, (3, 5)), torch.arange(5) < torch.tensor([[5], [2], [3]])
    assert torch.allclose(model(x, mask), model(x, mask, attention_written_out), atol=1e-6)


def cells(unit, lengths, thresholds):
    groups = [lengths[members] for members in unit.group_by_length(lengths, thresholds) if len(members)]
    return sum(len(group) * int(group.max()) for group in groups)


@pytest.mark.parametrize("seed", range(20))
def test_exact_thresholds_cost_what_the_best_of_all_cost(unit, seed):
    rng = torch.Generator().manual_seed(seed)
    lengths, groups = torch.randint(1, 30, (15,), generator=rng), 1 + seed % 4
    occurring = lengths.unique().tolist()
    groups = min(groups, len(occurring))
    choices = itertools.combinations(occurring[:-1], groups - 1)
    best = min(cells(unit, lengths, [*choice, occurring[-1]]) for choice in choices)
    assert cells(unit, lengths, unit.best_thresholds(lengths, groups)) == best


def test_the_score_of_a_padded_sequence_is_its_score_alone():
    model = TokenPool(8, 16, 16)
    tokens, mask = torch.tensor([[3, 1, 7], [5, 0, 0]]), torch.tensor([[True] * 3, [True, False, False]])
    with torch.no_grad():
        model.linear.bias.sub_(50)  # every feature is below 0
    assert torch.allclose(model(tokens, mask)[1], model(tokens[1:, :1], mask[1:, :1])[0])


def test_training_in_groups_and_flat_ends_at_the_weights_of_the_padded_batch(unit):
    data = sequences.draw("demo", rows=64)
    values, lengths, labels = sequences.collate([data[i] for i in range(64)])
    ends = []
    for score in (
        lambda m: m(*unit.pad_batch(values, lengths)),
        lambda m: unit.run_grouped(m, values, lengths, [1, 4, 16, 64]),
        lambda m: m.score(unit.segment_max(m.features(values), lengths)),
    ):
        torch.manual_seed(0)
        model = TokenPool(8, 16, 16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            (score(model) - labels).square().mean().backward()
            optimizer.step()
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.allclose(ends[0], ends[1], atol=1e-5) and torch.allclose(ends[0], ends[2], atol=1e-5)


def test_attention_written_out_is_pytorchs():
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4, generator=rng) for _ in range(3))
    mask = torch.rand(2, 1, 5, 5, generator=rng) < 0.7
    mask |= torch.eye(5, dtype=torch.bool)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert torch.allclose(attention_written_out(q, k, v, mask), expected, atol=1e-6)


def int64(*numbers):
    return torch.tensor(numbers, dtype=torch.int64)


@pytest.mark.parametrize(
    "name, arguments, words",
    [
        ("pad_batch", (int64(), int64()), "sequences were expected, found none"),
        ("pad_batch", (int64(1, 1), int64(2, 0)), "sequence 1 has length 0; each needs at least one"),
        ("padding_waste", (LENGTHS, 0), "batch_size is 0; it must be at least 1"),
        ("group_by_length", (int64(), [3]), "found none"),
        ("group_by_length", (LENGTHS, []), "`thresholds` is empty"),
        ("group_by_length", (LENGTHS, [2, 2, 5]), "thresholds must ascend, found [2, 2, 5]"),
        ("run_grouped", (sums, torch.arange(17), LENGTHS, [3]), "the last threshold is 3, the longest sequence has 5"),
        ("best_thresholds", (LENGTHS, 0), "groups is 0"),
        ("BucketBatchSampler", (int64(2, 0), 8, 3), "sequence 1 has length 0"),
        ("BucketBatchSampler", (int64(2, 1), 8, 0), "window is 0"),
        ("token_budget_batches", (int64(2, 1), 0), "budget is 0"),
        ("grouped_sample_by_sample", (sums, [torch.ones(3)], [2]), "the last threshold is 2"),
        ("greedy_thresholds", (LENGTHS, 0), "groups is 0"),
        ("find_thresholds", (LENGTHS, 0), "k is 0"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(unit, name, arguments, words):
    with pytest.raises(CourseError, match=re.escape(words)):
        getattr(unit if hasattr(unit, name) else grouping, name)(*arguments)


def test_split_batches_hold_the_same_sequences_in_fewer_cells():
    lengths = sequences.draw("lognormal", rows=300).lengths
    batches = torch.arange(300).split(32)
    groups = grouping.split_by_length(batches, lengths, grouping.greedy_thresholds(lengths, 4))
    assert torch.cat(groups).sort().values.tolist() == list(range(300))
    assert grouping.waste_of(groups, lengths) < grouping.waste_of(batches, lengths)


def test_packed_rows_hold_each_sequence_once_and_at_most_a_row():
    lengths = sequences.draw("lognormal", rows=300).lengths
    rows = grouping.best_fit(lengths, 256)
    assert sorted(sum(rows, [])) == list(range(300))
    assert all(int(lengths[row].sum()) <= 256 for row in rows)
    assert len(rows) <= 1.1 * int(lengths.sum()) / 256 + 1
    with pytest.raises(CourseError, match="make rows longer"):
        grouping.best_fit(lengths, 10)


def test_many_rows_are_packed_as_tightly_as_first_fit_packs_them():
    lengths = sequences.draw("lognormal", rows=3000).lengths
    rows = grouping.best_fit(lengths, 256)
    rooms = []  # first fit, in the plainest way
    for length in lengths.sort(descending=True).values.tolist():
        place = next((i for i, room in enumerate(rooms) if room >= length), None)
        if place is None:
            rooms.append(256)
            place = -1
        rooms[place] -= length
    assert len(rows) <= len(rooms)


def test_sorting_in_windows_keeps_each_window_and_sorts_it():
    lengths = sequences.draw("lognormal", rows=300).lengths
    order = grouping.sorted_in_windows(lengths, 100)
    assert sorted(order.tolist()) == list(range(300))
    for piece in order.split(100):
        assert (lengths[piece].diff() >= 0).all()
    assert (lengths[order].diff() < 0).any()


def test_balanced_batches_are_the_same_batches_in_runs_of_similar_cells():
    lengths = torch.tensor([1, 9, 2, 8, 1, 9, 2, 8])
    found = grouping.balanced([[i] for i in range(8)], lengths, 2)
    assert sorted(found) == [[i] for i in range(8)]
    cells = torch.tensor(grouping.cells_of(found, lengths)).view(4, 2)
    assert (cells[:, 0] == cells[:, 1]).all()


def test_the_tools_of_unit_01_work_without_the_course(tmp_path):
    unit = load_solutions("01_parallel_loading")
    kept = [unit.seconds_per_pass, unit.Ceiling, unit.seed_worker]
    file = keep_source.save_module(tmp_path / "loading_tools.py", keep_source.LOADING, kept)
    assert "course" not in file.read_text().replace("of the course", "")
    names = {}
    exec(file.read_text(), names)
    replayed = names["Ceiling"]([torch.ones(1), torch.zeros(1)], 1)
    assert [batch.item() for batch in replayed] == [1, 1]
    assert names["seconds_per_pass"](replayed, 2, repeats=3).shape == (3,)
    assert names["seed_worker"](0) is None


def test_what_cannot_be_saved_is_said(tmp_path, monkeypatch):
    unit = load_solutions("01_parallel_loading")
    monkeypatch.setattr(keep_source, "data_folder", lambda: tmp_path)
    assert keep_source.saved("tools.py", keep_source.LOADING, [unit.Ceiling]) == "saved: tools.py, in your data folder"
    assert "copy its cell" in keep_source.saved("tools.py", keep_source.LOADING, [len])


def test_the_saved_module_works_without_the_course(unit, tmp_path):
    file = keep_source.save_batches(tmp_path / "ragged_batches.py", [unit.BucketBatchSampler, unit.pad_batch], 4, 2)
    text = file.read_text()
    assert "course" not in text.replace("of the course", "")
    names = {}
    exec(text, names)
    assert list(names["BucketBatchSampler"](LENGTHS, 4, 2)) == list(unit.BucketBatchSampler(LENGTHS, 4, 2))
    x, mask = names["collate"]([torch.tensor([1, 2]), torch.tensor([3])])
    assert x[mask].tolist() == [1, 2, 3]


def test_members_of_a_batch_fill_rows_of_whole_sequences():
    rows = grouping.in_rows("abcd", torch.tensor([3, 1, 2, 4]), 4)
    assert rows == [["d"], ["a", "b"], ["c"]]


def test_own_lengths_come_as_a_list_or_from_a_file(tmp_path):
    file = tmp_path / "lengths.txt"
    file.write_text("3\n1\n2\n")
    of_list = sequences.from_lengths("mine", [3, 1, 2])
    of_file = sequences.from_lengths("mine", str(file))
    assert of_list.lengths.tolist() == of_file.lengths.tolist() == [3, 1, 2]
    assert of_list.summary().strip() == "3 sequences with 1 to 3 tokens, 2.0 on average"
    assert of_list.longest_over_mean() == 1.5
