"""What the experiments of unit 02 build on: a small GPT, overlap, scaling, evidence, sharded training."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course import figures
from course.checks import data_parallel as check
from course.errors import CourseError
from course.measure.comparison import NARROW, Comparison, Interval
from course.parallel import ddp_evidence, network, sharded_training
from course.parallel.distributed import run_ranks
from course.parallel.network import Network
from course.plots import data_parallel as plots
from course.training import overlap, scaling, small_gpt

CHECKUP = {"phases": {"backward": {"share": 0.5}}, "memory": {"gradients": 4_000_000}, "seconds": {"median": 0.2}}


def test_a_step_of_the_small_gpt_lowers_its_loss_and_averages_where_the_wrapper_can():
    model, tokens, calls = small_gpt.small_gpt(), small_gpt.random_tokens(2), []
    before = small_gpt.next_token_loss(model, tokens).item()
    model.average_gradients = lambda: calls.append(model.scores.weight.grad is not None)
    small_gpt.gpt_step(model, tokens)()
    assert calls == [True]
    assert small_gpt.next_token_loss(model, tokens).item() < before


def test_gradients_of_the_small_gpt_are_spread_evenly():
    sizes = [sum(p.nbytes for p in block.parameters()) for block in small_gpt.small_gpt().blocks]
    assert len(set(sizes)) == 1 and sum(sizes) > 0.9 * overlap.gradient_bytes()


def record(reverse=False):
    """A Record of a backward in which parameter k of n is ready after n - k seconds, or after k."""
    n = len(list(small_gpt.small_gpt().parameters()))
    return {"hooks": [(k, float(k if reverse else n - k)) for k in range(n)]}


def test_a_bucket_is_ready_with_the_last_of_its_gradients():
    sizes = [p.nbytes for p in small_gpt.small_gpt().parameters()]
    two = [sum(sizes[-3:]), sum(sizes[:-3])]
    assert overlap.buckets_ready([record()], two) == [3, len(sizes)]
    assert overlap.buckets_ready([record(reverse=True)], two) == [len(sizes) - 1, len(sizes) - 4]
    assert overlap.buckets_ready([record(), record(), record(reverse=True)], two) == [3, len(sizes)]  # medians


def test_of_each_run_the_slowest_rank_is_taken():
    records = [[{"seconds": 1.0}, {"seconds": 4.0}], [{"seconds": 2.0}, {"seconds": 3.0}]]
    runs = [overlap.WireRuns(1.0, None, {overlap.PLAIN: of_rank}) for of_rank in records]
    assert [record["seconds"] for record in overlap.slowest(runs, overlap.PLAIN)] == [2.0, 4.0]


def test_a_sweep_is_in_backwards_of_the_slowest_rank():
    rounds = {
        way: torch.full((7,), each, dtype=torch.float64)
        for way, each in {overlap.PLAIN: 2.0, "flat": 5.0, 9: 4.0}.items()
    }
    n_bytes = overlap.gradient_bytes()
    records = {overlap.PLAIN: [record() | {"seconds": 2.0}], 9: [{"bytes": [n_bytes]}]}
    run = overlap.WireRuns(n_bytes / 6, Comparison(rounds, Interval(1.0, 1.0, 1.0), NARROW), records)
    swept = overlap.sweep([[run], [run]], ["slow"], [9], "flat", lambda ready, seconds: sum(seconds))
    assert (swept.needs, swept.computed, swept.flat) == ({"slow": 3.0}, {"slow": [3.0]}, {"slow": 2.5})
    assert [interval.estimate for interval in swept.measured["slow"]] == [2.0]
    swept = overlap.sweep([[run], [run]], ["slow"], [9], "flat", lambda ready, seconds: 0.0)
    assert swept.computed == {"slow": [1.0]}, "no step is shorter than its backward"


def test_the_typical_record_has_the_median_length():
    assert overlap.typical([{"seconds": 3.0}, {"seconds": 1.0}, {"seconds": 2.0}]) == {"seconds": 2.0}


def test_a_wire_is_as_slow_as_asked_and_every_backward_is_recorded():
    ways = {"torch": nn.parallel.DistributedDataParallel}
    [run], again = run_ranks(overlap.over_wires, 2, ways, [0.5], 1, 0.0, backend="gloo")
    assert run.compared.rounds == again[0].compared.rounds
    assert all(sum(one["bytes"]) == overlap.gradient_bytes() for one in run.records["torch"])
    wire_seconds = overlap.gradient_bytes() / run.bandwidth
    assert all(one["seconds"] >= wire_seconds for one in run.records["torch"])
    assert all(one["sent"] == [] for one in run.records[overlap.PLAIN])


def test_layers_come_in_the_order_of_backward_with_all_bytes():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    model[0].bias.requires_grad_(False)
    layers = figures.backward_layers(model, lambda: model(torch.ones(3, 4)).sum(), depth=1, rounds=2)
    assert [layer.name for layer in layers] == ["1", "0"]
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    assert math.isclose(1e6 * sum(layer.gradient_mb for layer in layers), trained)
    assert all(layer.backward_ms > 0 for layer in layers)
    deeper = figures.backward_layers(model, lambda: model(torch.ones(3, 4)).sum(), rounds=1)
    assert [layer.name for layer in deeper] == ["1.1", "1.0", "0"]
    assert all(p.grad is None for p in model.parameters())


def test_layers_of_a_checkup_share_its_backward_and_gradients():
    layers = figures.layers_of_checkup(CHECKUP, layers=4)
    assert [(layer.backward_ms, layer.gradient_mb) for layer in layers] == [(25.0, 1.0)] * 4
    with pytest.raises(CourseError, match="saw no backward"):
        figures.layers_of_checkup(CHECKUP | {"memory": {"gradients": 0}})


def test_shares_of_a_step_are_whole_and_the_fast_rank_waits():
    fast, slow = scaling.step_shares(10.0, [(0.0, 4.0), (5.0, 8.0)])
    assert fast == {"batch late": 0.0, "computing": 0.4, "waiting": 0.4, "sending": 0.2}
    assert slow == {"batch late": 0.5, "computing": 0.3, "waiting": 0.0, "sending": 0.2}
    assert scaling.step_shares(7.0, [(0.0, 4.0), (5.0, 8.0)])[1]["sending"] == 0  # never negative
    axes = plots.step_shares({"late": [fast, slow]}, {"late": Interval(3.0, 2.0, 4.0)}).axes[0]
    assert axes.get_title() == "late: rank 0 waits 40% of the step"
    widths = [bar.get_width() for bar in axes.patches]
    assert sum(widths[:4]) == pytest.approx(3.0) and widths[1] == pytest.approx(1.2)


def test_lost_shares_and_the_ideal_add_up_to_the_step():
    seconds = {(1, scaling.ONE): 1.0, (2, scaling.ALONE): 0.6, (2, scaling.SILENT): 0.7, (2, scaling.SHARED): 0.9}
    rounds = {way: torch.full((7,), each, dtype=torch.float64) for way, each in seconds.items()}
    lost = scaling.lost_shares(Comparison(rounds, Interval(1.0, 1.0, 1.0), NARROW), 2)
    assert [round(share.estimate, 9) for share in lost.values()] == [0.1, 0.1, 0.2]


def test_a_speed_up_is_that_of_the_variant_and_one_on_one_rank():
    seconds = {(1, scaling.ONE): 1.0, (2, scaling.SHARED): 0.5, (2, scaling.EACH): 1.25}
    rounds = {way: torch.full((7,), each, dtype=torch.float64) for way, each in seconds.items()}
    compared = Comparison(rounds, Interval(1.0, 1.0, 1.0), NARROW)
    for variant, expected in ((scaling.SHARED, 2.0), (scaling.EACH, 0.8)):
        speedups = scaling.speedups(compared, [1, 2], variant)
        assert [speedup.estimate for speedup in speedups] == pytest.approx([1.0, expected])


def test_a_late_rank_delays_the_step_and_not_its_neighbour():
    found = run_ranks(scaling.compared_delays, 2, 1, {"on time": [0, 0], "one": [0, 3]}, 0.0, backend="gloo")
    (compared, mine), (_, others) = found
    assert compared.median("one") > compared.median("on time")
    assert others["one"][1] > others["one"][0] > mine["one"][0] == 0
    (of_rank_0, of_rank_1) = scaling.shares_of_ways(found)["one"]
    assert of_rank_0["waiting"] > 0 == of_rank_1["waiting"]
    # in the same rounds, so the slowest rank of each is never faster than one rank in all of them
    assert compared.median("one, nothing sent") >= max(mine["one"][1], others["one"][1]) - 1e-9


def test_evidence_on_ranks():
    assert run_ranks(ddp_evidence.running_means, 2, backend="gloo") == [[0.0, 0.0], [1.0, 1.0]]
    found = ddp_evidence.found_with_and_without_barrier()
    assert found == {"without a barrier": [True, False], "with a barrier": [True, True]}
    steps = run_ranks(ddp_evidence.one_step, 2, backend="gloo")
    assert steps[0]["F loss"] != steps[1]["F loss"] and steps[0]["E momentum"] == steps[1]["E momentum"]
    lines = ddp_evidence.side_by_side(steps).splitlines()
    assert len(lines) == len(steps[0]) and lines == sorted(lines)
    assert lines[2].split() == ["B", "samples", "in,", "results", "out", *"rank 0: 4 4 rank 1: 4 4".split()]


def test_two_launchers_number_the_ranks_of_both_machines():
    rows = ddp_evidence.launched_variables()
    machines_and_numbers = [(rank // 4, rank % 4) for rank in range(8)]
    expected = [[machine, number, 4 * machine + number, 8] for machine, number in machines_and_numbers]
    assert [list(map(int, row[:4])) for row in rows] == expected


def own_answers():
    """The references as the Answers of the sharded training."""

    all_gather = check.all_gather.reference()

    def reduce_scatter(flat):
        whole = all_gather(flat).view(dist.get_world_size(), -1).sum(0)
        return whole.chunk(dist.get_world_size())[dist.get_rank()].clone()

    others = check.ShardedOptimizer.reference(), check.gathered.reference()
    return sharded_training.Answers(reduce_scatter, all_gather, *others)


def test_between_steps_stage_1_keeps_the_gradients_and_nothing_of_their_mean():
    [(_, kept), _] = network.simulate(sharded_training.train, 2, Network(0.0, 1e9), 1, 2, own_answers()).results
    assert kept["gradients"] == 4 * sharded_training.n_parameters()


def test_all_stages_train_alike_and_keep_less_and_less():
    answers, wire = own_answers(), Network(0.0, 1e9)
    of_stage = [network.simulate(sharded_training.train, 2, wire, stage, 2, answers).results[0] for stage in range(4)]
    for weights, _ in of_stage[1:]:
        assert torch.allclose(weights, of_stage[0][0][: len(weights)], atol=1e-6)
    kept = [sum(of_rank.values()) for _, of_rank in of_stage]
    whole = 4 * sharded_training.n_parameters()
    assert kept[0] == 4 * whole and kept[1] == 3 * whole and kept[3] == 2 * whole
    assert kept[1] > kept[2] > kept[3]


def test_bytes_kept_leave_out_those_sent_and_errors_are_relative():
    counted = {2: {"parameters": 90, "gradients": 100, "optimizer": 200, "sent": 300}}
    predicted = {2: {"parameters": 100, "gradients": 100, "optimizer": 160, "sent": 300}}
    assert sharded_training.kept_bytes(counted[2]) == 390
    errors = sharded_training.relative_errors(counted, predicted)
    assert errors == pytest.approx(
        {(2, "parameters"): 0.1, (2, "gradients"): 0.0, (2, "optimizer"): 0.25, (2, "sent"): 0.0}
    )


def test_each_statement_on_ddp_has_a_reason_which_says_whether_it_is_true(capfd):
    verdicts = check.ddp_facts.reference()()
    check.ddp_facts.reasons(lambda: dict(verdicts))
    text = " ".join(capfd.readouterr().out.split())
    for letter, is_true in verdicts.items():
        assert f"{letter} is {str(is_true).lower()}" in text
