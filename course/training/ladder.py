"""The ladder of unit 06: training steps of a network, each with one change more than before.

A change that stays out of a rung leaves everything else as it is, so two rungs differ by it alone.
The same ladder stands on a small convolutional network and on a small GPT.
"""

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.device import scale
from course.measure.comparison import Comparison, Interval, compare_measured, difference_interval
from course.measure.compiling import compiled
from course.measure.step_shares import (
    ATTENTION,
    CONVOLUTIONS,
    NORMS,
    OPTIMIZER,
    POINTWISE,
    POOLING,
    PRODUCTS,
    shares_of,
)
from course.measure.timing import now
from course.training.models import FashionCNN
from course.training.ragged_transformer import RaggedTransformer

BASELINE = "baseline"
CONTROL = "nothing changed"
ROUNDING = "rounding alone"  # the control of losses
NO_BIAS = "no useless bias"
CHANNELS_LAST = "channels last"
SDPA = "SDPA"
FUSED = "fused optimizer"
TF32 = "TF32"
HALF = "16 bits"
COMPILED = "compiled model"
GRAPHS = "CUDA graphs"  # torch.compile with mode="reduce-overhead"
CNN_CHANGES = (NO_BIAS, CHANNELS_LAST, FUSED, TF32, HALF, COMPILED, GRAPHS)  # each rung adds one
GPT_CHANGES = (SDPA, FUSED, TF32, HALF, COMPILED, GRAPHS)
GPU_ONLY = {
    TF32: "a format of NVIDIA's tensor cores",
    GRAPHS: "a CPU starts its kernels without a queue",
}
# the kinds of operations that a change is meant to make cheaper
TOUCHES = {
    CHANNELS_LAST: (CONVOLUTIONS, NORMS, POOLING),
    SDPA: (ATTENTION,),
    FUSED: (OPTIMIZER,),
    TF32: (CONVOLUTIONS, PRODUCTS, ATTENTION),
    HALF: (CONVOLUTIONS, PRODUCTS, ATTENTION),
    COMPILED: (POINTWISE, NORMS),
}
WARM_UP_STEPS = 3  # a compiled model compiles its backward pass in the first
VOCABULARY = 128
HEADS = 4
BATCHES = 8  # of a network of the ladder

Batch = tuple[tuple[Tensor, ...], Tensor]  # the model's inputs, the targets


@dataclass(frozen=True)
class Network:
    """A network to train: how it is made, its batches, and the changes of its ladder.

    `held` is a batch that it does not train on. What `is_slow_to_compile` is compiled at gpu scale
    only.
    """

    make: Callable[[], nn.Module]
    batches: Sequence[Batch]
    held: Batch
    changes: tuple[str, ...]
    is_slow_to_compile: bool = False


def cnn(images: Tensor, labels: Tensor, batch_size: int, held: tuple[Tensor, Tensor]) -> Network:
    """FashionCNN without dropout, on images as datasets.fashion.floats gives them.

    Args:
        held: images and labels that it does not train on.
    """
    batches: list[Batch] = []
    for x, y in zip(images.split(batch_size), labels.split(batch_size), strict=True):
        batches.append(((x,), y))
    held_batch = (held[0],), held[1]
    return Network(lambda: FashionCNN(dropout=0.0), batches, held_batch, CNN_CHANGES, True)


def gpt(
    rows: int, columns: int, dim: int, layers: int, n_batches: int, device: torch.device
) -> Network:
    """A RaggedTransformer on drawn tokens, of which each is one of three that may follow another.

    Args:
        rows, columns: of a batch of tokens.
    """
    rng = torch.Generator().manual_seed(0)
    steps = torch.randint(1, 4, (n_batches + 1, rows, columns + 1), generator=rng)
    tokens = steps.cumsum(-1).remainder(VOCABULARY).to(device)
    positions = torch.arange(columns, device=device)
    batches = [
        ((part[:, :-1].contiguous(), positions), part[:, 1:].contiguous()) for part in tokens
    ]
    return Network(
        lambda: RaggedTransformer(VOCABULARY, dim, layers, HEADS),
        batches[:-1],
        batches[-1],
        GPT_CHANGES,
    )


