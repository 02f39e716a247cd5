"""Trials put everything back, predictions are worked by hand, and each rule finds its planted fault."""

import builtins
import dataclasses
import gc
import json
import multiprocessing
import re
import sys
import time
import warnings
from types import SimpleNamespace
from unittest import mock

import pytest
import thread_time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.checkup import (
    advice,
    arithmetic,
    clock,
    compare,
    counted,
    explained,
    formats,
    forward,
    growth,
    habits,
    hooks,
    html,
    item_watch,
    items,
    loaders,
    predict,
    rare,
    replay,
    report,
    run,
    schedule,
    step_ways,
    summary,
    trace,
    trials,
    verdict,
)
from course.checkup import facts as way
from course.checkup.advice import rule as rules
from course.checkup.advice import workers as rule_on_workers
from course.checkup.facts import (
    INFERENCE_MODE,
    NOT_TRUSTED,
    Arithmetic,
    Batch,
    Calls,
    Costs,
    Evaluation,
    Facts,
    GradientNorms,
    Habits,
    Items,
    LineShare,
    Loader,
    Memory,
    NoWay,
    Phase,
    Phases,
    Rare,
    Seconds,
    Skew,
    Trial,
    Trials,
)
from course.checkup.failures import Failures
from course.checkup.lines import Sampler, lines_of_loop
from course.checkup.padding import Padding
from course.checkup.phases import Piece, Step
from course.checkup.replay import NO_CALLS
from course.checkup.schedule import Enough
from course.checkup.watch import Watch
from course.errors import CourseError
from course.measure.comparison import FASTER, NARROW, NOT_DECIDED, SAME, SLOWER, Comparison, Interval
from course.notebook import registry
from course.system.folders import ROOT
from instructor.bench import advisers
from instructor.bench import checkup as bench


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(schedule, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(schedule, "STEPS_MIN", 3)
    monkeypatch.setattr(schedule, "WARM_UP", 2)
    monkeypatch.setattr(schedule, "EVERY", 2)
    for module in (schedule, summary, counted):
        monkeypatch.setattr(module, "COUNTED_STEPS", 6)
    monkeypatch.setattr(trials, "CALL_SECONDS", 0.001)
    monkeypatch.setattr(trials, "ROUNDS_MAX", trials.ROUNDS_MIN)
    monkeypatch.setattr(trials, "DATA_WAITS_MIN", -1.0)  # what is tried depends on no clock
    monkeypatch.setattr(step_ways, "cores", lambda: 2)  # nor on the machine
    monkeypatch.setattr(arithmetic, "peak", lambda width, device, dtype: 1e9)  # whose peak takes a while
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)  # to wait for workers
    for module in (items, item_watch):
        monkeypatch.setattr(module, "LOOKS_MIN", 1)
    yield
    if multiprocessing.active_children():
        gc.collect()  # iterators that a traceback holds: their workers would keep the tests from ending


class Model(nn.Module):
    """A convolution with a batch norm, and a dict as output."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x):
        return {"logits": self.out(self.norm(self.conv(x)).mean((2, 3)))}


@pytest.fixture
def one_loader(monkeypatch):
    """One other loader is tried, which starts no processes."""
    monkeypatch.setattr(trials, "loader_ways", lambda loader, cores: {"num_workers=0": loaders.other_loader(loader)})


@pytest.fixture
def watched(one_loader):
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
    step = replay.replay_of(seen)
    (call,) = step.calls
    x, y = seen.seen.batch
    with replay.put_back(step):
        model.zero_grad()
        with torch.no_grad():
            model.conv.weight.zero_()  # what the weights are does not matter: the graph is computed again
        step.optimizers = []
        step()
        assert model.conv.weight.grad is not None
    assert call.args[0] is x or torch.equal(call.args[0], x)
    assert call.gradients[0].shape == (len(y), 2)


def test_trials_put_weights_buffers_and_optimizer_back(watched):
    model, optimizer, seen = watched
    before = {name: t.clone() for name, t in model.state_dict().items()}
    steps = [state["step"].item() for state in optimizer.state.values()]
    found = run.analyse(seen, "train.py", "", tries=True).facts.trials
    for name, t in model.state_dict().items():
        assert torch.equal(t, before[name]), name
    assert [state["step"].item() for state in optimizer.state.values()] == steps
    for name in ("bf16 autocast", "channels_last", "fused optimizer", "batch x4", "num_workers=0"):
        assert found.get(name).was_measured, found.get(name)
    assert set(found.items.shares) == {"item", "collate"} and found.costs.step > 0


def test_trials_that_would_take_too_long_are_left_out(watched):
    _, _, seen = watched
    seen.minutes = 1e-4
    found = run.analyse(seen, "train.py", "", tries=True).facts.trials
    assert "is too slow for it" in found.get("batch x4").text and "--minutes" in found.get("other loaders").text
    assert found.get("bf16 autocast").was_measured


def test_advice_gains_no_more_than_its_bound():
    line = advice.Advice("workers", "num_workers=4", "01/4", 1.3, "1.40x (1.25 to 1.50), faster", 1.4)
    assert advice.at_most_its_bound(line).gain == 1.3
    assert advice.at_most_its_bound(dataclasses.replace(line, bound=1.9)).gain == 1.4


def test_the_loop_of_a_rare_call_is_not_in_the_bound_of_frequent_ones():
    """The innermost loop around a call of each step is the training itself."""
    often, once = way.Calls(".mul_()", "train.py:9", 26), way.Calls(".copy_()", "train.py:5", 1)
    looked = [way.LineShare("train.py:5", 0.5), way.LineShare("train.py:9", 0.2), way.LineShare("train.py:8", 0.1)]
    around = {"train.py:9": ["train.py:8", "train.py:9"], "train.py:5": ["train.py:4", "train.py:5"]}
    phases = Phases(forward=Phase(0.5), code=Phase(0.5))
    facts = Facts(phases=phases, lines={"code": looked}, habits=Habits(loops=[often, once], loop_lines=around))
    (line,) = [one for one in advice.advise(facts) if one.name == "loops"]
    assert line.bound == pytest.approx(1 / (1 - 0.5 * 0.3))


def test_a_bound_leaves_out_what_watching_takes():
    line = advice.Advice("syncs", "ask once", "06/1", 2.0, gain=2.0)
    freed = advice.without_watching(line, Facts(own_cost=0.1))
    assert freed.bound == freed.gain == pytest.approx(1 / 0.4) and freed.basis == rules.BOUND
    assert advice.without_watching(line, Facts()) == line
    tried = dataclasses.replace(line, tried="1.50x", gain=1.5)
    assert advice.without_watching(tried, Facts(own_cost=0.1)).gain == 1.5


def test_a_step_without_workers_leaves_its_cores_to_the_script():
    beside = Facts(phases=Phases(data=Phase(0.5), forward=Phase(0.3), code=Phase(0.2)), seconds=Seconds(0.1))
    assert predict.times_slower(beside, dataclasses.replace(COSTS, step=0.01)) == pytest.approx(3.0)
    assert predict.times_slower(beside, dataclasses.replace(COSTS, step=0.04)) == 1.0


def test_what_cannot_be_tried_says_why(watched):
    _, _, seen = watched
    seen.seen.calls.clear()
    found = trials.try_all(seen, Facts(seconds=Seconds(1e-3)))
    assert found.get("the step alone").text == f"not measured here, because {NO_CALLS}"
    found = trials.try_all(seen, Facts(ranks=2))
    assert "several ranks" in found.get("all trials").text


def test_a_larger_batch_and_other_loaders_hold_the_same_samples(watched):
    _, _, seen = watched
    longer = step_ways.on_a_larger_batch(replay.replay_of(seen))
    (call,) = longer.calls
    assert call.args[0].shape[0] == call.gradients[0].shape[0] == 16
    loader = DataLoader(torch.arange(10), batch_size=3, drop_last=True)
    same = loaders.other_loader(loader, num_workers=0)
    assert [b.tolist() for b in same] == [b.tolist() for b in loader]


class Transformed(TensorDataset):
    """Items with a transform that can be seen."""

    def __getitem__(self, i):
        return self.transform(super().__getitem__(i)[0])


def test_items_know_their_transform_and_give_it_back():
    data = Transformed(torch.ones(8, 2))
    data.transform = torch.neg
    found = items.items_of(DataLoader(data, 4))
    assert found.shares.keys() == {"read", "transform", "collate"}
    assert sum(found.shares.values()) == pytest.approx(1)
    assert data.transform is torch.neg


class Wrapped:
    """As torchvision's StandardTransform, which its own datasets hold and do not call."""

    def __init__(self, transform):
        self.transform = transform


