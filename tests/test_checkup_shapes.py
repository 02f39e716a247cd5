"""Scripts in the shapes that trainings have: none is harmed, hangs, loses its report or is misread."""

import contextlib
import os
import random
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
import thread_time
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from course.checkup import (
    advice,
    clock,
    counted,
    forward,
    habits,
    hooks,
    item_watch,
    items,
    limits,
    loaders,
    run,
    schedule,
    script,
    session,
    step_ways,
    summary,
    trials,
    verdict,
    watch,
)
from course.checkup.facts import Evaluation, Facts, Phase, Phases
from course.checkup.replay import Replay
from course.checkup.schedule import Enough
from course.checkup.seen import Call
from course.checkup.watch import Watch
from course.measure.comparison import NARROW, Comparison, Interval

SHAPES = Path(__file__).parent / "shapes"
STEPS = 8


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Little is looked at, and what is tried takes each way once."""
    monkeypatch.setattr(schedule, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(schedule, "STEPS_MIN", 3)
    monkeypatch.setattr(schedule, "EVERY", 2)
    for module in (schedule, summary, counted):
        monkeypatch.setattr(module, "COUNTED_STEPS", 6)
    for module in (items, item_watch):
        monkeypatch.setattr(module, "LOOKS_MIN", 1)
    thread_time.install(monkeypatch, clock, counted, forward, habits, hooks, items, trials, sleeps=True)
    monkeypatch.setattr(items, "_busy_seconds", time.thread_time)
    monkeypatch.setattr(trials, "CALL_SECONDS", 0.001)
    monkeypatch.setattr(trials, "DATA_WAITS_MIN", -1.0)  # what is tried depends on no clock
    monkeypatch.setattr(trials, "compare", compared)
    monkeypatch.setattr(trials, "compare_measured", measured)
    monkeypatch.setattr(trials, "loader_ways", lambda one, cores: {"num_workers=0": loaders.other_loader(one)})


def comparison_of(names):
    """A Comparison in which all ways take the same time."""
    times = {name: torch.ones(7, dtype=torch.float64) for name in names}
    return Comparison(times, Interval(1.0, 0.98, 1.02), NARROW)


def compared(ways, **options):
    for way in ways.values():
        way()
    return comparison_of(ways)


def measured(names, measure, **options):
    for name in names:
        measure(name)
    return comparison_of(names)


def checked(name, *arguments, tries=False, minutes=3.0, steps=STEPS):
    """(Report, exit code) of a shape, run in this process."""
    found = script.find(str(SHAPES / f"{name}.py"), is_module=False)
    one = session.Session(f"{name}.py", tries, exit_process=no_exit)
    with script.as_main(found, arguments) as module:
        code = one.run(found.code, module, steps, minutes)
    return one.report, code


def no_exit(code):
    raise AssertionError(f"the process would have ended with code {code}")


# ---- the cases, each with its right outcome


def test_a_teacher_without_gradients_in_each_step_is_part_of_its_forward_pass():
    report, _ = checked("teacher")
    assert report.facts.phases.share("forward") > 0 and not report.facts.evaluation.times
    assert "too few steps" not in report.regime and len(report.facts.models) == 2


def test_data_in_a_folder_that_the_script_deletes_are_there_while_loaders_are_tried(capsys):
    report, code = checked("scratch_folder", tries=True)
    assert code == 0 and report.facts.trials.get("num_workers=0").was_measured and report.facts.trials.items
    assert "the folder is gone" not in capsys.readouterr().out  # the script was ended, not continued


def test_workers_for_a_stream_are_advised_only_with_the_word_that_it_must_share_out_its_rows():
    for tries in (True, False):
        report, _ = checked("unsharded", tries=tries)
        assert not report.facts.trials.of_workers()
        (line,) = [one for one in report.advice if one.name == "workers"]
        assert "share out its rows by get_worker_info()" in line.text
    report, _ = checked("unsharded", "shares them out", tries=True)
    assert report.facts.trials.get("num_workers=0").was_measured


def test_a_step_with_a_closure_cannot_be_taken_again_and_its_report_says_so():
    report, code = checked("lbfgs", tries=True)
    assert code == 0 and "closure" in report.facts.trials.get(trials.STEP_ALONE).text
    assert all(report.facts.phases.share(name) > 0 for name in ("forward", "backward", "optimizer"))


def test_values_that_cost_nothing_are_not_advised_against():
    report, _ = checked("environment")
    names = [line.name for line in report.advice]
    assert "syncs" not in names and report.regime != "sync-bound"
    lines = (SHAPES / "environment.py").read_text().splitlines()
    number = lines.index("            time.sleep(0.0004)  # the world") + 1
    assert f"environment.py:{number}" in [line.line for line in report.facts.lines["code"]]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_model_that_was_saved_whole_is_loaded_without_the_course(tmp_path):
    file = tmp_path / "model.pt"
    _, code = checked("saved_whole", str(file))
    assert code == 0  # and its copies, its pickle and its TorchScript compute the same
    assert b"course" not in file.read_bytes()
    loaded = torch.load(file, weights_only=False)
    assert not loaded._forward_hooks and not loaded._forward_pre_hooks


def test_a_transform_that_torchvision_calls_is_seen():
    shares = checked("called_transform", tries=True, steps=4)[0].facts.trials.items.shares
    assert shares["transform"] > shares["read"]


def test_a_bare_except_around_each_step_does_not_outlive_the_check_up(capsys):
    report, code = checked("swallows")
    assert code == 0 and report.facts.phases and "never" not in capsys.readouterr().out
    assert sys.gettrace() is None or "coverage" in repr(sys.gettrace())


def test_a_sampler_of_batches_and_an_own_collate_function_are_asked_as_the_loader_asks_them():
    report, _ = checked("batch_sampler", tries=True)
    assert report.facts.trials.items.own_collate and report.facts.trials.get("num_workers=0").was_measured


def test_evaluation_that_takes_most_of_the_time_is_what_it_is_bound_by():
    report, _ = checked("often_validated", steps=24)
    assert report.facts.evaluation.times and not report.facts.evaluation.graphs
    costly = Facts(phases=Phases(forward=Phase(1.0)), evaluation=report.facts.evaluation)
    for share, words in ((0.6, "bound by evaluation"), (0.2, verdict.regime(Facts(phases=costly.phases)))):
        costly.evaluation.__dict__["share"] = share
        assert verdict.regime(costly) == words


def test_passes_that_act_are_not_called_evaluation_and_never_take_more_than_all_the_time():
    report, _ = checked("ppo", steps=24)
    acting = report.facts.evaluation
    assert acting.in_train_mode and acting.times
    assert 0 < acting.share < 1, "the first step holds what was before it, so it does not count"
    facts = Facts(phases=Phases(forward=Phase(1.0)), evaluation=Evaluation(share=0.6, times=9, in_train_mode=True))
    assert "evaluat" not in verdict.regime(facts) + advice.evaluation.check(facts).text


def test_the_order_of_an_epoch_is_no_item():
    found = checked("epoch_start", tries=True)[0].facts.trials.items
    assert found.seconds < 0.002  # a permutation of so many numbers, or its share in two items, takes longer


CAUSES_OF = {"opened_per_item": "item", "epoch_start": "epoch_start", "often_validated": "evaluation"}


@pytest.mark.parametrize("name", CAUSES_OF)
def test_a_cause_is_named_first_although_no_trial_helps_and_not_once_it_is_mended(name):
    report, _ = checked(name, tries=name == "opened_per_item", steps=24)
    assert report.advice[0].name == CAUSES_OF[name], str(report)
    mended, _ = checked(name, "mended", tries=name == "opened_per_item", steps=24)
    assert CAUSES_OF[name] not in [line.name for line in mended.advice]


# ---- other shapes

WITH_PHASES = "forward backward optimizer".split()
OTHERS = {  # shape -> phases that it has
    "dqn": WITH_PHASES, "ppo": WITH_PHASES, "gan": WITH_PHASES, "momentum_encoder": WITH_PHASES,
    "frozen_norm": WITH_PHASES, "checkpointing": WITH_PHASES, "trainer": ["data", *WITH_PHASES],
    "language_model": WITH_PHASES, "soft_actor_critic": WITH_PHASES, "own_update": ["backward"],
    "stream_once": ["data", *WITH_PHASES], "opened_per_item": ["data", *WITH_PHASES],
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_the_phases_of_each_shape_are_seen_and_nothing_fails(name):
    report, code = checked(name, tries=True)
    facts = report.facts
    assert code == 0 and not facts.failures
    assert [phase for phase in OTHERS[name] if phase not in facts.phases] == []
    assert sum(one.share for one in facts.phases.values()) == pytest.approx(1)
    assert facts.evaluation.graphs == {}
    failed = [trial.text for trial in facts.trials.by_name.values() if "Error" in trial.text]
    assert failed == []


def test_every_shape_has_a_test():
    source = Path(__file__).read_text()
    for path in SHAPES.glob("*.py"):
        assert f'"{path.stem}"' in source, path.stem


# ---- kinds of what can go wrong


def small():
    """(model, optimizer, loader) of a tiny training."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
    data = TensorDataset(torch.randn(32, 3, 8, 8), torch.randint(2, (32,)))
    return model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(data, 8)


