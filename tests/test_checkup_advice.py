"""Trials put everything back, predictions are worked by hand, and a planted fault that needs no clock is named."""

import types

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.checkup import advice, html, predict, report, trials, watch
from course.checkup.watch import Enough, Watch
from course.measure import timing
from course.measure.timing import DID_NOT_HELP, HELPED, NOT_MEASURED
from instructor.bench import checkup as bench


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(watch, "LOOK", 0.02)
    monkeypatch.setattr(watch, "ENOUGH", 3)
    monkeypatch.setattr(trials, "CALL", 0.001)
    monkeypatch.setattr(trials, "WAITS", -1.0)  # what is tried depends on no clock
    monkeypatch.setattr(trials, "loader_ways", lambda loader, cores: {"num_workers=0": trials.other_loader(loader)})


class Model(nn.Module):
    """A convolution with a batch norm, and a dict as output."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x):
        return {"logits": self.out(self.norm(self.conv(x)).mean((2, 3)))}


@pytest.fixture
def watched():
    """(model, optimizer, Watch) of a small training."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(TensorDataset(torch.randn(32, 3, 8, 8), torch.randint(2, (32,))), 4)
    with Watch(4) as seen, pytest.raises(Enough):
        while True:
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x)["logits"], y).backward()
                optimizer.step()
    return model, optimizer, seen


def test_a_replay_computes_the_gradients_of_the_last_step(watched):
    model, optimizer, seen = watched
    replay = trials.replay_of(seen)
    (call,) = replay.calls
    x, y = seen.batch
    with trials.put_back(replay):
        model.zero_grad()
        with torch.no_grad():
            model.conv.weight.zero_()  # what the weights are does not matter: the graph is computed again
        replay.optimizers = []
        replay()
        assert model.conv.weight.grad is not None
    assert call.args[0] is x or torch.equal(call.args[0], x)
    assert call.gradients[0].shape == (len(y), 2)


def test_trials_put_weights_buffers_and_optimizer_back(watched):
    model, optimizer, seen = watched
    before = {name: t.clone() for name, t in model.state_dict().items()}
    steps = [state["step"].item() for state in optimizer.state.values()]
    found = report.make(seen, "train.py", "", tries=True).data
    for name, t in model.state_dict().items():
        assert torch.equal(t, before[name]), name
    assert [state["step"].item() for state in optimizer.state.values()] == steps
    for name in ("bf16 autocast", "channels_last", "fused optimizer", "batch x4", "num_workers=0"):
        assert found["trials"][name]["verdict"] != NOT_MEASURED, found["trials"][name]
    assert set(found["items"]["shares"]) == {"item", "collate"} and found["costs"]["step"] > 0


def test_trials_that_would_take_too_long_are_left_out(watched):
    _, _, seen = watched
    seen.minutes = 1e-4
    found = report.make(seen, "train.py", "", tries=True).data["trials"]
    assert "is too slow for it" in found["batch x4"]["text"] and "--minutes" in found["other loaders"]["text"]
    assert found["bf16 autocast"]["verdict"] != NOT_MEASURED


def test_a_trial_that_gave_more_than_it_can_is_told():
    line = advice.possible(advice.Advice("workers", "num_workers=4", "01/4", 1.3, "2.00x", 2.0))
    assert line.gain == 1.3 and "more than 1.30x cannot be" in line.tried
    assert advice.possible(advice.Advice("workers", "num_workers=4", "01/4", 1.9, "2.00x", 2.0)).gain == 2.0


def test_what_cannot_be_tried_says_why(watched):
    _, _, seen = watched
    seen.calls.clear()
    found = trials.trials(seen, {"ranks": 1, "phases": {}, "seconds": {"median": 1e-3}, "batch": {}})
    assert found["trials"]["the step alone"]["text"] == "not measured here, because no forward pass was kept"
    found = trials.trials(seen, {"ranks": 2})
    assert "several ranks" in found["trials"]["all trials"]["text"]


def test_a_larger_batch_and_other_loaders_hold_the_same_samples(watched):
    _, _, seen = watched
    longer = trials._longer(trials.replay_of(seen))
    (call,) = longer.calls
    assert call.args[0].shape[0] == call.gradients[0].shape[0] == 16
    loader = DataLoader(torch.arange(10), batch_size=3, drop_last=True)
    same = trials.other_loader(loader, num_workers=0)
    assert [b.tolist() for b in same] == [b.tolist() for b in loader]


class Transformed(TensorDataset):
    """Items with a transform that can be seen."""

    def __getitem__(self, i):
        return self.transform(super().__getitem__(i)[0])


def test_items_know_their_transform_and_give_it_back():
    data = Transformed(torch.ones(8, 2))
    data.transform = torch.neg
    found = trials.items(DataLoader(data, 4))
    assert found["shares"].keys() == {"read", "transform", "collate"}
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert data.transform is torch.neg


# ---- predictions, against numbers worked by hand


def test_workers_are_predicted_from_the_costs_of_one():
    costs = {"batch": 0.030, "batch_cpu": 0.030, "step": 0.010, "step_cpu": 0.010}
    seconds, sentence = predict.workers(None, {"costs": costs})
    assert (seconds[0], seconds[1]) == pytest.approx((0.040, 0.030)) and "01/4" in sentence
    waiting, _ = predict.workers(None, {"costs": costs | {"batch_cpu": 0.0}})
    assert waiting[2] == pytest.approx(0.015)


def test_efficiency_of_ranks_hides_all_reduces_behind_backward():
    data = {"memory": {"gradients": 25_000_000}, "seconds": {"median": 0.1}, "phases": {"backward": {"share": 0.5}}}
    found, _ = predict.ranks(None, data)
    one = 2 * 20e-6 + 25e6 / 1e9  # one bucket around a ring of two, which nothing hides
    assert found["2 ranks, 1 GB/s"] == pytest.approx(0.1 / (0.1 + one))
    assert predict.ranks(None, {"memory": {"gradients": 0}}) is None