def test_a_transform_that_the_dataset_calls_is_timed_beside_one_that_it_only_holds(monkeypatch):
    clock = [0.0]

    def slow(row):
        clock[0] += 9.0
        return row

    data = Transformed(torch.ones(8, 2))
    data.transform, data.transforms = slow, Wrapped(slow)
    monkeypatch.setattr(items.time, "perf_counter", lambda: clock[0])
    found = items.items_of(DataLoader(data, 4), seconds=1e9)
    assert found.shares == {"read": 0.0, "transform": 1.0, "collate": 0.0}
    assert data.transform is slow and data.transforms.transform is slow


# ---- predictions, against numbers worked by hand

COSTS = Costs(batch=0.030, batch_cpu=0.030, step=0.010, step_cpu=0.010)


def with_costs(costs):
    """Facts of a loader and a step with these costs alone."""
    return Facts(trials=Trials(costs=costs))


def test_workers_are_predicted_from_the_costs_of_one():
    found = predict.workers(with_costs(COSTS))
    assert (found.values[0], found.values[1]) == pytest.approx((0.040, 0.030)) and "01/4" in found.sentence
    waiting = predict.workers(with_costs(dataclasses.replace(COSTS, batch_cpu=0.0)))
    assert waiting.values[2] == pytest.approx(0.015)


@pytest.mark.parametrize("cores, seconds", [(1, 0.040), (4, 0.010)])
def test_workers_are_predicted_for_the_cores_that_the_process_may_use(cores, seconds, monkeypatch):
    monkeypatch.setattr(predict, "cores", lambda: cores)
    assert predict.workers(with_costs(COSTS)).values[8] == pytest.approx(seconds)


def test_efficiency_of_ranks_hides_all_reduces_behind_backward():
    facts = Facts(memory=Memory(gradients=25_000_000), seconds=Seconds(0.1), phases=Phases(backward=Phase(0.5)))
    found = predict.ranks(facts)
    one = 2 * 20e-6 + (25e6 - 2**20) / 1e9  # the last bucket around a ring of two, which nothing hides
    assert found.values["2 ranks, 1 GB/s"] == pytest.approx(0.1 / (0.1 + one))
    assert predict.ranks(Facts()) is None


def test_noise_scale_of_known_noise_is_found():
    torch.manual_seed(0)
    true, batch, groups = torch.full((400,), 0.5), 8, 60
    gradients = true + torch.randn(4 * groups, 400) * 2 / batch**0.5  # noise of one sample has variance 4
    norms = GradientNorms(
        small=[*gradients.square().sum(1)], large=[g.mean(0).square().sum() for g in gradients.split(4)]
    )
    seen = Facts(gradient_norms=norms, batch=Batch(32, [(batch,)], ["float32"], batch), backwards=1.0)
    found = predict.noise(seen)
    assert found.values["scale"] == pytest.approx(4 * 400 / (0.25 * 400), rel=0.1) and "03/5" in found.sentence


def test_formulas_that_are_not_there_are_asked_for(monkeypatch):
    monkeypatch.setattr(predict, "formula", lambda unit, exercise: None)
    assert "solve predict_seconds" in predict.workers(with_costs(COSTS)).sentence


def test_a_formula_that_a_class_is_given_is_used(monkeypatch):
    monkeypatch.setattr(predict, "has_solutions", lambda: False)
    monkeypatch.setattr(predict, "load_given", lambda exercise, solved: exercise.name)
    uncached = predict.formula.__wrapped__
    assert uncached("02_data_parallel", "all_reduce_seconds") == "all_reduce_seconds"


# ---- arithmetic


def test_a_step_is_told_beside_what_the_device_reaches_and_what_gpu_util_says():
    facts = Facts(seconds=Seconds(0.1), trials=Trials(arithmetic=Arithmetic(flops=2e9, peak=4e10)))
    assert "2 GFLOP per step: 50% of the 40 GFLOP/s of a matrix product here" in str(run.report_on(facts, "", ""))
    on_gpu = dataclasses.replace(facts, gpu_util=0.98)
    assert "here (MFU), while GPU-Util is 98%" in str(run.report_on(on_gpu, "", ""))


def test_the_products_of_a_step_are_counted_as_by_hand(watched, monkeypatch):
    step = replay.replay_of(watched[2])
    conv, linear = 2 * 4 * 4 * 27 * 36, 2 * 4 * 4 * 2  # forward, of four samples; the images need no gradient
    expected = 2 * conv + 3 * linear
    monkeypatch.setattr(arithmetic, "FLOPS_MIN", expected)
    monkeypatch.setattr(arithmetic, "peak", lambda width, device, dtype: 1e9 if dtype == torch.float32 else 0.0)
    assert arithmetic.arithmetic_of(step, 1.0, compiled=False) == Arithmetic(expected, 1e9)
    monkeypatch.setattr(arithmetic, "FLOPS_MIN", expected + 1)
    assert arithmetic.arithmetic_of(step, 1.0, compiled=False) is None
    for backwards, compiled in ((2.0, False), (1.0, True)):
        with pytest.raises(NoWay):
            arithmetic.arithmetic_of(step, backwards, compiled)


