"""What `course checkup --plan` says of tensor and pipeline ranks: blocks, bytes of real ranks, seconds."""

import itertools
import math
import random

import pytest
import torch
from torch import nn

from course.checkup import plan, plan_blocks, structure
from course.checkup.cluster import Cluster
from course.checkup.facts import Facts, Memory, Phase, Phases, Seconds
from course.checkup.replay import Replay
from course.checkup.run import watch_steps
from course.checkup.seen import Call
from course.checkup.structure import Parameter, Piece, Structure, Unknown, structure_of
from course.checkup.summary import summarise
from course.checkup.watch import Watch
from course.parallel.distributed import run_ranks
from course.parallel.pipeline import bubble, gpipe_order, timetable
from course.training.ragged_transformer import RaggedTransformer
from course.training.small_gpt import next_token_loss
from instructor.bench import plans
from instructor.bench.plan_runs import Machine, Size, optimizer_of, ran

SIZE = Size(dim=32, blocks=5, rows=4, columns=16)
FAST = Machine(flops=math.inf, latency=0.0, bandwidth=math.inf)


# ---- bytes, next to ranks


@pytest.fixture(scope="module")
def watched_gpt():
    """(Facts, Structure) of a small GPT, watched as shortly as it can be."""
    model = SIZE.model()
    optimizer = optimizer_of(model.parameters())
    found = []

    def step(tokens):
        optimizer.zero_grad()
        next_token_loss(model, tokens).backward()
        optimizer.step()

    watch = Watch(4, 0.01, at_end=lambda: found.append(structure_of(watch)))
    watch_steps([SIZE.tokens(0)], step, watch)
    return summarise(watch), found[0]


@pytest.mark.parametrize("ranks", [2, 3])
def test_bytes_are_those_that_ranks_keep_and_send(watched_gpt, ranks):
    """Three ranks cut nothing evenly: neither rows, nor blocks, and not the heads."""
    facts, of_model = watched_gpt
    cluster = Cluster(ranks, 1e12, 1e9)
    names = [name for name in plans.PLANS if name != plan.TENSOR or ranks == 2]
    blocks = [stage.n_blocks for stage in plan_blocks.stages_of(facts, cluster, of_model)]
    running = names, SIZE, plans.parts(), FAST, blocks, 1
    of_ranks = run_ranks(ran, ranks, *running, backend="gloo")
    rows = {row.plan: row for row in plan.rows(facts, cluster, of_model)}
    assert (plan.TENSOR in rows) == (ranks == 2)
    for name in names:
        assert plans.Config("gpt", ranks, rows[name], [each[name] for each in of_ranks]).is_exact, name


# ---- the blocks of a model


def looked_at(model, *inputs):
    """The Structure of a model whose last call had these inputs."""
    output = model(*inputs)
    call = Call(model, inputs, {}, {0: torch.ones_like(output)})
    every = tuple(structure._parameter(parameter, {}) for parameter in model.parameters())
    return structure._looked_at(Replay([call], [], "cpu"), every, {}, passes=1)


def test_a_chain_of_blocks_is_seen_and_nothing_of_the_model_changes():
    torch.manual_seed(0)
    model = RaggedTransformer(16, 8, 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = looked_at(model, torch.zeros(2, 4, dtype=torch.int64), torch.arange(4))
    assert (found.name, len(found.blocks), found.no_blocks, found.no_pairs) == ("blocks", 3, "", "")
    assert [block.sends for block in found.blocks] == [2 * 4 * 8 * 4] * 3
    assert [len(block.pairs) for block in found.blocks] == [2] * 3
    of_ends = [sum(p.n_bytes for p in piece.parameters) for piece in (found.before, found.after)]
    assert of_ends == [16 * 8 * 4, (16 * 8 + 2 * 8) * 4]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_torchs_own_transformer_layers_have_pairs():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    found = looked_at(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 4, 8))
    assert (found.name, found.no_pairs) == ("layers", "")
    split = frozenset().union(*(pair.split for pair in found.blocks[0].pairs))
    whole = [p.shape for p in found.blocks[0].parameters if p.key not in split]
    assert whole == [(8,)] * 6  # the biases behind the sums, and two norms of two vectors each
    assert [pair.width for pair in found.blocks[0].pairs] == [2, 16]


