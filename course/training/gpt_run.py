"""Train a small GPT in one process: drawn texts -> *Run* -> a loss curve.  The capstone of unit 02.

A `Run` is everything that the next step reads. gpt_on_ranks.py makes N processes of this loop; its
loss curve must stay the same. Weights are float64, because sums of float32 in another order differ
by about 1e-7 per step, and training amplifies that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from course.datasets import sequences
from course.training.ragged_transformer import RaggedTransformer, padded_losses

TEXTS = 192
LONGEST = 40  # tokens of a text
BATCH = 16  # texts per step, of all ranks together
STEPS = 60
WARM_UP = 10  # steps in which the learning rate rises
LR = 0.01
HIDDEN = 0.1  # share of the tokens that a step hides
MASK = sequences.TEXT_VOCABULARY  # the token that hides another one


@dataclass
class Run:
    """A training between two steps."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler  # of the learning rate
    scaler: torch.amp.GradScaler  # of mixed precision
    random: torch.Generator  # says which tokens a step hides
    seed: int  # of the order of the texts
    step: int = 0  # updates that are done, so also the position in the data
    losses: list[float] = field(default_factory=list)  # of these updates


def new_run(seed: int = 0) -> Run:
    """A Run before its first step."""
    torch.manual_seed(seed)
    model = RaggedTransformer(vocabulary=MASK + 1, dim=32, layers=2).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    return Run(
        model,
        optimizer,
        scheduler=LambdaLR(optimizer, share_of_lr),
        scaler=torch.amp.GradScaler("cpu", growth_interval=20),
        random=torch.Generator().manual_seed(seed),
        seed=seed,
    )


def share_of_lr(step: int) -> float:
    """Factor on LR: a linear rise over WARM_UP steps, then a linear decay to 0."""
    return min((step + 1) / WARM_UP, (STEPS - step) / (STEPS - WARM_UP))


def texts() -> list[Tensor]:
    """Drawn texts of 2 to LONGEST tokens, int64."""
    drawn = sequences.text(2 * TEXTS, 0)
    long_enough = [tokens[:LONGEST] for tokens, _ in drawn if len(tokens) > 1]
    return long_enough[:TEXTS]


def global_batch(run: Run, corpus: list[Tensor]) -> list[Tensor]:
    """The texts of the next step, of all ranks together; every rank draws the same ones.

    Each epoch has its order. Some tokens are hidden, drawn from `run.random`, which moves on.
    """
    epoch, place = divmod(run.step, len(corpus) // BATCH)
    order = torch.randperm(len(corpus), generator=torch.Generator().manual_seed(run.seed + epoch))
    batch = []
    for i in order[place * BATCH : (place + 1) * BATCH].tolist():
        tokens = corpus[i]
        is_hidden = torch.rand(len(tokens), generator=run.random) < HIDDEN
        batch.append(tokens.masked_fill(is_hidden, MASK))
    return batch


def update(run: Run, loss: Tensor) -> None:
    """Take one step of all that a Run has."""
    run.optimizer.zero_grad()
    run.scaler.scale(loss).backward()
    run.scaler.step(run.optimizer)
    run.scaler.update()
    run.scheduler.step()
    run.step += 1


def token_mean(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """The mean loss over all tokens of a batch that are predicted."""
    losses, is_predicted = padded_losses(model, batch)
    return losses.sum() / is_predicted.sum()


def train(run: Run, until: int = STEPS, loss_of: Callable[..., Tensor] = token_mean) -> Run:
    """The same Run, trained in one process until its step is `until`."""
    corpus = texts()
    while run.step < until:
        loss = loss_of(run.model, global_batch(run, corpus))
        run.losses.append(loss.item())
        update(run, loss)
    return run


# ---- faults that the unit shows


def forget(run: Run, piece: str) -> Run:
    """The same Run as if a checkpoint had not held one `piece` of it."""
    if piece == "optimizer":
        run.optimizer.state.clear()
    elif piece == "scheduler":
        run.scheduler.last_epoch = 0
    elif piece == "random":
        run.random.manual_seed(run.seed)
    elif piece == "step":
        run.step = 0
    return run


def losses_without(piece: str, forgotten_at: int) -> list[float]:
    """The loss curve of a training that is killed after `forgotten_at` steps.

    Its checkpoint holds all but one `piece`; "" is a complete one.
    """
    run = train(new_run(), forgotten_at)
    forget(run, piece)
    return train(run, STEPS - forgotten_at + run.step).losses


def first_difference(losses: list[float], undisturbed: list[float]) -> int | None:
    """The first step, counted from 1, whose loss is not the undisturbed one; None without any."""
    for step, (loss, right) in enumerate(zip(losses, undisturbed, strict=True), start=1):
        if loss != right:
            return step
    return None