def train(model, optimizer, loader, extra=lambda: None):
    """Train until the check-up ends it."""
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            extra()


def watched(*training):
    with Watch(STEPS) as seen, pytest.raises(Enough):
        train(*training)
    return seen


LOOKS = """
    seconds phases lines loader evaluation memory find_padding kept_losses optimizers models own_cost batch gaps skew
"""
TRIED = "items_of replay_of put_back tried_once try_steps costs_of try_loaders other_loader compare compare_measured"
ERRORS = (ValueError("a stranger's object\nsays so"), KeyboardInterrupt(), MemoryError())


@pytest.mark.parametrize("cause", ERRORS, ids=lambda cause: type(cause).__name__)
def test_any_error_in_any_look_or_trial_is_a_line_of_the_report(cause, monkeypatch):
    seen = watched(*small())

    def fails(*args, **kwargs):
        raise cause

    for module, names in ((run.summarise.__globals__, LOOKS), (vars(trials), TRIED)):
        for name in names.split():
            if isinstance(cause, KeyboardInterrupt) and module is not vars(trials):
                continue
            seen.seen.failures.clear()
            with monkeypatch.context() as patch:
                patch.setitem(module, name, fails)
                report = run.analyse(seen, "train.py", "it ended", tries=module is vars(trials))
            words = " ".join(report.not_seen)
            expected = "Ctrl-C" if isinstance(cause, KeyboardInterrupt) else type(cause).__name__
            assert expected in words and "says so" not in words, name
            assert str(report) and report.json()
            assert report.facts.trials.interrupted == isinstance(cause, KeyboardInterrupt)


