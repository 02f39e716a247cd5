"""The short trainings of 06/2: their optimizer, and when they reach a target."""

import math

import pytest
import torch

from course.notebook.solutions import load_reference
from course.training.short_run import AdamBy, ShortRuns

pytestmark = pytest.mark.check
STEPS = 4


def _lab():
    """ShortRuns on 64 images of noise."""
    rng = torch.Generator().manual_seed(0)
    images = torch.randn(64, 1, 28, 28, generator=rng)
    labels = torch.randint(10, (64,), generator=rng)
    return ShortRuns(images, labels, images, labels, width=2, batch_size=16)


@pytest.mark.parametrize("decoupled", [True, False])
def test_adam_by_a_function_moves_weights_as_torch_does(decoupled):
    adamw_step = load_reference("06_faster_training", "adamw_step")
    own = torch.ones(3, requires_grad=True)
    theirs = torch.ones(3, requires_grad=True)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimizers = [
        AdamBy(adamw_step, [own], decay=0.1, decoupled=decoupled),
        kind([theirs], lr=0.01, weight_decay=0.1),
    ]
    optimizers[0].param_groups[0]["lr"] = 0.01
    for _ in range(STEPS):
        for weight, optimizer in zip((own, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            (weight * torch.tensor([1.0, -2.0, 0.5])).sum().backward()
            optimizer.step()
    torch.testing.assert_close(own, theirs)


def test_a_target_is_reached_on_a_line_between_two_looks_or_never(monkeypatch):
    accuracies = iter([0.3, 0.7])
    monkeypatch.setattr(ShortRuns, "accuracy_of", lambda lab, model: next(accuracies))
    lab = _lab()
    look_every = 64 // (4 * 8)  # steps between two looks
    assert lab.steps_to(0.6, batch_size=8, lr=0.01, seed=0, most_steps=10) == pytest.approx(1.75 * look_every)
    monkeypatch.undo()
    assert lab.steps_to(1.1, batch_size=8, lr=0.01, seed=0, most_steps=3) == math.inf


def test_a_step_is_the_same_each_time_but_for_the_weights(monkeypatch):
    drawn = []
    batches_of = ShortRuns.batches_of

    def noted(*arguments):
        for batch in batches_of(*arguments):
            drawn.append(batch)
            yield batch

    monkeypatch.setattr(ShortRuns, "batches_of", noted)
    step = _lab().step_of(batch_size=8, lr=0.01)
    before = torch.get_rng_state()
    step()
    step()
    assert torch.equal(before, torch.get_rng_state())
    assert len(drawn) == 1, "another batch each time"