# ---- advice

PLAIN = Phases(forward=Phase(0.3), backward=Phase(0.6), code=Phase(0.1))
WAITS = Phases(data=Phase(0.8), forward=Phase(0.2))
LOADER = Loader("TensorDataset", 8, workers=0, pin_memory=True, persistent=False, prefetch=None, starts=1)
ITEMS = Items(seconds=1e-3, busy=1.0, own_collate=True, shares={"item": 0.02, "collate": 0.98})
THREE_TIMES = Trial(FASTER, step=3.9, low=None, high=None, whole=3.0, text="")
OVERHEAD = Facts(
    phases=Phases(PLAIN | {"code": Phase(0.5)}),
    lines={"code": [LineShare("a.py:3", 1.0)]},
    syncs=[Calls(".item()", "a.py:3", 64.0)],
    seconds=Seconds(0.1),
    sync_seconds=0.01,
    padding=Padding(1.5, 1.2, 1.0, 8, torch.tensor([4]), 2),
    trials=Trials({"batch x4": THREE_TIMES}),
)


MODEL = "bound by the model's forward and backward pass"  # what it waits for there, phases do not tell


@pytest.mark.parametrize(
    ("seen", "names", "regime"),
    [
        (Facts(phases=PLAIN), [], MODEL),
        (Facts(phases=PLAIN, loader=LOADER), ["pin_memory"], MODEL),  # there is no GPU
        (Facts(phases=PLAIN, loader=dataclasses.replace(LOADER, pin_memory=False)), [], MODEL),
        (Facts(phases=WAITS, trials=Trials(items=ITEMS)), ["collate"], "data-bound"),
        (
            Facts(phases=WAITS, trials=Trials(items=dataclasses.replace(ITEMS, own_collate=False))),
            [],
            "data-bound",
        ),
        (OVERHEAD, ["syncs", "padding", "batch"], "overhead-bound"),  # the larger gain first, what retrains last
    ],
)
def test_what_was_seen_leads_to_its_advice_alone(seen, names, regime):
    assert [line.name for line in advice.advise(seen)] == names
    assert verdict.regime(seen) == regime


def test_a_larger_batch_spreads_no_time_in_which_the_script_makes_its_data():
    world = Facts(phases=Phases(code=Phase(0.9), backward=Phase(0.1)), gaps={"forward": 2.0, "optimizer": 1.0})
    assert predict.share_per_sample(world) == pytest.approx(0.6)
    assert predict.bound_of_way("batch x4", world) == pytest.approx(4 / (1 + 3 * 0.6))
    loaded = dataclasses.replace(world, loader=LOADER)
    assert predict.bound_of_way("batch x4", loaded) == 4.0


SOUND = Interval(1.0, 0.98, 1.02)


def test_a_loop_that_waits_is_told_what_is_left_when_no_number_of_workers_helps():
    busy = dataclasses.replace(LOADER, workers=2)
    slower = dataclasses.replace(THREE_TIMES, verdict=SLOWER)
    nothing = Facts(phases=WAITS, loader=busy)
    (line,) = [one for one in advice.advise(nothing) if one.name == "data-bound"]
    assert line.bound == pytest.approx(5.0) and "80% of a step" in line.text and "was tried" in line.text
    tried = dataclasses.replace(nothing, trials=Trials({"num_workers=4": slower, "num_workers=0": slower}))
    (line,) = [one for one in advice.advise(tried) if one.name == "data-bound"]
    assert "none of 2 other numbers of workers is proven to gain 5%" in line.text
    little = dataclasses.replace(THREE_TIMES, whole=1.04)
    hardly = dataclasses.replace(nothing, trials=Trials({"num_workers=4": little, "num_workers=0": slower}))
    assert "workers" not in [one.name for one in advice.advise(hardly)], "4 % are not worth three processes"
    assert "data-bound" in [one.name for one in advice.advise(hardly)]
    shares_cores = dataclasses.replace(
        tried, trials=dataclasses.replace(tried.trials, costs=COSTS), seconds=Seconds(0.1)
    )
    (line,) = [one for one in advice.advise(shares_cores) if one.name == "data-bound"]
    assert line.bound == pytest.approx(0.1 / 0.010), "a step without workers takes a tenth"
    helped = dataclasses.replace(nothing, trials=Trials({"num_workers=4": THREE_TIMES, "num_workers=0": slower}))
    assert "data-bound" not in [one.name for one in advice.advise(helped)]


@pytest.mark.parametrize(("share", "is_told"), [(0.02, True), (0.08, False), (0.5, False)])
def test_a_loader_at_the_ceiling_is_told_with_its_bound(share, is_told):
    unpinned = dataclasses.replace(LOADER, workers=2, pin_memory=False)
    facts = Facts(phases=Phases(data=Phase(share), forward=Phase(1 - share)), loader=unpinned)
    report = str(run.report_on(facts, "train.py", "ended"))
    assert ("at the ceiling" in report and "1.02 times" in report) == is_told
    assert verdict.at_the_ceiling(dataclasses.replace(facts, loader=None)) == ""


@pytest.mark.parametrize(
    ("ratio", "text", "verdict"),
    [
        (Interval(2.0, 1.5, 3.0), "1.33x (1.20 to 1.50), faster", FASTER),
        (Interval(0.5, 0.4, 0.6), "0.67x (0.57 to 0.75), slower", SLOWER),
        (Interval(1.0, 0.95, 1.06), "1.00x (0.97 to 1.03), no difference of 5 %", SAME),
        (Interval(1.2, 0.95, 1.4), "1.09x (0.97 to 1.17), not decided here", NOT_DECIDED),
        (Interval(1.01, 1.003, 1.02), "1.00x (1.00 to 1.01), no difference of 5 %", SAME),  # as it is printed
        (Interval(9.0, 8.0, 10.0), "1.80x (1.78 to 1.82), not trusted: more than its bound of 1.60x", NOT_TRUSTED),
        (Interval(4.0, 3.0, 10.0), "1.60x (1.50 to 1.82), faster", FASTER),  # the bound lies within
    ],
)
def test_the_verdict_on_a_trial_is_that_of_the_interval_beside_it_for_the_whole_step(ratio, text, verdict):
    found = trials._trial(ratio, SOUND, share=0.5, most=1.6)
    assert (found.text, found.verdict) == (text, verdict)
    assert found.helped == (verdict == FASTER)


def test_nothing_is_decided_where_the_same_step_differs_from_itself():
    found = trials._trial(Interval(1.0, 0.8, 1.3), Interval(1.1, 1.05, 1.2), share=0.5, most=9.0)
    assert found.verdict == NOT_DECIDED and "the same step twice differs, 1.10 (1.05 to 1.20)" in found.text