def test_noise_scale_of_known_noise_is_found():
    torch.manual_seed(0)
    true, batch, groups = torch.full((400,), 0.5), 8, 60
    gradients = true + torch.randn(4 * groups, 400) * 2 / batch**0.5  # noise of one sample has variance 4
    counted = types.SimpleNamespace(small=[*gradients.square().sum(1)])
    counted.large = [g.mean(0).square().sum() for g in gradients.split(4)]
    seen = types.SimpleNamespace(counted=counted)
    found, sentence = predict.noise(seen, {"batch": {"samples": batch}, "backwards": 1.0})
    assert found["scale"] == pytest.approx(4 * 400 / (0.25 * 400), rel=0.1) and "03/3" in sentence


def test_formulas_that_are_not_there_are_asked_for(monkeypatch):
    monkeypatch.setattr(predict, "formula", lambda unit, exercise: None)
    costs = {"batch": 0.03, "batch_cpu": 0.03, "step": 0.01, "step_cpu": 0.01}
    assert "solve predict_seconds" in predict.workers(None, {"costs": costs})[1]


# ---- advice

PLAIN = {
    "phases": {"forward": {"share": 0.3}, "backward": {"share": 0.6}, "code": {"share": 0.1}},
    "loader": {}, "lines": {}, "syncs": [], "collectives": [], "padding": {}, "zeroed": 0.0, "kept_losses": 0.0,
    "evaluation": {"graphs": {}, "share": 0.0, "times": 0}, "cuda": False, "trials": {}, "items": {},
    "optimizers": {"steps": 1, "tensors": 4}, "compiled": False,
}  # fmt: skip


LOADER = {"pin_memory": True, "workers": 0, "persistent": False, "starts": 1}
WAITS = {"phases": {"data": {"share": 0.8}, "forward": {"share": 0.2}}}
ITEMS = {"shares": {"item": 0.02, "collate": 0.98}, "seconds": 1e-3, "busy": 1.0, "own_collate": True}
OVERHEAD = {"phases": PLAIN["phases"] | {"code": {"share": 0.5}}, "lines": {"code": [("a.py:3", 1.0)]},
            "syncs": [(".item()", "a.py:3", 64.0)], "padding": {"waste": 1.5, "bucketed": 1.0},
            "trials": {"batch x4": {"verdict": HELPED, "step": 3.9, "whole": 3.0, "text": ""}}}  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "names", "regime"),
    [
        ({}, [], "compute-bound"),
        ({"loader": LOADER}, ["pin_memory"], "compute-bound"),  # there is no GPU
        ({"loader": LOADER | {"pin_memory": False}}, [], "compute-bound"),
        (WAITS | {"items": ITEMS}, ["collate"], "data-bound"),
        (WAITS | {"items": ITEMS | {"own_collate": False}}, [], "data-bound"),
        (OVERHEAD, ["syncs", "padding", "batch"], "overhead-bound"),  # the larger gain first, what retrains last
    ],
)
def test_what_was_seen_leads_to_its_advice_alone(seen, names, regime):
    assert [line["name"] for line in advice.advice(PLAIN | seen)] == names
    assert advice.regime(PLAIN | seen) == regime


def test_a_trial_says_what_it_means_for_the_whole_step():
    twice = timing.Comparison(torch.tensor([[2.0, 1.0]] * 4, dtype=torch.float64), noise=1.0)
    assert trials._verdict(twice, share=0.5)["text"].startswith("1.33x (1.33 to 1.33)")


def test_a_trial_that_helped_is_advised_and_one_that_did_not_is_told():
    t = {"verdict": HELPED, "step": 1.5, "whole": 1.4, "text": "1.50x"}
    data = PLAIN | {"trials": {"bf16 autocast": t, "compile": t | {"verdict": DID_NOT_HELP, "text": "0.9x"}}}
    data["advice"] = advice.advice(data)
    assert [line["name"] for line in data["advice"]] == ["bf16 autocast"]
    assert "compile: 0.9x." in advice.would_not_help(data)


COUNTED = "graphs kept_losses barrier per_parameter padding".split()  # faults that need no clock


@pytest.mark.parametrize("name", COUNTED)
def test_a_planted_fault_that_needs_no_clock_is_among_the_advice(name, monkeypatch):
    monkeypatch.setattr(trials, "trials", lambda *args: {})
    found = bench.watched(bench.PLANTED / f"{name}.py", [], 4)
    assert bench.FAULTS[name] in [line["name"] for line in found.data["advice"]]
    fixed = bench.watched(bench.PLANTED / f"{name}.py", ["fix"], 4)
    assert bench.FAULTS[name] not in [line["name"] for line in fixed.data["advice"]]
    assert "<svg" in html.page(found) and "http" not in html.page(found)


def test_every_script_of_the_benchmark_is_there_and_its_summary_counts(capsys):
    assert {p.stem for p in bench.PLANTED.glob("*.py")} == {*bench.FAULTS, *bench.HEALTHY}
    rows = {
        "padding": bench.Row("padding", "pad less", expected=2.0, fixed=1.9, cost=0.01),
        "syncs": bench.Row("padding", "pad less", expected=2.0, fixed=3.0, cost=0.01),
        "healthy_mlp": bench.Row("", "nothing", expected=2.0, fixed=None, cost=0.01),
    }
    bench.summary(rows)
    printed = capsys.readouterr().out
    for words in ("first advice: 1 of 2", "nothing is wrong: 1 of 1", "within 20%: 1 of 2", "highest 1.0%"):
        assert words in printed
