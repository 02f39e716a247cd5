"""Training in 16 bits, for part 4 of unit 03: what is lost, and a network that notices.

Two of the part's exercises, the step under autocast and the loss scaler, are its own.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from course.measure.saved_tensors import peak_bytes_saved
from course.training.recommender import LOG_ODDS, SAMPLES_PER_POSITIVE, Experiment
from course.training.recommender_loop import History, Step

# the flags of /proc/cpuinfo: x86 of 2020 and of 2023, and Arm
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
SMALLEST_NORMAL = 2.0**-14  # of fp16
TOWER_WIDTHS = (32, 32, 32, 16, 8)
LAST_UPDATES = 20  # the loss at the end is their mean
TOWER_STD = 0.1  # of the embeddings, as in the unit's NeuMF


def bf16_instructions() -> list[str]:
    """The names of this CPU's instructions that multiply bfloat16, as Linux lists them."""
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:  # not Linux
        return []
    return [flag for flag in BF16_FLAGS if flag in words]


def lost_in_fp16(tensors: Sequence[Tensor]) -> float:
    """Percent of the non-zero values of `tensors` that a cast to fp16 makes zero."""
    before = 0
    after = 0
    for tensor in tensors:
        before += int(tensor.count_nonzero())
        after += int(tensor.half().count_nonzero())
    return 100 * (before - after) / max(before, 1)


def below_normal(tensors: Sequence[Tensor]) -> float:
    """Percent of the non-zero values of `tensors` whose magnitude is below 2**-14."""
    values = torch.cat([tensor.flatten() for tensor in tensors]).abs()
    is_small = (values > 0) & (values < SMALLEST_NORMAL)
    return 100 * is_small.sum().item() / max(1, values.count_nonzero().item())


def largest(tensors: Sequence[Tensor]) -> float:
    """The largest magnitude in `tensors`."""
    return max(tensor.abs().max().item() for tensor in tensors)


def loss_at_end(history: History) -> float:
    """The mean training loss of the last LAST_UPDATES updates."""
    return statistics.mean(history.losses[-LAST_UPDATES:])


def bf16_step(
    model: nn.Module,
    users: Tensor,
    items: Tensor,
    labels: Tensor,
    optimizer: torch.optim.Optimizer,
) -> Tensor:
    """The training step of `recommender_loop`, with the model under autocast to bfloat16."""
    optimizer.zero_grad()
    with torch.autocast(users.device.type, torch.bfloat16):
        outputs = model(users, items)
    mean_loss = F.binary_cross_entropy_with_logits(outputs.float(), labels)
    mean_loss.backward()
    optimizer.step()
    return mean_loss.detach()


def constant_scaler(device: torch.device, scale: float) -> torch.amp.GradScaler:
    """A new scaler that keeps its `scale`, as long as no gradient overflows."""
    return torch.amp.GradScaler(device.type, init_scale=scale, growth_interval=10**9)


def kept_by_step(experiment: Experiment, step: Step, batch_size: int) -> int:
    """Most bytes that autograd keeps while `step` trains NVIDIA's NeuMF on one batch."""
    model = experiment.fresh_model("nvidia")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    # a slice would keep all of its epoch
    batch = [tensor.clone() for tensor in experiment.first_batch(batch_size)]
    return peak_bytes_saved(lambda: step(model, *batch, optimizer), model.parameters())


class _WatchedLinear(TorchFunctionMode):
    """While active, keep the gradient of every result of F.linear when backward reaches it."""

    def __init__(self) -> None:
        super().__init__()
        self.gradients: list[Tensor] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is F.linear:
            result.register_hook(lambda gradient: self.gradients.append(gradient.detach()))
        return result


def watched_backward(
    experiment: Experiment, batch_size: int, dtype: torch.dtype
) -> tuple[list[Tensor], list[Tensor]]:
    """(gradients of activations, gradients of parameters) of one backward pass of NVIDIA's NeuMF.

    Args:
        dtype: of the forward pass, float32 or a 16-bit type.
    """
    model = experiment.fresh_model("nvidia")
    users, items, labels = experiment.first_batch(batch_size)
    is_mixed = dtype != torch.float32
    with _WatchedLinear() as watched, torch.autocast(users.device.type, dtype, enabled=is_mixed):
        logits = model(users, items)
    F.binary_cross_entropy_with_logits(logits.float(), labels).backward()
    return watched.gradients, [parameter.grad for parameter in model.parameters()]


class Tower(nn.Module):
    """The MLP half of NeuMF alone, deeper and narrower: logits of user and item side by side.

    All that reaches an embedding has come through all layers. They start as `nn.Linear` does, so
    that gradients shrink from layer to layer.

    Source: He et al. 2017, section 3.3, "MLP".
    """

    def __init__(self, n_users: int, n_items: int) -> None:
        super().__init__()
        self.user = nn.Embedding(n_users, TOWER_WIDTHS[0] // 2)
        self.item = nn.Embedding(n_items, TOWER_WIDTHS[0] // 2)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=TOWER_STD)
        layers = []
        for width, next_width in zip(TOWER_WIDTHS, TOWER_WIDTHS[1:], strict=False):
            layers += [nn.Linear(width, next_width), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Linear(TOWER_WIDTHS[-1], 1))
        nn.init.constant_(self.body[-1].bias, LOG_ODDS)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits, float32 or 16-bit (batch,)."""
        return self.body(torch.cat([self.user(users), self.item(items)], dim=1)).squeeze(1)


def train_tower(
    experiment: Experiment, sizes: SimpleNamespace, step: Step | None, seed: int
) -> History:
    """The History of training a fresh Tower with `step` and Adam on batches of few rows.

    Args:
        sizes: those of the unit, with `tower_rows`, `tower_updates` and `tower_lr`.
        step: see `recommender_loop.train`; None for fp32.
    """
    torch.manual_seed(seed)
    model = Tower(experiment.data.n_users, experiment.data.n_items).to(experiment.data.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=sizes.tower_lr)
    n_samples = SAMPLES_PER_POSITIVE * len(experiment.data.train_users)
    epochs = sizes.tower_updates * sizes.tower_rows / n_samples
    return experiment.train(
        model,
        optimizer,
        sizes.tower_rows,
        epochs,
        step=step,
        seed=seed,
        evaluate_every=epochs,
    )