def test_a_loader_is_timed_in_whole_rounds_of_its_workers_after_what_they_had_ready(monkeypatch):
    monkeypatch.setenv("COURSE_SCALE", "laptop")
    clock, taken = [0.0], []

    def batches():
        for number in range(10**6):
            taken.append(number)
            clock[0] += 0.0 if number < 4 else 1.0  # four were ready
            yield number

    class Loader:
        num_workers, prefetch_factor = 3, 2

    with mock.patch.object(loaders, "now", lambda device: clock[0]):
        seconds = loaders.seconds_per_batch(batches(), lambda: None, start_up=4, n_batches=6, device="cpu")
    assert seconds == 1.0 and len(taken) == 10
    assert loaders.ready_batches(Loader) == 6
    assert [loaders.batches_that_fit(Loader, n) for n in (10**6, 20, 1)] == [42, 21, 12]


def test_another_loader_cannot_gain_more_than_the_step_without_it():
    waits = Facts(phases=Phases(data=Phase(0.2), forward=Phase(0.8)), seconds=Seconds(0.1))
    costs = Costs(batch=0.02, batch_cpu=0.02, step=0.05, step_cpu=0.05)
    slower = dataclasses.replace(costs, step=0.09)
    assert predict.bound_of_data(waits) == pytest.approx(1.25)
    assert predict.bound_of_data(waits, costs=costs) == pytest.approx(2.0), "a step that need not wait is faster"
    assert predict.bound_of_data(waits, part=0.5, costs=costs) == pytest.approx(1 / 0.6)
    assert predict.bound_of_data(waits, costs=slower) == pytest.approx(1.25)
    assert predict.bound_of_way("fused optimizer", Facts(phases=Phases(optimizer=Phase(0.5)))) == 2.0
    assert predict.bound_of_way("batch x4", waits) == pytest.approx(4 / 1.6)


def test_a_trial_that_helped_is_advised_and_one_that_did_not_is_told():
    helped = Trial(FASTER, step=1.5, low=1.3, high=1.5, whole=1.4, text="1.50x")
    tried = {
        "bf16 autocast": helped,
        "compile": dataclasses.replace(helped, verdict=SLOWER, text="0.9x"),
        "channels_last": dataclasses.replace(helped, whole=1.02, text="1.02x, faster"),  # not worth a change
        "fused optimizer": dataclasses.replace(helped, verdict=NOT_TRUSTED, text="1.5x, not trusted"),
        "num_workers=2": helped,
    }
    facts = Facts(phases=PLAIN, loader=LOADER, trials=Trials(tried))
    lines = advice.advise(facts)
    assert [line.name for line in lines] == ["workers", "pin_memory", "bf16 autocast"], "numbers change: last"
    told = verdict.would_not_help(facts, lines)
    little = f"channels_last: 1.02x, faster. {verdict.LITTLE}"
    assert told[-3:] == ["compile: 0.9x.", little, "fused optimizer: 1.5x, not trusted."]
    tried = {"batch x4": dataclasses.replace(helped, text="1.42x, faster")}
    told = verdict.would_not_help(Facts(phases=PLAIN, trials=Trials(tried)), [])
    assert told[-1] == f"batch x4: 1.42x, faster. {verdict.NOT_WORTH['batch x4']}"


@pytest.mark.parametrize(("late", "lines"), [(0.02, 1), (0.005, 0)])
def test_a_rank_is_worth_a_line_if_the_others_wait_for_a_tenth_of_a_step(late, lines):
    skew = Skew([0.01, 0.01 + late], late, rank=1, phase="data", waits=late, line="a.py:3", low=late)
    assert len(advice.advise(Facts(skew=skew, seconds=Seconds(0.1)))) == lines


# ---- the form for a program

KEYS = """
    schema version machine name ending cuda compiled torch steps seconds phases lines loader evaluation memory padding
    syncs sync_seconds collectives kept_losses optimizers models own_cost zeroed ranks backwards batch skew habits rare
    gpu_util trials items costs arithmetic predictions predicted
    advice regime would_not_help not_seen gaps
""".split()
KEYS_OF = {
    "steps": "watched run",
    "seconds": "median low high each",
    "loader": "dataset batch_size workers pin_memory persistent prefetch starts start_seconds steps_per_start iterable",
    "evaluation": "share times graphs in_train_mode",
    "memory": "weights gradients optimizer activations lines",
    "padding": "waste longest bucketed sequences lengths batches",
    "optimizers": "names steps tensors",
    "batch": "bytes shapes dtypes samples",
    "skew": "seconds late rank phase waits line low",
    "items": "seconds busy own_collate shares line line_share opened",
    "habits": "anomaly threads cores processes float32_matmul distributions loops looping loop_lines reductions "
    "recompiles breaks growth",
    "rare": "share times every",
    "costs": "batch batch_cpu step step_cpu",
    "arithmetic": "flops peak",
}


def test_the_keys_of_json_are_those_that_programs_know():
    full = dataclasses.replace(
        OVERHEAD,
        loader=LOADER,
        batch=Batch(32, [(8,)], ["float32"], 8),
        seconds=Seconds(0.3),
        skew=Skew([0.1, 0.2], 0.1, rank=1, phase="data", waits=0.1),
        trials=Trials(
            {"batch x4": dataclasses.replace(THREE_TIMES, low=2.0, high=3.0)}, ITEMS, COSTS, Arithmetic(2e9, 4e10)
        ),
    )
    data = json.loads(run.report_on(full, "train.py", "it ended").json())
    assert [*data] == KEYS
    assert {name: " ".join(data[name]) for name in KEYS_OF} == KEYS_OF
    assert [*data["phases"]["code"]] == ["share", "low", "high", "seconds"]
    assert [*data["trials"]["batch x4"]] == [
        "verdict",
        "step",
        "low",
        "high",
        "whole",
        "text",
    ]
    assert [*data["advice"][0]] == ["name", "text", "part", "bound", "tried", "gain", "fault", "later", "basis"]
    assert data["padding"]["lengths"] == [4] and data["syncs"] == [[".item()", "a.py:3", 64.0]]


def test_what_was_not_seen_is_empty_in_json_or_left_out():
    trial = Trials({"compile": trials._not_measured("it is off")})
    data = json.loads(run.report_on(Facts(trials=trial), "train.py", "it ended").json())
    assert [*data] == KEYS
    for name in ("loader", "padding", "batch", "skew", "items", "costs", "arithmetic", "phases"):
        assert data[name] == {}
    assert data["own_cost"] is None and data["memory"]["activations"] is None
    assert [*data["trials"]["compile"]] == ["verdict", "step", "whole", "text"]


# ---- rules

