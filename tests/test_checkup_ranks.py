"""Ranks are watched together, and the one that the others wait for is named, also inside backward."""

import dataclasses
import json
import os
import random
import subprocess

import forks
import pytest
import torch
import torch.distributed as dist
from torch import nn

from course.checkup import phases, ranks, watch
from course.checkup.advice import late_rank
from course.checkup.facts import Facts, Phase, Phases, Seconds
from course.checkup.schedule import Enough
from course.checkup.verdict import regime
from instructor.bench import checkup as bench
from instructor.bench import late_ranks

SCRIPT = bench.PLANTED / "late_backward.py"
STEP = {"forward": 0.03, "backward": 0.05, "optimizer": 0.01, "code": 0.01}  # seconds of a rank's own


def test_the_line_inside_backward_of_the_rank_that_is_late_is_the_first_advice_and_no_rank_is_left_waiting(tmp_path):
    file = tmp_path / "report.json"
    command = [*forks.python("torch.distributed.run"), "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", "2", "-m", "course.checkup", "--steps", "20", "--json", file, SCRIPT]
    env = os.environ | {"PYTHON_EXEC": forks.executable()}
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, env=env)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(f"Check-up of {SCRIPT.name}") == 1  # of rank 0 alone
    data = json.loads(file.read_text())
    number = SCRIPT.read_text().splitlines().index("        time.sleep(0.05)  # late") + 1
    assert data["skew"]["rank"] == 1 and data["skew"]["late"] > 0.04 and data["regime"] == "waiting for a slower rank"
    assert (
        data["phases"]["communication"]["share"] > 0.5 > data["phases"]["backward"]["share"]
    )  # of rank 0, which waits
    first = data["advice"][0]
    assert first["name"] == "skew" and f"rank 1: its phase backward at {SCRIPT.name}:{number} " in first["text"]


def times_of(world_size, rng, late=None, phase="code", share=0.0, steps=52, is_clear=True, queued=0.0):
    """Made-up RankTimes: each phase varies by a fifth, now and then a step is disturbed, and all wait for the last."""
    own = []
    for rank in range(world_size):
        of_rank = {}
        for number in range(steps):
            by_phase = {name: seconds * rng.uniform(0.9, 1.1) for name, seconds in STEP.items()}
            by_phase["code"] += 0.2 * (rng.random() < 0.1)
            if rank == late:
                by_phase[phase] += share * sum(STEP.values())
            of_rank[number] = by_phase
        own.append(of_rank)
    for number in range(steps):
        last = max(sum(of_rank[number].values()) for of_rank in own)
        for of_rank in own:
            waits = last - sum(of_rank[number].values())
            of_rank[number]["communication" if is_clear else "backward"] = waits + (
                0.0 if is_clear else of_rank[number]["backward"]
            )
    for of_rank in own:
        for by_phase in of_rank.values():  # and other programs take its core, of which `queued` tells
            by_phase["code"] += queued
    waits = dict.fromkeys(range(steps), queued)
    return [ranks.RankTimes(each, {phase: f"rank{rank}.py:3"}, waits, is_clear) for rank, each in enumerate(own)]


def named(times, this_rank=0):
    """(The Skew of RankTimes, the rule's Advice or None)."""
    skew = ranks.compared(times, this_rank)
    return skew, late_rank.check(Facts(skew=skew, seconds=Seconds(sum(STEP.values()))))


@pytest.mark.parametrize("world_size", [2, 3, 8])
@pytest.mark.parametrize("phase", ["code", "data", "forward", "backward"])
def test_a_rank_that_is_late_anywhere_is_named_with_its_phase_and_line(world_size, phase):
    times_late = {name: STEP.get(name, 0.0) for name in (*STEP, "data")}
    for seed in range(20):
        rng = random.Random(seed)
        late = rng.randrange(world_size)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(STEP, phase, times_late[phase])
            skew, line = named(times_of(world_size, rng, late, phase, share=0.3))
        assert line and (skew.rank, skew.phase, skew.line) == (late, phase, f"rank{late}.py:3"), seed
        assert skew.late == pytest.approx(0.03, rel=0.5) and 0 < skew.low <= skew.late


@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_no_rank_is_named_where_all_are_alike(world_size):
    for seed in range(40):
        _, line = named(times_of(world_size, random.Random(seed)))
        assert line is None, seed