def both(
    images: Tensor,
    labels: Tensor,
    held: tuple[Tensor, Tensor],
    n_images: int,
    n_rows: int,
    shape: tuple[int, int, int],
) -> dict[str, Network]:
    """The two networks of part 3, each with BATCHES batches.

    Args:
        images, labels: to train on, on the device.
        held: images and labels to validate on.
        n_images, n_rows: in a batch of the convolutional network, and of the GPT.
        shape: of the GPT: columns, dim, layers.
    """
    n = BATCHES * n_images
    return {
        "convolutional network": cnn(images[:n], labels[:n], n_images, held),
        "small GPT": gpt(n_rows, *shape, BATCHES, images.device),
    }


def written_out(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Attention as the paper writes it, with all scores in memory; called like SDPA."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    elif attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(-1).to(v.dtype) @ v


class Rung:
    """A training step of `network` with `changes`, on its batches one after the other.

    Two Rungs start from the same weights if `seed` is the same.

    Args:
        rounding: relative size of a random change of the first weights, which stands for another
            order of sums.

    Attributes:
        reason: why it cannot be measured, "" if it can.
        compile_seconds: until the compiled model has made its first step, 0 if nothing is compiled.
        done: steps that were made.
    """

    def __init__(
        self,
        network: Network,
        changes: Sequence[str],
        device: torch.device,
        seed: int = 0,
        rounding: float = 0.0,
    ):
        torch.manual_seed(seed)
        self.changes = changes
        self.device = device
        self.done = 0
        self.compile_seconds = 0.0
        self.reason = _reason(network, changes, device)
        if self.reason:
            return
        self.model = network.make().to(device)
        if rounding:
            _perturb(self.model, rounding)
        self._change_model()
        layout = torch.channels_last if CHANNELS_LAST in changes else torch.contiguous_format
        self.batches = []
        for inputs, targets in network.batches:
            laid = (x.to(memory_format=layout) if x.ndim == 4 else x for x in inputs)
            self.batches.append((tuple(laid), targets))
        fused = FUSED in changes or None  # None: what torch takes by itself
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=fused)
        self.dtype = half_dtype(device)
        self.scaler = torch.amp.GradScaler(device.type) if self.dtype == torch.float16 else None
        self.forward = self.model
        if COMPILED in changes:
            self._compile()
        if not self.reason:
            seconds = self.steps(WARM_UP_STEPS)
            if self.compile_seconds:
                self.compile_seconds += seconds

    def _change_model(self) -> None:
        """Apply the changes that concern the model alone."""
        if NO_BIAS in self.changes:
            self._drop_biases()
        if CHANNELS_LAST in self.changes:
            self.model.to(memory_format=torch.channels_last)
        if isinstance(self.model, RaggedTransformer) and SDPA not in self.changes:
            for block in self.model.blocks:
                block.attend = written_out

    def _drop_biases(self) -> None:
        """Remove the biases that a BatchNorm subtracts, without a change of what it computes."""
        for layer, norm in itertools.pairwise(self.model.convolutions):
            if isinstance(norm, nn.BatchNorm2d):
                norm.running_mean -= layer.bias.detach()
                layer.bias = None

    def loss(self, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """The loss of a batch, in the precision of the rung."""
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=HALF in self.changes):
            scores = self.forward(*inputs)
            return F.cross_entropy(scores.flatten(0, -2), targets.flatten())

    def step(self, inputs: tuple[Tensor, ...], targets: Tensor) -> None:
        """One training step."""
        self.optimizer.zero_grad()
        loss = self.loss(inputs, targets)
        if HALF in self.changes and self.scaler:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self.optimizer.step()

    def _compile(self) -> None:
        before = copy.deepcopy(self.model.state_dict())
        mode = "reduce-overhead" if GRAPHS in self.changes else None
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=HALF in self.changes):
            # equal blocks share what is compiled for one
            parts = tuple(getattr(self.model, "blocks", ()))
            made = compiled(self.model, *self.batches[0][0], mode=mode, parts=parts)
        self.model.load_state_dict(before)  # this forward pass moved the running statistics
        self.forward = made.call
        self.reason = made.reason
        self.compile_seconds = made.seconds

    def steps(self, n: int) -> float:
        """Make n steps and return their seconds."""
        started = now(self.device)
        with _products_in_tf32(TF32 in self.changes):
            for _ in range(n):
                self.step(*self.batches[self.done % len(self.batches)])
                self.done += 1
        return now(self.device) - started

    def held_loss(self, batch: Batch) -> float:
        """The loss of a batch, in evaluation mode."""
        self.model.eval()
        with torch.no_grad():
            loss = self.loss(*batch).item()
        self.model.train()
        return loss