PART = re.compile(r"\b\d\d/\d\b")
TAKES = {"batch x4": 4.0}  # times as long as before, if nothing helps
# If all helps: times as long as before; within what the phases allow, for the rest is not trusted.
HELPED_TAKES = dict.fromkeys(predict.PHASES_OF_WAYS, 0.8) | {"batch x4": 1.0, "num_workers=0": 0.9}
AS_BEFORE = (trials.CONTROL, trials.WITH_GRAPHS)
# Rules that need trials; those of the first line find their fault in times alone, mended or not.
BY_TIME = ("workers", "batch", "compile")
TRIED = (
    *(*BY_TIME, "transform", "item", "read", "collate", "optimizers", "bf16 autocast", "channels_last"),
    *("fused optimizer", "float32", "threads"),
)
# that are watched, of scripts that need more than 4; eight workers have 16 batches ready
STEPS = {"each_third_step": 24, "growing": 8, "many_workers": 32}
WAIT_FOR_WORKERS = ("many_workers", "shared_disk", "short_epochs")  # which the time of a thread does not show
OTHER_WORKERS = {False: "num_workers=2", True: "num_workers=0"}  # whether there are workers: what else is tried
# ranks, a minute of torch.compile, a GPU
ELSEWHERE = ("late_rank", "late_backward", "recompiled", "broken_graph", *bench.ON_CUDA)
ONE_PROCESS = [(rule, name) for rule in advice.RULES for name in rule.PLANTED if name not in ELSEWHERE]


def comparison_if(helps):
    """Stand-ins for compare and compare_measured, which depend on no clock: each way was taken once before."""

    def found(names):
        times = {}
        for name in names:
            changed = HELPED_TAKES.get(name, 0.25) if helps else TAKES.get(name, 1.0)
            times[name] = torch.full((7,), 1.0 if name in AS_BEFORE else changed, dtype=torch.float64)
        return Comparison(times, SOUND, NARROW)

    def compare(ways, **options):
        for name in (trials.WITH_GRAPHS, INFERENCE_MODE):
            if name in ways:  # which was not
                ways[name]()
        return found(ways)

    def compare_measured(names, measure, **options):
        for name in names:
            measure(name)
        return found(names)

    return compare, compare_measured


def without_workers(loader, **changes):
    return loaders.other_loader(loader, num_workers=0)


def bytes_kept():
    """Bytes that the script keeps; what a process holds depends on what earlier tests have freed, too."""
    kept = vars(sys.modules["__main__"]).get("kept", [])
    return sum(one.nbytes for one in kept if isinstance(one, torch.Tensor))


def other_ways(loader, cores):
    return {OTHER_WORKERS[loader.num_workers > 0]: without_workers(loader)}


def advice_on(script, arguments, monkeypatch, tries=True, helps=True):
    """The Report of a planted script in which whatever can be tried `helps`, or nothing does."""
    if script not in WAIT_FOR_WORKERS:
        thread_time.install(monkeypatch, clock, counted, forward, habits, hooks, items, trials)
        monkeypatch.setattr(items, "_busy_seconds", time.thread_time)
    compare, compare_measured = comparison_if(helps)
    monkeypatch.setattr(trials, "compare", compare)
    monkeypatch.setattr(trials, "compare_measured", compare_measured)
    monkeypatch.setattr(loaders, "steady_batches", lambda num_workers: 2)
    monkeypatch.setattr(loaders, "BATCHES_MIN", 2)
    # loaders that are compared start no processes, whatever their names say
    monkeypatch.setattr(trials, "loader_ways", other_ways)
    monkeypatch.setattr(trials, "other_loader", without_workers)
    monkeypatch.setattr(growth, "resident_bytes", bytes_kept)
    monkeypatch.setattr(torch, "compile", lambda module, **options: module)  # a compiler takes a minute
    # other tests in this process may have registered the pretended GPU, which has no pinned memory
    monkeypatch.setattr(torch.accelerator, "is_available", torch.cuda.is_available)
    if not tries:
        monkeypatch.setattr(run, "try_all", lambda *args: Trials())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pinned memory without a GPU, and of many workers: these are the faults
        return bench.watched(bench.PLANTED / f"{script}.py", arguments, STEPS.get(script, 4), compile=True)


def test_the_timeline_has_an_axis_up_to_its_longest_step():
    steps = [Step("train", seconds, [Piece("data", 1.0, 1.0 + seconds)]) for seconds in (0.02, 0.04)]
    drawn = html._timeline(steps)
    assert re.findall(r"<text[^>]*>([^<]*)<", drawn) == ["0 ms", "10 ms", "20 ms", "30 ms", "40 ms"]
    assert re.findall(r'width="([\d.]+)"', drawn) == ["900", "450.0", "900.0"]  # the picture, and a bar per step
    assert "<text" not in html._timeline([])


@pytest.mark.parametrize(("rule", "script"), ONE_PROCESS, ids=lambda value: getattr(value, "NAME", value))
def test_a_rule_finds_its_planted_fault_and_nothing_once_it_is_mended(rule, script, monkeypatch):
    found = advice_on(script, [], monkeypatch, tries=rule.NAME in TRIED)
    assert rule.PART in [line.part for line in found.advice if line.name == rule.NAME]
    assert "<svg" in html.page(found) and "http" not in html.page(found)
    if rule.NAME not in BY_TIME:
        mended = advice_on(script, ["mended"], monkeypatch, tries=rule.NAME in TRIED)
        assert rule.NAME not in [line.name for line in mended.advice]


@pytest.mark.parametrize("script", bench.HEALTHY)
def test_nothing_is_advised_where_nothing_is_wrong(script, monkeypatch):
    assert advice_on(script, [], monkeypatch, helps=False).advice == []


def test_a_trial_that_is_advised_is_known_by_the_name_of_its_rule():
    names = {rule.NAME for rule in advice.RULES}
    tried = (way.BF16, way.CHANNELS_LAST, way.COMPILE, way.FLOAT32, way.FUSED, way.INFERENCE_MODE, way.LARGER_BATCH)
    for trial in (*tried, way.ONE_OPTIMIZER, way.TF32, way.THREADS, way.WITHOUT_ANOMALY):
        assert verdict.RULE_OF_TRIAL.get(trial, trial) in names


def test_every_rule_has_its_own_name_a_planted_script_and_a_part_that_there_is():
    names = [rule.NAME for rule in advice.RULES]
    assert len(names) == len(set(names))
    modules = {path.stem for path in (ROOT / "course/checkup/advice").glob("*.py")}
    assert {rule.__name__.rpartition(".")[2] for rule in advice.RULES} == modules - {"__init__", "rule"}
    planted = [name for rule in advice.RULES for name in rule.PLANTED]
    assert all(rule.PLANTED for rule in advice.RULES) and len(planted) == len(set(planted))
    assert {path.stem for path in bench.PLANTED.glob("*.py")} == {*planted, *bench.HEALTHY}
    for rule in advice.RULES:
        assert PART.fullmatch(rule.PART) and len(registry.find_parts(rule.PART)) == 1, rule.NAME