@pytest.mark.parametrize("comparison", ["compare", "compare_measured"])
def test_every_way_keeps_its_line_if_the_comparison_takes_too_long(comparison, monkeypatch):
    def takes_too_long(*args, **kwargs):
        raise trials.TooLong

    seen = watched(*small())
    monkeypatch.setattr(trials, comparison, takes_too_long)
    found = run.analyse(seen, "train.py", "it ended", tries=True).facts.trials.by_name
    steps = ["bf16 autocast", "channels_last", "fused optimizer", "batch x4"]
    lost, kept = (steps, ["num_workers=0"]) if comparison == "compare" else (["num_workers=0"], steps)
    assert all(trials.NOT_COMPARED in found[name].text for name in lost)
    assert all(found[name].was_measured for name in kept)
    assert sum("give it more --minutes" in one.text for one in found.values()) == 1


@pytest.mark.parametrize("script_in_bf16", [False, True])
def test_a_step_in_bf16_computes_with_the_weights_of_now(script_in_bf16):
    """torch keeps 16-bit copies of weights until the outermost autocast ends, and trials run in one."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    autocast = torch.bfloat16 if script_in_bf16 else None
    call = Call(model, (torch.randn(3, 4),), {}, {0: torch.ones(3, 2)}, autocast)
    replay = Replay([call], [torch.optim.SGD(model.parameters(), lr=10.0)], "cpu")
    mode = step_ways.bf16_mode(replay)
    with trials.as_if_outside():
        replay(mode)
        before = replay.outputs(mode)[0]
        replay(mode)
        after = replay.outputs(mode)[0]
        assert (after - before).abs().min() > 1, "an update moves the outputs"
        assert trials._change_by_bf16(replay) < 0.05


def test_a_rule_or_a_formula_that_fails_is_a_line_of_the_report(monkeypatch):
    monkeypatch.setattr(advice.workers, "check", lambda facts: 1 / 0)
    report = run.report_on(Facts(phases=Phases(forward=Phase(1.0))), "train.py", "it ended")
    assert "the rule on workers: the look at it failed, ZeroDivisionError" in " ".join(report.not_seen)


class Fragile(nn.Module):
    """A model that cannot be copied, and refuses more samples and bfloat16."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Conv2d(3, 2, 8)

    def forward(self, x):
        if len(x) != 8 or torch.is_autocast_enabled("cpu"):
            raise ValueError("not these")
        return self.inside(x).flatten(1)

    def __deepcopy__(self, memo):
        raise TypeError("no copies")