def _reason(network: Network, changes: Sequence[str], device: torch.device) -> str:
    """Why a rung with `changes` cannot be measured, as far as it is known before; else ""."""
    last = changes[-1] if changes else ""
    if device.type == "cpu" and last in GPU_ONLY:
        return GPU_ONLY[last]
    if COMPILED in changes and network.is_slow_to_compile and scale() == "laptop":
        return "compiled at gpu scale only, because it takes long"
    return ""


def _perturb(model: nn.Module, rounding: float) -> None:
    """Change each weight by a random relative amount of about `rounding`."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + rounding * torch.randn_like(parameter))


@contextmanager
def _products_in_tf32(is_on: bool) -> Iterator[None]:
    """Let matrix products and convolutions of float32 round their factors to TF32, or not."""
    if not torch.cuda.is_available():
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if is_on else "highest")
    torch.backends.cudnn.allow_tf32 = is_on
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def half_dtype(device: torch.device) -> torch.dtype:
    """bfloat16; float16 on a GPU without units for bfloat16."""
    older = device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.float16 if older else torch.bfloat16


def ladder(network: Network, device: torch.device) -> dict[str, Rung]:
    """{name: Rung}: baseline, the same again, the changes of `network` added one by one."""
    changes: dict[str, tuple[str, ...]] = {BASELINE: (), CONTROL: ()}
    for number, name in enumerate(network.changes):
        changes[name] = network.changes[: number + 1]
    return {name: Rung(network, made, device) for name, made in changes.items()}


def timed(
    rungs: dict[str, Rung], steps: int, seconds: float = 60.0, progress: bool = True
) -> Comparison:
    """The Comparison of the Rungs, by seconds per step; those with a reason are left out.

    Each run makes `steps` steps. The base runs twice per round, once as BASELINE and once as
    CONTROL, so that all Rungs make as many steps.
    """
    rungs[CONTROL].steps(steps)  # as the others warm up
    baselines = itertools.cycle((rungs[BASELINE], rungs[CONTROL]))
    names = [name for name, rung in rungs.items() if not rung.reason and name != CONTROL]

    def seconds_per_step(name: str) -> float:
        rung = next(baselines) if name == BASELINE else rungs[name]
        return rung.steps(steps) / steps

    return compare_measured(names, seconds_per_step, seconds=seconds, progress=progress)


def compared(rungs: dict[str, Rung], timed_rungs: Comparison) -> dict[str, Comparison | str]:
    """{name: Comparison of the Rung with the one before it, or why it could not be measured}."""
    found: dict[str, Comparison | str] = {}
    before = BASELINE
    for name, rung in rungs.items():
        if rung.reason:
            found[name] = rung.reason
        elif name not in (BASELINE, CONTROL):
            found[name] = timed_rungs.pair(before, name)
            before = name
    return found


def shares(rung: Rung) -> dict[str, float]:
    """The share of each kind of operation in a step of the Rung, by a profile of three steps."""
    return shares_of(lambda: rung.steps(1), rung.device)


def bounds(rungs: dict[str, Rung]) -> dict[str, float | None]:
    """{name: how many times as fast the step before would be without what the change touches}.

    None where a profile cannot tell: the change touches part of an operation, or it was not
    measured.
    """
    found: dict[str, float | None] = {}
    before = BASELINE
    for name, rung in rungs.items():
        if rung.reason or name in (BASELINE, CONTROL):
            continue
        found[name] = None
        if name in TOUCHES:
            of_step = shares(rungs[before])
            touched = sum(of_step.get(kind, 0.0) for kind in TOUCHES[name])
            found[name] = 1 / max(1 - touched, 0.01)
        before = name
    return found


def loss_differences(
    network: Network,
    rungs: dict[str, Rung],
    steps: int,
    seeds: int,
    device: torch.device,
) -> dict[str, Interval]:
    """{name: held loss after `steps` steps minus the baseline's, paired by seed}.

    ROUNDING is the baseline from weights that differ by a relative 1e-6. Compiled rungs are left
    out: they would compile once more per seed.
    """
    changes: dict[str, Sequence[str]] = {BASELINE: (), ROUNDING: ()}
    for name, rung in rungs.items():
        if not rung.reason and name != CONTROL and COMPILED not in rung.changes:
            changes[name] = rung.changes
    losses: dict[str, list[float]] = {name: [] for name in changes}
    for seed in range(seeds):
        for name, found in losses.items():
            rounding = 1e-6 if name == ROUNDING else 0.0
            rung = Rung(network, changes[name], device, seed, rounding)
            rung.steps(max(0, steps - rung.done))
            found.append(rung.held_loss(network.held))
    apart = {}
    for name, found in losses.items():
        if name != BASELINE:
            apart[name] = difference_interval(found, losses[BASELINE])
    return apart


# ---- one cause alone


def paid_back(compile_seconds: float, before: float, gain: Interval, calls: str = "steps") -> str:
    """After how many `calls` compiling has paid, as a text.

    Args:
        compile_seconds: of the first call.
        before: seconds of a call that is not compiled.
        gain: how many times as fast the compiled call is.
    """
    if gain.low <= 1:
        return "not paid back: no gain is proven"
    saved = before * (1 - 1 / gain.estimate)
    return f"paid back after {math.ceil(compile_seconds / saved):,} {calls}"


def update_alone(model: nn.Module, fused: bool = False) -> Callable[[], object]:
    """A function that makes one update by Adam of a copy of `model`, whose gradients are there."""
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused or None).step


def layout_pairs(n: int, device: torch.device) -> dict[str, tuple[Callable, Callable]]:
    """{layer of FashionCNN: (in the usual layout, in channels last)}, forward and backward.

    Args:
        n: images of the batch.
    """
    layers = {
        "convolution": (nn.Conv2d(32, 64, 3), (n, 32, 14, 14)),
        "BatchNorm": (nn.BatchNorm2d(32), (n, 32, 28, 28)),
        "max-pooling": (nn.MaxPool2d(2), (n, 32, 28, 28)),
    }
    pairs = {}
    for name, (layer, shape) in layers.items():
        usual, last = torch.contiguous_format, torch.channels_last
        pairs[name] = (_pass(layer, shape, usual, device), _pass(layer, shape, last, device))
    return pairs


def _pass(layer, shape, layout, device):
    """A function that runs a copy of `layer` forward and backward, all in `layout`."""
    layer = copy.deepcopy(layer).to(device, memory_format=layout)
    x = torch.randn(shape).to(device, memory_format=layout).requires_grad_()
    with torch.no_grad():
        grad = torch.ones_like(layer(x))  # in the layout of the output

    def run():
        layer(x).backward(grad)

    return run


def attention_pair(
    columns: int, tokens: int, dim: int, device: torch.device, is_causal: bool = True
) -> tuple[Callable, Callable]:
    """(written out, SDPA): attention, forward and backward, on rows of `columns` tokens.

    Args:
        tokens: of all rows together.
        is_causal: whether a token looks only at itself and at those before it.
    """
    shape = (tokens // columns, HEADS, columns, dim // HEADS)
    parts = [torch.randn(shape).to(device).requires_grad_() for _ in range(3)]

    def run_by(attend):
        return lambda: attend(*parts, is_causal=is_causal).sum().backward()

    return run_by(written_out), run_by(F.scaled_dot_product_attention)