def test_every_part_that_the_check_up_names_is_there():
    for path in (ROOT / "course/checkup").rglob("*.py"):
        for part in PART.findall(path.read_text()):
            assert len(registry.find_parts(part)) == 1, f"{path.name} names {part}"


def test_the_page_on_the_check_up_has_a_row_for_each_rule():
    page = (ROOT / "docs/checkup.md").read_text()
    for rule in advice.RULES:
        scripts = ", ".join(f"`{name}`" for name in rule.PLANTED)
        rows = [row for row in page.splitlines() if row.startswith("| `") and row.endswith(f"| {scripts} |")]
        assert len(rows) == 1 and f"| {rule.PART} |" in rows[0] and rows[0].startswith(f"| `{rule.NAME}`"), rule.NAME


def said(name, gain=None, failed=""):
    return advisers.Said(name, name, gain, cost=0.01, failed=failed)


def test_the_tables_of_the_benchmark_count_each_adviser():
    rows = {
        "padding": bench.Row(Interval(1.9, 1.8, 2.0), {"check-up": said("padding", 2.0), "TraceML": said("compute")}),
        "syncs": bench.Row(Interval(3.0, 2.9, 3.1), {"check-up": said("syncs", 2.0), "TraceML": said("data")}),
        "zeroed": bench.Row(None, {"check-up": said("", failed="hang")}),
        "healthy_mlp": bench.Row(None, {"check-up": said(""), "TraceML": said("code")}),
    }
    table = bench.summary(rows, ["check-up", "TraceML"])
    assert table.rows == [
        ["check-up", "2 of 3", "0 of 1", "1 of 2", "0 of 0", "0", "1", "1.0%", "1.0%"],
        ["TraceML", "1 of 2", "1 of 1", "0 of 0", "0 of 0", "0", "0", "1.0%", "1.0%"],
    ]
    cells = {row[0]: row for row in bench.table_of(rows, ["check-up", "TraceML"]).rows}
    assert cells["padding"][2:] == ["yes", "2.00", "1.90 (1.80 to 2.00)", "1.0%", "0", "compute: yes"]
    assert cells["zeroed"][2] == "no" and cells["healthy_mlp"][2] == "yes"


def test_bfloat16_on_a_healthy_script_is_a_false_alarm_unless_it_is_faster():
    for fixed, alarms in ((Interval(1.9, 1.8, 2.0), "0 of 1"), (Interval(1.1, 0.9, 1.3), "1 of 1"), (None, "1 of 1")):
        rows = {"healthy_mlp": bench.Row(fixed, {"check-up": said("bf16 autocast", 2.0)})}
        assert bench.summary(rows, ["check-up"]).rows[0][2] == alarms
    other = {"healthy_mlp": bench.Row(Interval(1.9, 1.8, 2.0), {"check-up": said("syncs", 2.0)})}
    assert bench.summary(other, ["check-up"]).rows[0][2] == "1 of 1"


def test_the_benchmark_stops_before_its_time_is_over_and_the_next_call_continues(tmp_path, monkeypatch, capsys):
    clock = [0.0]

    def asked(path, *settings):
        clock[0] += 50.0
        return said("")

    monkeypatch.setattr(bench, "KEPT", tmp_path / "rows.json")
    monkeypatch.setattr(bench, "FAULTS", {})
    monkeypatch.setattr(bench, "HEALTHY", ("healthy_mlp", "healthy_images", "healthy_tokens"))
    monkeypatch.setattr(bench.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(advisers, "ask_checkup", asked)
    done = []
    for _ in range(3):
        bench.run(within=2.0)  # minutes: two scripts, and a third might end too late
        done.append(len(bench.read_rows()))
    assert done == [2, 3, 3] and clock[0] == 150.0
    assert capsys.readouterr().out.count("1 script to go: call again without --fresh") == 1


def test_public_scripts_are_listed_by_their_address_where_there_is_no_folder():
    rows = bench.public_table(None, 60).rows
    assert len(rows) == 12 and all(row[1].startswith("not run") for row in rows)
    assert ["https://github.com/karpathy/nanoGPT/blob/HEAD/train.py"] in [row[:1] for row in rows]


def test_the_rows_of_the_benchmark_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "KEPT", tmp_path / "rows.json")
    rows = {"padding": bench.Row(Interval(1.9, 1.8, 2.0), {"check-up": said("padding", 2.0)}), "syncs": bench.Row()}
    assert bench.read_rows() == {}
    bench._write_rows(rows)
    assert bench.read_rows() == rows


def test_each_rule_looks_at_a_part_of_a_step():
    of_parts = [name for names in bench.PARTS.values() for name in names]
    assert sorted(of_parts) == sorted(rule.NAME for rule in advice.RULES)


def test_patterns_of_torch_stand_for_rules_of_the_checkup():
    known = {rule.NAME for rule in advice.RULES}
    for pattern, names in advisers.RULES_OF_PATTERNS.items():
        assert known.issuperset(names), pattern
    said = advisers.Said("FP32 MatMul Pattern", "FP32 MatMul Pattern")
    assert advisers.names_cause(advisers.PATTERNS, said, way.TF32, "compute")


@pytest.mark.parametrize("loader", ["batches", "DataLoader(rows)"])
def test_the_innermost_loop_that_steps_is_instrumented(loader):
    source = f"for epoch in range(2):\n    for x in {loader}:\n        optimizer.step()\n    print(epoch)\n"
    served = loader if "DataLoader" in loader else f"traceml.wrap_dataloader_fetch({loader})"
    inner = f"    for x in {served}:\n        with traceml.trace_step(model):\n            optimizer.step()"
    assert advisers.instrumented(source) == f"for epoch in range(2):\n{inner}\n    print(epoch)"


def test_an_adviser_that_crashes_or_hangs_is_a_row(tmp_path, monkeypatch):
    crashed = advisers._run(["-c", "raise ValueError('broken')"], str(tmp_path))
    assert advisers._crashed(crashed).text == "ValueError: broken"
    monkeypatch.setattr(advisers, "SECONDS_MAX", 0.1)
    assert advisers._run(["-c", "import time; time.sleep(60)"], str(tmp_path)).failed == advisers.HANG


# ---- causes that need no script


@pytest.mark.parametrize(("script", "rule"), [("recompiled", "recompiles"), ("broken_graph", "graph breaks")])
def test_what_torch_compiles_again_is_found_and_nothing_once_it_is_mended(script, rule, monkeypatch):
    from torch._dynamo.utils import clear_compilation_metrics

    monkeypatch.setattr(run, "try_all", lambda *args: Trials())
    for arguments in ([], ["mended"]):
        torch._dynamo.reset()
        clear_compilation_metrics()
        report = bench.watched(bench.PLANTED / f"{script}.py", arguments, 12)
        assert (rule in [line.name for line in report.advice]) == (not arguments)