def test_a_model_that_refuses_a_way_has_its_reason_beside_it():
    model, _, loader = Fragile(), *small()[1:]
    report = run.analyse(watched(model, torch.optim.SGD(model.parameters(), lr=0.01), loader), "", "", tries=True)
    for name, words in (("bf16 autocast", "not these"), ("batch x4", "not these"), ("channels_last", "no copies")):
        assert words in report.facts.trials.get(name).text
    assert report.facts.trials.get("fused optimizer").was_measured


def circular():
    one = {"rows": torch.ones(2)}
    one["self"] = one
    return one


class Unfriendly:
    """Has no length, no truth and no attribute."""

    def __bool__(self):
        raise RuntimeError("no truth")

    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")


BATCHES = {
    "nothing": lambda: None, "text": lambda: "text", "circular": circular, "unfriendly": Unfriendly,
    "a scalar": lambda: {1: [torch.tensor(3)]}, "no rows": lambda: torch.ones(0, 4),
}  # fmt: skip


@pytest.mark.parametrize("kind", BATCHES)
def test_a_batch_may_be_anything(kind):
    batch = BATCHES[kind]()
    model, optimizer, _ = small()
    x = torch.randn(8, 3, 8, 8)
    loader = DataLoader(range(16), 4, collate_fn=lambda items: batch)
    with Watch(STEPS) as seen, pytest.raises(Enough):
        while True:
            for _ in loader:
                model(x).sum().backward()
                optimizer.step()
    report = run.analyse(seen, "train.py", "it ended", tries=True)
    assert report.facts.phases and str(report)


def test_a_worker_that_is_killed_is_a_line_of_the_report(monkeypatch):
    class Deadly(TensorDataset):
        def __getitem__(self, i):
            if torch.utils.data.get_worker_info():
                os._exit(1)
            return super().__getitem__(i)

    model, optimizer, loader = small()
    ways = lambda one, cores: {"num_workers=1": loaders.other_loader(one, num_workers=1)}  # noqa: E731
    monkeypatch.setattr(trials, "loader_ways", ways)
    seen = watched(model, optimizer, DataLoader(Deadly(*loader.dataset.tensors), 8))
    report = run.analyse(seen, "train.py", "it ended", tries=True)
    assert "DataLoader worker" in report.facts.trials.get("other loaders").text


def test_a_stream_that_is_empty_at_its_second_pass_is_not_waited_for():
    class Half(IterableDataset):
        def __init__(self):
            self.rows = iter(range(8))

        def __iter__(self):
            yield from self.rows

    batches = loaders.endless(DataLoader(Half(), 4))
    assert [len(next(batches)) for _ in range(2)] == [4, 4]
    with pytest.raises(loaders.NoWay, match="only once"):
        next(batches)


# ---- limits