def test_backward_counts_as_waiting_where_it_waits_before_its_last_gradient():
    rng = random.Random(0)
    skew, line = named(times_of(2, rng, late=1, share=0.3, is_clear=False))
    assert line and skew.rank == 1 and skew.phase == "code"
    skew, line = named(times_of(2, rng, late=1, phase="backward", share=0.3, is_clear=False))
    assert line is None and "backward" not in skew.phase


def test_waiting_for_a_core_that_other_programs_have_is_held_against_no_rank():
    alike, _ = times_of(2, random.Random(0))
    _, disturbed = times_of(2, random.Random(0), queued=0.1)
    assert named([alike, disturbed])[1] is None
    blind = dataclasses.replace(disturbed, queued=dict.fromkeys(disturbed.steps, 0.0))
    assert named([alike, blind])[0].rank == 1 and named([alike, blind])[1]


def test_few_steps_prove_nothing_and_only_steps_that_all_have_timed_are_compared():
    one, other = times_of(2, random.Random(0), late=1, share=3.0, steps=7)
    skew, line = named([one, other])
    assert skew.rank == 1 and not skew.is_proven and line is None
    elsewhere = ranks.RankTimes({number + 100: each for number, each in other.steps.items()}, {}, {}, True)
    assert ranks.compared([one, elsewhere], 0) is None


def test_the_lower_end_leaves_out_as_many_steps_as_coins_may_show():
    values = [float(value) for value in range(1, 13)]
    assert ranks.lower_end(values) == 2.0  # 13 of 4096 throws of twelve coins have at most one head
    assert ranks.lower_end(values[:8]) == 1.0 and ranks.lower_end(values[:7]) == ranks.lower_end(values[:1]) == 0.0


def test_who_waits_is_told_so_only_if_that_is_proven():
    phases = Phases(forward=Phase(0.2), backward=Phase(0.1), communication=Phase(0.7))
    for low, words in ((0.05, "waiting for a slower rank"), (0.0, "communication-bound")):
        skew = ranks.Skew([0.03, 0.1], late=0.07, rank=1, phase="code", waits=0.07, low=low)
        assert regime(Facts(phases=phases, skew=skew, seconds=Seconds(0.1))) == words


def watched(model, monkeypatch):
    """The Watch of a training that takes itself for one of two ranks."""
    monkeypatch.setattr(watch, "world_size", lambda: 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch.Watch(8) as seen, pytest.raises(Enough):
        while True:
            optimizer.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
    return seen


def test_backward_is_cut_after_its_last_gradient_and_parameters_keep_no_hooks(monkeypatch):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    seen = watched(model, monkeypatch)
    assert seen.hooks.readiness.unclear == 0
    cut = [step for step in seen.steps if step.kind in phases.CUT]
    for step in cut:
        names = [piece.phase for piece in step.pieces]
        begins, ends = [piece.start for piece in step.pieces], [piece.end for piece in step.pieces]
        assert names[names.index("backward") + 1] == "communication" and begins[1:] == ends[:-1]
    assert len(cut) > 40 and all(p._backward_hooks is None for p in model.parameters())


class Gathers(nn.Module):
    """Waits for other ranks inside backward, as FSDP does."""

    def forward(self, x):
        x.register_hook(lambda gradient: dist.barrier() or gradient)
        return x


def test_a_backward_that_waits_for_others_before_its_end_is_not_clear(monkeypatch):
    monkeypatch.setattr(dist, "barrier", lambda: None)
    seen = watched(nn.Sequential(nn.Linear(8, 8), Gathers(), nn.Linear(8, 2)), monkeypatch)
    assert seen.hooks.readiness.unclear == len([step for step in seen.steps if step.kind in phases.CUT])


def test_the_table_of_late_ranks_counts_what_was_named():
    runs = [late_ranks.Run("code", 1), late_ranks.Run("backward", 0), late_ranks.Run("code", 0), late_ranks.Run()]
    table = late_ranks.table_of(runs, [1, 1, late_ranks.NOBODY, late_ranks.NOBODY])
    assert table.rows == [
        ["before forward", "2", "1", "0", "1"],
        ["inside backward", "1", "0", "1", "0"],
        ["never", "1", "", "0", "1"],
    ]