def test_compilations_are_counted_by_line(monkeypatch):
    monkeypatch.setattr(habits, "_metrics", lambda: iter(METRICS))
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", habits)  # it is loaded
    again, breaks = habits._compilations()
    assert again.pop("a module of torch: size mismatch") == 1, "its source is no file of the script"
    assert again == {"train.py:5: size mismatch, expected 2": 2} and breaks == ["train.py:7"]
    facts = Facts(phases=PLAIN, habits=Habits(recompiles=again, breaks=breaks))
    names = [line.name for line in advice.advise(facts)]
    assert names == ["recompiles", "graph breaks"]
    assert advice.advise(Facts(phases=PLAIN, habits=Habits(recompiles={"train.py:5: sizes": 1}))) == []


METRICS = [
    ("forward", "/a/train.py", 5, ""),
    ("forward", "/a/train.py", 5, "0/0: size mismatch, expected 2"),
    ("forward", "/a/train.py", 5, "0/1: size mismatch, expected 3"),
    ("torch_dynamo_resume_in_forward_at_7", "/a/train.py", 7, ""),
    ("inner", "/a/site-packages/torch/_dynamo/external_utils.py", 67, "0/0: size mismatch"),
]


def test_too_many_threads_of_several_ranks_are_told():
    crowded = Facts(phases=PLAIN, habits=Habits(threads=8, cores=8, processes=4))
    (line,) = advice.advise(crowded)
    assert line.name == "threads" and "OMP_NUM_THREADS=2" in line.text
    assert advice.advise(dataclasses.replace(crowded, habits=Habits(threads=2, cores=8, processes=4))) == []


def test_tf32_is_advised_where_the_gpu_has_it_and_it_helped():
    tried = Trials({"TF32": THREE_TIMES})
    assert [one.name for one in advice.advise(Facts(phases=PLAIN, trials=tried))] == []
    has_it = Facts(phases=PLAIN, trials=tried, habits=Habits(float32_matmul=True))
    assert [one.name for one in advice.advise(has_it)] == ["TF32"]


def step_of(seconds, code, kind="timed"):
    pieces = [Piece("forward", 0.0, seconds - code), Piece("code", seconds - code, seconds)]
    return Step(kind, seconds, pieces if kind == "timed" else [])


def test_own_code_that_comes_each_so_many_steps_is_seen_and_a_disturbance_is_not():
    steps = [step_of(0.1 if i % 5 == 2 else 0.01, 0.091 if i % 5 == 2 else 0.001, "free") for i in range(40)]
    steps[7], steps[8] = step_of(0.1, 0.091), step_of(0.01, 0.001)
    found = rare.rare(steps)
    assert (found.times, found.every) == (8, 5) and found.share == pytest.approx(8 * 0.09 / (8 * 0.1 + 32 * 0.01))
    watched = [*steps, *(step_of(0.2 if i % 5 == 2 else 0.1, 0.1 if i % 5 == 2 else 0.001) for i in range(10))]
    assert rare.rare(watched).share == found.share, "steps to which nothing is attached say how long they take"
    disturbed = [step_of(0.1 if i in (3, 4, 17, 30) else 0.01, 0.001) for i in range(40)]
    assert rare.rare(disturbed).times == 0, "the model was slow, and without a rhythm"
    assert rare.rare([step_of(0.01, 0.001)] * 40).times == 0 and rare.rare([]).times == 0


def test_a_process_grows_if_it_has_more_in_each_quarter(monkeypatch):
    def per_step(sizes):
        grown = growth.Growth()
        for number, size in enumerate(sizes):
            monkeypatch.setattr(growth, "resident_bytes", lambda size=size: size)
            grown.note(number)
        return grown.per_step()

    assert per_step([1e6 * n for n in range(40)]) == pytest.approx(1e6)
    assert per_step([1e6 * min(n, 20) for n in range(40)]) == 0, "it filled a cache"
    assert per_step([1e6] * 40) == 0 and per_step([1e6 * n for n in range(6)]) == 0


def test_a_file_that_is_opened_for_each_item_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(item_watch, "LOOKS_MIN", 1000)  # too few looks, however many there are, name no line
    (tmp_path / "one").write_text("x")
    (tmp_path / "two").write_text("x")
    with item_watch.ItemWatch() as seen:
        for name in ("one", "one", "two"):
            with open(tmp_path / name):
                pass
    assert seen.opened(2) == str(tmp_path / "one") and seen.opened(3) == "" and seen.opened(1) == ""
    assert builtins.open.__module__ in ("_io", "io") and seen.line == ""


def test_a_look_stands_for_the_time_since_the_one_before(monkeypatch):
    """A call that keeps Python's lock is looked at once, however long it takes."""
    times = iter([0.0, 0.0, 1.0, 1.25, 4.25])  # the first when it is made
    monkeypatch.setattr(sys.modules["course.checkup.lines"], "time", SimpleNamespace(perf_counter=lambda: next(times)))
    phases = iter(["code", "code", "forward"])
    sampler = Sampler(lambda: next(phases), Failures())
    sampler._last = next(times)
    for _ in range(3):
        sampler._look_at()
    assert sampler.looks == 3 and sampler.found.total() == 4.25
    assert [sum(t for (phase, _), t in sampler.found.items() if phase == name) for name in ("code", "forward")] == [
        1.25,
        3,
    ]
    monkeypatch.undo()
    sampler.end()


def test_the_lines_of_the_innermost_loop_are_known(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("for step in range(9):\n    for p in ps:\n        p.mul_(2)\n        p.add_(1)\n    print(step)\n")
    assert lines_of_loop(str(file), "train.py:3") == ["train.py:2", "train.py:3", "train.py:4"]
    assert lines_of_loop(str(file), "train.py:7") == []
    assert lines_of_loop("<ipython-input-1>", "cell:3") == []


def test_lines_of_items_that_release_the_lock_for_moments_are_seen():
    """Such as a line of Python that makes a tensor of each item: other threads hardly get a turn."""
    before = sys.getswitchinterval()
    with item_watch.ItemWatch() as seen:
        begin = time.perf_counter()
        while time.perf_counter() - begin < 0.2:
            torch.tensor([sum(i == j for j in range(300)) for i in range(16)])
    assert seen.looks >= item_watch.LOOKS_MIN and seen.line.startswith("test_checkup_advice.py:")
    assert sys.getswitchinterval() == before


def test_workers_that_were_not_tried_are_predicted_and_come_after_the_line_to_change():
    facts = Facts(phases=WAITS, loader=LOADER, seconds=Seconds(0.04), trials=Trials(items=ITEMS, costs=COSTS))
    line = rule_on_workers.check(facts)
    assert line.basis == rules.PREDICTED and line.gain < line.bound
    assert [line.name for line in advice.advise(facts)] == ["collate", "workers", "pin_memory"]


@pytest.mark.parametrize(("bound", "text"), [(1.3, "1.30x"), (4.99, "4.99x"), (5.0, "5x or more"), (99, "5x or more")])
def test_bounds_far_above_one_are_not_told_apart(bound, text):
    assert formats.at_most(bound) == text


# ---- what is explained, and what a gain is


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        (Facts(phases=PLAIN), "forward and backward takes 90%"),
        (Facts(phases=PLAIN, trials=Trials({"bf16 autocast": THREE_TIMES})), ""),
        (Facts(phases=WAITS), "waiting for data takes 80%"),
        (Facts(phases=WAITS, trials=Trials({"num_workers=2": THREE_TIMES})), ""),
        (Facts(phases=PLAIN, evaluation=Evaluation(share=0.75, times=9)), "evaluation takes 75%"),
        (Facts(phases=PLAIN, rare=Rare(0.6, 5, 25)), "your own code, now and then, takes 60%"),
        (
            Facts(phases=Phases(code=Phase(0.9), forward=Phase(0.1)), lines={"code": [LineShare("a.py:3", 1.0)]}),
            "your own code takes 90% of the time, mostly at a.py:3",
        ),
    ],
)
def test_the_largest_part_is_explained_only_if_something_was_tried_on_it(facts, part):
    sentence = explained.unexplained(facts)
    assert part in sentence and bool(part) == bool(sentence)
    assert sum(explained.parts(facts).values()) == pytest.approx(1)