@pytest.fixture
def soon(monkeypatch):
    """Time is over soon."""
    monkeypatch.setattr(limits, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(limits, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(limits, "RAISE_EVERY", 0.02)
    monkeypatch.setattr(limits, "TIMES", 0.1)


def test_a_script_that_ends_no_step_is_ended_when_time_is_over(soon):
    model, _, _ = small()
    with Watch(STEPS, minutes=0.01) as seen, pytest.raises(Enough):
        while True:
            model(torch.randn(8, 3, 8, 8))
    assert seen.is_over and not seen.steps


def test_functions_can_be_traced_after_the_check_up_took_back_its_exception():
    limits.drop_raised()
    seen = []
    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: seen.append(event))
    try:
        small()
    finally:
        sys.settrace(before)
    assert seen


def test_a_script_that_cannot_be_ended_is_reported_by_the_last_resort(soon):
    model, _, _ = small()
    ended = threading.Event()
    with Watch(STEPS, minutes=0.01, last_resort=ended.set), contextlib.suppress(Enough):
        model(torch.randn(8, 3, 8, 8))
        while not ended.is_set():
            with contextlib.suppress(BaseException):
                ended.wait(0.01)
    assert ended.is_set()


def test_time_begins_with_the_training_and_not_with_its_preparation(soon):
    with Watch(STEPS, minutes=1e-9) as seen:
        threading.Event().wait(0.1)  # prepares
    assert not seen.is_over


def test_two_bare_excepts_do_not_outlive_the_check_up(monkeypatch):
    monkeypatch.setattr(watch, "SWALLOWED_MAX", 3)
    model, optimizer, loader = small()
    x, y = next(iter(loader))

    class Ended(BaseException):
        pass

    def last_resort():
        raise Ended

    def step():
        try:
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        except:  # noqa: E722 - that is its fault
            pass

    with Watch(STEPS, last_resort=last_resort) as seen, pytest.raises((Ended, Enough)):
        while True:
            try:
                step()
            except Exception:
                pass
    assert seen.is_over


def test_slow_steps_warm_up_for_a_part_of_the_time_only():
    plan = schedule.Schedule(60, minutes=1.0)
    plan.begin_at(schedule.time.monotonic() - 30)
    plan.add(schedule.Step(schedule.WARM, 30.0))
    assert plan.next_kind() != schedule.WARM


# ---- the script's behaviour is the script's


class Over(BaseException):
    """The plain run has taken as many steps as the watched one."""


def states_of(name, with_watch, limit=200):
    """Weights and random states after each step of a shape, watched or not."""
    torch.manual_seed(0)
    random.seed(0)
    found = []

    def note(optimizer, args, kwargs):
        weights = [p.detach().double().sum().item() for group in optimizer.param_groups for p in group["params"]]
        found.append((weights, torch.get_rng_state().sum().item(), random.getstate()[1][:3]))
        if len(found) == limit:
            raise Over

    handle = register_optimizer_step_post_hook(note)
    one = script.find(str(SHAPES / f"{name}.py"), is_module=False)
    try:
        with script.as_main(one, []) as module, contextlib.suppress(Over, Enough):
            with Watch(10_000) if with_watch else contextlib.nullcontext():
                exec(one.code, vars(module))
    finally:
        handle.remove()
    return found


@pytest.mark.parametrize("name", ["dqn", "gan", "frozen_norm", "soft_actor_critic"])
def test_weights_and_random_states_are_those_of_a_plain_run(name):
    plain, seen = states_of(name, with_watch=False), states_of(name, with_watch=True)
    assert len(seen) == 200 and seen == plain


def test_random_states_are_those_of_the_script_after_the_trials():
    model, optimizer, loader = small()
    states = []
    note = lambda: states.append((torch.get_rng_state(), random.getstate()))  # noqa: E731
    with Watch(STEPS, at_end=lambda: analysed(seen, note)) as seen, pytest.raises(Enough):
        train(model, optimizer, loader)
    (torch_before, before), (torch_after, after) = states
    assert torch.equal(torch_before, torch_after) and before == after


def analysed(seen, note):
    note()
    run.analyse(seen, "train.py", "it ended", tries=True)
    note()


def test_another_training_after_the_first_is_watched_and_the_first_optimizer_let_go():
    first, second = small(), small()
    with Watch(STEPS) as seen, pytest.raises(Enough):
        for x, y in first[2]:
            nn.functional.cross_entropy(first[0](x), y).backward()
            first[1].step()
        train(*second)
    assert [one.optimizer for one in seen.seen.optimizers.values()] == [second[1]]


def test_modules_that_are_made_in_each_step_are_not_kept_alive():
    model, optimizer, loader = small()
    made = []

    def extra():
        loss = nn.Linear(2, 2)
        loss(torch.ones(2))
        made.append(weakref.ref(loss))

    watched(model, optimizer, loader, extra)
    assert sum(one() is not None for one in made) <= forward.CALLS_MAX


def test_ctrl_c_in_a_trial_prints_what_is_known(monkeypatch, capsys):
    def pressed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(trials, "try_steps", pressed)
    report, code = checked("teacher", tries=True)
    out = capsys.readouterr().out
    assert code == 130 and "Ctrl-C ended the trials" in out and "forward" in out