class OwnSkips(nn.Module):
    """Adds the input of the first block to what the second one gets."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        return self.blocks[1](self.blocks[0](x) + x)


@pytest.mark.parametrize(
    "model, words",
    [(nn.Linear(4, 4), "calls each of its modules once"), (OwnSkips(), "more than the output of the block before it")],
)
def test_what_is_no_chain_is_said(model, words):
    with pytest.raises(Unknown, match=words):
        looked_at(model, torch.randn(3, 4))


@pytest.mark.parametrize(
    "model, words",
    [
        (nn.Sequential(nn.Conv1d(2, 2, 1), nn.Conv1d(2, 2, 1)), "no block has nn.Linear layers"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), "do not come in pairs"),
        (nn.Sequential(*(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)) for _ in range(2))), ""),
    ],
)
def test_linear_layers_are_cut_only_in_pairs(model, words):
    found = looked_at(model, torch.randn(2, 2, 4))
    assert words in found.no_pairs and bool(words) == bool(found.no_pairs)


def test_several_calls_of_several_models_are_not_known():
    models = [nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(2)]
    calls = [Call(model, (torch.ones(1, 2),), {}, {0: torch.ones(1, 2)}) for model in models]
    for replayed in (calls, [calls[0]] * 2):
        with pytest.raises(Unknown, match="several models, or one several times"):
            structure._looked_at(Replay(replayed, [], "cpu"), (), {}, passes=1)


def test_a_reason_stands_in_the_table():
    facts = facts_of(1.0, 2.0)
    unknown = Structure((), no_blocks="it is a riddle", no_pairs="it has no layers")
    text = plan.text(facts, Cluster(2, 1e9, 1e9), unknown)
    assert "pipeline not known: it is a riddle." in text and "tensor   not known: it has no layers." in text
    few = plan.text(facts, Cluster(8, 1e9, 1e9), chain([1.0] * 4))
    assert "has 4 blocks for 8 devices" in few
    assert max(len(line) for line in [*text.splitlines(), *few.splitlines()]) <= 100


# ---- seconds


def facts_of(forward, backward, **others):
    """Facts of a step that does nothing else."""
    whole = forward + backward
    shares = dict(forward=Phase(forward / whole, seconds=forward), backward=Phase(backward / whole, seconds=backward))
    return Facts(seconds=Seconds(whole), phases=Phases(**shares), memory=Memory(4, 4, 8, 0), backwards=1.0, **others)


def chain(forwards, sends=0, n_bytes=4):
    """A Structure of blocks whose backward pass takes twice as long as the forward pass."""
    blocks = []
    for key, forward in enumerate(forwards):
        parameter = Parameter(key, (n_bytes // 4,), 4, trained=True)
        blocks.append(Piece((parameter,), forward, 2 * forward, sends=sends))
    every = tuple(parameter for block in blocks for parameter in block.parameters)
    return Structure(every, "blocks", blocks=tuple(blocks), no_pairs=structure.NO_LINEAR)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_balanced_pipeline_has_the_bubble_of_its_timetable(ranks):
    facts = facts_of(12.0, 24.0)
    row = plan_blocks.pipeline_row(facts, Cluster(ranks, 1e9, 1e9), chain([1.0] * 12))
    waits = bubble(timetable([gpipe_order(rank, ranks, ranks) for rank in range(ranks)]))
    computing = 36.0  # of each rank: as many micro-batches as ranks
    assert row.seconds == pytest.approx(computing / (1 - float(waits)))
    assert f"bubble {float(waits):.0%}" in row.note and row.sent == 0


def test_slow_links_set_the_pace_of_a_pipeline():
    cluster = Cluster(2, 1e9, bandwidth=10.0, latency=1.0)
    row = plan_blocks.pipeline_row(facts_of(2.0, 4.0), cluster, chain([1.0, 1.0], sends=90))
    assert row.seconds == pytest.approx(1 + 10 + 1 + 10 + 2 + 10 + 2 + 10)
    assert row.sent == 2 * 90


def test_stages_are_as_even_as_they_can_be():
    rng = random.Random(0)
    for _ in range(20):
        seconds = [rng.random() for _ in range(7)]
        parts = rng.randint(1, 5)
        longest = []
        for cuts in itertools.combinations(range(1, 7), parts - 1):
            ends = [0, *cuts, 7]
            longest.append(max(sum(seconds[a:b]) for a, b in itertools.pairwise(ends)))
        ends = [0, *plan_blocks._balanced(seconds, parts)]
        assert max(sum(seconds[a:b]) for a, b in itertools.pairwise(ends)) == pytest.approx(min(longest))


def test_ddp_waits_for_the_bucket_that_is_ready_last():
    """Two blocks of 1 MiB: the last one's gradients hide behind the first one's backward pass."""
    two = chain([1.0, 1.0], n_bytes=2**20)
    cluster = Cluster(2, 1e9, bandwidth=2**20)
    rows = {row.plan: row for row in plan.rows(facts_of(2.0, 4.0), cluster, two)}
    assert rows["DDP"].seconds == pytest.approx(6 + 1)
    assert rows["DDP"].sent == 2 * 2**20
    waiting = Cluster(2, 1e9, bandwidth=2**20, overlap=False)
    rows = {row.plan: row for row in plan.rows(facts_of(2.0, 4.0), waiting, two)}
    assert rows["DDP"].seconds == pytest.approx(6 + 2)


def test_tensor_ranks_compute_less_and_wait_for_every_sum():
    mlp = nn.Sequential(*(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(2)))
    found = looked_at(mlp, torch.randn(3, 4))
    fast, slow = Cluster(2, 1e9, math.inf), Cluster(2, 1e9, bandwidth=48.0)
    facts = facts_of(1.0, 2.0)
    rows = [plan_blocks.tensor_row(facts, cluster, found) for cluster in (fast, slow)]
    assert 3.0 <= rows[0].seconds <= 6.0  # half of twice the batch, and what is not shared
    messages = 2 * 2 * 2  # forward and backward of two blocks, for two batches
    assert rows[0].sent == rows[1].sent == messages * 3 * 4 * 4
    assert rows[1].seconds - rows[0].seconds == pytest.approx(messages * 1.0)


# ---- the bench


def test_a_slow_device_takes_the_seconds_of_its_flops(monkeypatch):
    from instructor.bench import slow_device

    rested = []
    monkeypatch.setattr(slow_device.time, "sleep", rested.append)
    monkeypatch.setattr(slow_device.time, "perf_counter", lambda: 0.0)
    x = torch.ones(4, 8, requires_grad=True)
    with slow_device.SlowDevice(flops=2.0):
        (x @ torch.ones(8, 2)).sum().backward()
    assert rested == [64.0, 64.0]


def test_the_table_of_plans_says_how_many_are_within_the_limit(monkeypatch, capsys):
    row = plan.Row("DDP", 8, 1.1, True, state=4, sent=2.0)
    ranks = [plans.Ran([1.0, 2.0, 1.0], 2.0, 4, 4), plans.Ran([1.0, 1.0, 1.0], 2.0, 3, 4)]
    wrong = plans.Ran([2.0] * 3, 3.0, 4, 4)
    configs = [plans.Config("small", 2, row, ranks), plans.Config("small", 2, row, [wrong])]
    monkeypatch.setattr(plans, "_configs", lambda *args: configs)
    (table,) = plans.run([2], ["small"], 3, on_cores=False)
    assert "1 of 2 within 15%, bytes exact in 1" in table.note
    assert [cells[5] for cells in table.rows] == ["1.10", "0.55"]
    assert [cells[-1] for cells in table.rows] == ["yes", "no"]