def test_no_fault_is_reported_only_where_the_largest_part_is_explained():
    assert "no fault was seen" not in str(run.report_on(Facts(phases=PLAIN), "train.py", "ended"))
    same = dataclasses.replace(THREE_TIMES, verdict=SAME)
    tried = Facts(phases=PLAIN, trials=Trials({"bf16 autocast": same}))
    assert "no fault was seen" in str(run.report_on(tried, "train.py", "ended"))


def test_a_bound_is_called_a_bound_and_a_prediction_predicted():
    waits = run.report_on(Facts(phases=WAITS, trials=Trials(items=ITEMS)), "train.py", "ended")
    (line,) = waits.advice
    assert line.basis == rules.BOUND and "not tried: that is a bound" in str(waits) and "predicted" not in str(waits)
    padded = run.report_on(dataclasses.replace(OVERHEAD, syncs=[], trials=Trials()), "train.py", "ended")
    (line,) = [one for one in padded.advice if one.name == "padding"]
    assert line.basis == rules.PREDICTED and f"predicted {line.gain:.2f}x" in str(padded) and line.gain < line.bound


def test_advice_that_changes_more_than_the_time_says_what():
    starts = dataclasses.replace(LOADER, workers=2, starts=4, start_seconds=1.0, steps_per_start=10.0)
    facts = dataclasses.replace(OVERHEAD, loader=starts)
    texts = {line.name: line.text for line in advice.advise(facts)}
    assert "keep their copy of the dataset" in texts["persistent"]
    assert "changes the order of the samples" in texts["padding"] and "learning rate" in texts["batch"]


def test_the_start_of_an_epoch_is_what_comes_before_the_loading_of_its_first_batch():
    short = dataclasses.replace(LOADER, pin_memory=False, starts=4, start_seconds=1.0, steps_per_start=10.0)
    waits = Phases(data=Phase(0.2, seconds=0.02), forward=Phase(0.8, seconds=0.08))
    facts = Facts(phases=waits, loader=short, seconds=Seconds(0.1))
    assert rules.start_up_share(facts) == pytest.approx(0.98 / 2.0)
    (line,) = [one for one in advice.advise(facts) if one.name == "epoch_start"]
    assert line.bound == pytest.approx(1 / 0.51)
    slow_batches = dataclasses.replace(facts, trials=Trials(costs=dataclasses.replace(COSTS, batch=0.9)))
    assert rules.start_up_share(slow_batches) == pytest.approx(0.1 / 2.0), "that time stays where workers stay"


# ---- two reports, and a trace


def saved(path, each, advised=(), samples=8, machine="2 cores"):
    """A file of --json of a training whose steps took these seconds."""
    phases = Phases(forward=Phase(0.5, 0.45, 0.55, 0.5 * each[0]), backward=Phase(0.5, 0.45, 0.55, 0.5 * each[0]))
    habits = Habits(anomaly=bool(advised))
    batch = Batch(4 * samples, [(samples,)], ["float32"], samples)
    facts = Facts(phases=phases, seconds=Seconds(each[0], each=each), batch=batch, habits=habits)
    with mock.patch.object(report, "machine", lambda: machine):
        path.write_text(run.report_on(facts, "train.py", "ended").json())
    return path


def test_two_reports_tell_whether_a_change_helped(tmp_path):
    before = saved(tmp_path / "before.json", [0.2 + 0.001 * (i % 7) for i in range(48)], advised=["anomaly"])
    after = saved(tmp_path / "after.json", [0.1 + 0.001 * (i % 5) for i in range(36)])
    found = compare.compare_files(before, after)
    assert found.ratio.low > 1.9 and found.ratio.estimate == pytest.approx(2, rel=0.05)
    text = str(found)
    assert text.startswith("train.py is ") and "faster." in text and "gone: switch anomaly detection off" in text
    assert found.phases["forward"].estimate == pytest.approx(2) and "machines differ" not in text
    bigger = saved(tmp_path / "bigger.json", [0.2 + 0.001 * (i % 5) for i in range(36)], samples=16, machine="H100")
    found = compare.compare_files(before, bigger)
    assert found.ratio.estimate == pytest.approx(2, rel=0.05), "a step has twice the samples"
    assert "machines differ" in str(found)
    assert "no interval" in str(compare.compare_files(before, saved(tmp_path / "few.json", [0.1] * 4)))


def test_the_same_training_twice_is_no_difference(tmp_path):
    rng = torch.Generator().manual_seed(0)
    files = []
    for name in ("one.json", "other.json"):
        files.append(saved(tmp_path / name, (0.1 + 0.002 * torch.rand(60, generator=rng)).tolist()))
    assert "no difference of 5 %" in str(compare.compare_files(*files))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 99}'])
def test_a_file_that_is_no_report_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(CourseError, match="a.json"):
        compare.compare_files(tmp_path / "a.json", tmp_path / "a.json")


def test_a_trace_has_the_phases_of_its_steps_one_after_the_other():
    steps = [Step("timed", 0.02, [Piece("data", 5.0, 5.01), Piece("forward", 5.01, 5.02)])]
    steps.append(Step("timed", 0.03, [Piece("data", 9.0, 9.03)]))
    events = json.loads(trace.trace("train.py", steps))["traceEvents"]
    names = [(one["name"], round(one["ts"]), round(one["dur"])) for one in events if one["ph"] == "X"]
    phases = [("data", 0, 10_000), ("forward", 10_000, 10_000)]
    assert names == [("step 0", 0, 20_000), *phases, ("step 1", 20_000, 30_000), ("data", 20_000, 30_000)]
