"""Today's recipe for large models, on the unit's recommender: settings -> a History.

AdamW with a short linear warm-up, cosine decay to 0 and clipped gradients; part 5 of unit 03 leaves
out one ingredient at a time.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.training.recommender import Experiment
from course.training.recommender_loop import History

RECIPE = "recipe"
LONGEST = 1.0  # joint norm to which gradients are clipped
WARMUP_EPOCHS = 0.5
WEIGHT_DECAY = 0.01


def train_recipe(
    experiment: Experiment,
    batch_size: int,
    seed: int,
    *,
    lr: float,
    weight_decay: float = WEIGHT_DECAY,
    decays: bool = True,
    clipped: list[bool],
) -> History:
    """The History of training a fresh model by the recipe.

    Args:
        lr: the peak of the learning rate.
        decays: whether the learning rate falls after the warm-up; else it stays at `lr`.
        clipped: to which is appended, per update, whether its gradient was longer than LONGEST.
    """

    def schedule(step: int, n: int) -> float:
        warmup = min(1.0, (step + 1) / (WARMUP_EPOCHS * n))
        if not decays:
            return lr * warmup
        return lr * warmup * 0.5 * (1 + math.cos(math.pi * step / (experiment.epochs * n)))

    def step(
        model: nn.Module,
        users: Tensor,
        items: Tensor,
        labels: Tensor,
        optimizer: torch.optim.Optimizer,
    ) -> Tensor:
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(users, items), labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), LONGEST)
        clipped.append(bool(norm > LONGEST))
        optimizer.step()
        return loss.detach()

    return experiment.train_fresh(
        lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay),
        batch_size,
        seed,
        schedule=schedule,
        step=step,
        evaluate_every=experiment.epochs,
    )
