"""The capstone of unit 02: one loss curve on any number of ranks, killed or not."""

import sys

import forks
import pytest
import torch

from course.errors import CourseError
from course.notebook.solutions import load_reference
from course.parallel import lives
from course.training import gpt_run
from course.training.gpt_on_ranks import write_durably

UNIT = "02_data_parallel"
STEPS = 14


@pytest.fixture(autouse=True)
def fast_starts(monkeypatch):
    monkeypatch.setattr(sys, "executable", forks.executable())


@pytest.fixture(scope="module")
def undisturbed():
    return gpt_run.train(gpt_run.new_run(), STEPS).losses


def functions():
    return load_reference(UNIT, "rank_loss"), load_reference(UNIT, "Checkpoint")


def test_killed_and_resumed_on_2_1_2_ranks_it_has_the_loss_curve_of_one_process(undisturbed, tmp_path):
    starts = [
        lives.Start(ranks=2, until=8, kill_at=5, max_restarts=1, save_every=3),
        lives.Start(ranks=1, until=STEPS, kill_at=11, save_every=3),
        lives.Start(ranks=2, until=STEPS, save_every=3),
    ]
    lived = lives.live(starts, functions(), tmp_path)
    assert [(life.ranks, life.steps[0], life.was_killed) for life in lived] == [
        (2, 0, True),
        (2, 3, False),  # torchrun has restarted it from the checkpoint after step 3
        (1, 8, True),
        (2, 9, False),
    ]
    saved = torch.load(tmp_path / "gpt.pt", weights_only=True)
    torch.testing.assert_close(saved["losses"], undisturbed, rtol=0, atol=1e-6)
    assert saved["step"] == STEPS


def test_a_mean_of_means_does_not_have_this_curve(undisturbed, tmp_path):
    def mean_of_the_rank(model, batch, rank, world_size):
        return gpt_run.token_mean(model, batch[rank::world_size])

    lives.live([lives.Start(ranks=2, until=3)], (mean_of_the_rank, functions()[1]), tmp_path)
    losses = torch.load(tmp_path / "gpt.pt", weights_only=True)["losses"]
    assert max(abs(loss - right) for loss, right in zip(losses, undisturbed, strict=False)) > 1e-5


def test_a_complete_checkpoint_changes_no_bit_and_each_missing_piece_does(monkeypatch):
    monkeypatch.setattr(gpt_run, "STEPS", STEPS)
    undisturbed = gpt_run.train(gpt_run.new_run(), STEPS).losses
    assert gpt_run.losses_without("", 6) == undisturbed
    assert gpt_run.first_difference(undisturbed, undisturbed) is None
    first_steps = {}
    for piece in ("optimizer", "scheduler", "random", "step"):
        losses = gpt_run.losses_without(piece, 6)
        assert len(losses) == STEPS
        first_steps[piece] = gpt_run.first_difference(losses, undisturbed)
    assert first_steps == {"random": 7, "step": 7, "optimizer": 8, "scheduler": 9}


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path):
    path = tmp_path / "gpt.pt"
    write_durably({"step": 1}, path)
    with pytest.raises(Exception, match="pickle"):
        write_durably({"step": lambda: 2}, path)
    assert torch.load(path, weights_only=True) == {"step": 1}


def test_a_script_that_fails_is_an_error_with_its_words(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('no such data')")
    with pytest.raises(CourseError, match="no such data"):
        lives.torchrun(script, tmp_path, ranks=1)


def test_the_smallest_script_deals_out_the_samples_again_in_each_epoch(tmp_path):
    lines = sorted(lives.torchrun(lives.SMALLEST, tmp_path, ranks=2).splitlines())
    assert [line[:26] for line in lines] == [
        f"rank {rank}, epoch {epoch}: 10 steps," for rank in (0, 1) for epoch in (0, 1)
    ]
    assert len({line.partition("are")[2] for line in lines}) == 4
    assert (tmp_path / "model.pt").exists()
