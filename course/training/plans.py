"""The models, clusters and plans of unit 07: *sizes* -> formulas -> the cheapest plan.

A plan cuts a training along three axes: data ranks compute different sequences, tensor ranks keep a
part of each layer, pipeline ranks keep some of the layers. What a plan computes, keeps and sends is
the task of the unit's first part; how long that takes is given here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from course.measure.saved_tensors import peak_bytes_saved
from course.training.ragged_transformer import RaggedTransformer

# Of the peak, what the products of a good training reach without waiting for messages; Chowdhery
# et al. 2022 (PaLM), section 4, report an MFU of 46 % with all waiting.
REACHED = 0.5
GB = 1e9


@dataclass(frozen=True)
class Gpt:
    """The sizes of a GPT, the transformer of unit 05: pre-norm blocks, an MLP of four widths."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    columns: int  # tokens per sequence

    @property
    def parameters(self) -> int:
        """How many numbers its weights are, with biases, norms and both ends of the vocabulary."""
        block = 12 * self.width**2 + 13 * self.width
        return self.layers * block + 2 * self.width + 2 * self.vocabulary * self.width

    def model(self, device: torch.device | str = "meta") -> RaggedTransformer:
        """A model of these sizes; on the meta device it has shapes and no memory."""
        with torch.device(device):
            return RaggedTransformer(self.vocabulary, self.width, self.layers, self.heads)

    def loss(self, model: nn.Module, rows: int) -> Tensor:
        """The mean loss of `rows` random sequences on the device of `model`, with a graph."""
        device = next(model.parameters()).device
        tokens = torch.randint(self.vocabulary, (rows, self.columns + 1), device=device)
        scores = model(tokens[:, :-1], torch.arange(self.columns, device=device))
        return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


@dataclass(frozen=True)
class Plan:
    """How a training is cut; data · tensor · pipeline is the number of devices."""

    data: int = 1  # ranks that compute different sequences
    tensor: int = 1  # ranks that share every layer
    pipeline: int = 1  # ranks that each keep some of the layers
    # of ZeRO: the data ranks shard 1 the optimizer, 2 also gradients, 3 also weights
    stage: int = 0
    micro_batches: int = 1  # per data rank and step
    checkpointing: bool = False  # blocks keep their input alone and are computed again

    def __str__(self) -> str:
        words = []
        for axis in ("data", "tensor", "pipeline"):
            if getattr(self, axis) > 1:
                words.append(f"{axis} {getattr(self, axis)}")
        if self.stage:
            words.append(f"ZeRO-{self.stage}")
        noun = "micro-batch" if self.micro_batches == 1 else "micro-batches"
        words.append(f"{self.micro_batches} {noun}")
        if self.checkpointing:
            words.append("checkpointing")
        return ", ".join(words)


@dataclass(frozen=True)
class Job:
    """A model, its batch, and the cluster that is to train it."""

    gpt: Gpt
    rows: int  # sequences in the batch of all devices
    devices: int
    per_node: int  # devices that share the fast links of a node
    memory: float  # bytes of a device that the training may fill
    flops: float  # peak of a device, per second
    inside: float  # bytes per second that a device sends within its node
    between: float  # the same, to another node

    def __str__(self) -> str:
        model = f"{self.gpt.layers:>2} layers, {self.gpt.heads:>2} heads"
        batch = f"{self.rows:>5,} × {self.gpt.columns:>6,} tokens"
        device = f"{self.memory / GB:.0f} GB, {self.flops / 1e12:.0f} TFLOP/s"
        network = f"{self.inside / GB:>3g} and {self.between / GB:g} GB/s"
        return f"{model}; {batch}; {device}; {network}"


@dataclass(frozen=True)
class Costs:
    """The formulas of a plan: what the first part of unit 07 asks for."""

    flops: Callable[[Gpt, int], float]  # of a step with so many rows
    state: Callable[[int, Plan], Mapping[str, float]]  # bytes of a device, by kind
    activations: Callable[[Gpt, int, Plan], float]  # bytes of a device
    sent: Callable[[Gpt, int, Plan], Mapping[str, float]]  # bytes of a device per step, by axis

    def held(self, job: Job, plan: Plan) -> dict[str, float]:
        """Bytes of a device by kind: weights, gradients, optimizer, activations."""
        state = self.state(job.gpt.parameters, plan)
        return {**state, "activations": self.activations(job.gpt, job.rows, plan)}

    def n_bytes(self, job: Job, plan: Plan) -> float:
        """All bytes that a device holds."""
        return sum(self.held(job, plan).values())

    def seconds(self, job: Job, plan: Plan) -> float:
        """Seconds of a step: its own arithmetic, and all that `lost` lists.

        Raises: ValueError if the plan does not use all devices, or splits a layer between nodes.
        """
        ranks = plan.data * plan.tensor * plan.pipeline
        if ranks != job.devices:
            raise ValueError(f"{plan} has {ranks} ranks for {job.devices} devices.")
        if plan.tensor > job.per_node:
            raise ValueError(f"{plan} has more tensor ranks than the {job.per_node} of a node.")
        return self._computing(job) + sum(self.lost(job, plan).values())

    def lost(self, job: Job, plan: Plan) -> dict[str, float]:
        """Seconds that a step takes on top of its own arithmetic, by cause.

        Tensor and pipeline messages are waited for. Data messages hide behind the passes in which
        they are sent, as far as these are longer: all passes in stage 3, the backward passes in
        stage 2, and else the backward pass of the last micro-batch.
        """
        compute = self._computing(job)
        again = compute / 3 if plan.checkpointing else 0.0
        far = job.inside if job.devices <= job.per_node else job.between
        sent = self.sent(job.gpt, job.rows, plan)
        tensor = sent["tensor"] / job.inside
        pipeline = sent["pipeline"] / far
        busy = compute + again + tensor + pipeline
        last_backward = (2 / 3 * compute + again) / plan.micro_batches
        hides = (
            last_backward,
            last_backward,
            last_backward * plan.micro_batches,
            compute + again,
        )
        return {
            "recomputing": again,
            "tensor messages": tensor,
            "pipeline messages": pipeline,
            "the bubble": busy * (plan.pipeline - 1) / plan.micro_batches,
            "data messages": max(0.0, sent["data"] / far - hides[plan.stage]),
        }

    def main_loss(self, job: Job, plan: Plan) -> str:
        """What most of the lost seconds go to, a key of `lost`; "nothing" if none are lost."""
        lost = self.lost(job, plan)
        most = max(lost, key=lambda cause: lost[cause])
        return most if lost[most] > 0 else "nothing"

    def mfu(self, job: Job, plan: Plan) -> float:
        """Model FLOPs utilization: the share of the peak that the model's arithmetic reaches."""
        flops_per_second = self.flops(job.gpt, job.rows) / self.seconds(job, plan)
        return flops_per_second / (job.devices * job.flops)

    def best_of(
        self, best_plan: Callable[..., Plan], job: Job, candidates: Sequence[Plan]
    ) -> Plan | None:
        """The fastest of `candidates` that runs and fits, or None.

        Args:
            best_plan: the learner's answer.
        """
        try:
            return best_plan(job, candidates, self.n_bytes, self.seconds)
        except ValueError:
            return None

    def refusal(self, job: Job, plan: Plan) -> str:
        """Why `plan` does not train the job, in words; for a plan that `best_of` has refused."""
        needs = self.n_bytes(job, plan)
        if needs > job.memory:
            return f"{plan} needs {needs / GB:,.0f} GB of {job.memory / GB:.0f}."
        try:
            self.seconds(job, plan)
        except ValueError as error:
            return str(error)
        return f"{plan} fits, but a division leaves a rest, or ZeRO-2 or 3 meets a pipeline."

    def over_best(
        self, jobs: Mapping[str, Job], plans: Mapping[str, Plan | None], best: Mapping[str, Plan]
    ) -> dict[str, float]:
        """{job: how many times the seconds of its best plan it takes}, for jobs that have a plan.

        Args:
            jobs: {name: Job}.
            plans: {name of a job: Plan, or None if no plan runs and fits}.
            best: {name of a job: its fastest Plan}.
        """
        ratios = {}
        for name, plan in plans.items():
            if plan is not None:
                best_seconds = self.seconds(jobs[name], best[name])
                ratios[name] = self.seconds(jobs[name], plan) / best_seconds
        return ratios

    def _computing(self, job: Job) -> float:
        """Seconds of a step's own arithmetic, at REACHED of the peak."""
        return self.flops(job.gpt, job.rows) / (job.devices * job.flops * REACHED)


def cuts(job: Job) -> Iterator[Plan]:
    """Every Plan of `job.devices` ranks, with tensor ranks in one node; some of them cannot run."""
    for tensor in _divisors(job.devices):
        for pipeline in _divisors(job.devices // tensor):
            data = job.devices // tensor // pipeline
            if tensor <= job.per_node and data <= job.rows:
                yield from _with_options(data, tensor, pipeline, job.rows // data)


def _with_options(data: int, tensor: int, pipeline: int, rows: int) -> Iterator[Plan]:
    """The plans of these axes: each stage, number of micro-batches, and with checkpointing."""
    for stage in range(4 if data > 1 else 1):
        for micro_batches in _divisors(rows):
            for checkpointing in (False, True):
                yield Plan(data, tensor, pipeline, stage, micro_batches, checkpointing)


def _divisors(n: int) -> list[int]:
    return [each for each in range(1, n + 1) if n % each == 0]


def counted_flops(run: Callable[[], object]) -> int:
    """The FLOPs of all matrix products of `run()`, as torch counts them (FlopCounterMode)."""
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def saved_by_blocks(model: RaggedTransformer, x: Tensor, checkpointing: bool = False) -> int:
    """The most bytes that autograd saves for the blocks of `model`, forward and backward.

    Args:
        x: (rows, columns, width), input of the first block.
    """

    def run() -> None:
        y = x
        for block in model.blocks:
            if checkpointing:
                # torch advises use_reentrant=False, but hooks do not see what that keeps
                y = checkpoint(block, y, None, use_reentrant=True)
            else:
                y = block(y, None)
        y.sum().backward()

    return peak_bytes_saved(run, model.parameters())


# ---- the ten jobs of the unit

_SMALL = Gpt(vocabulary=50_304, width=768, layers=12, heads=12, columns=1024)  # as GPT-2
_1B = Gpt(vocabulary=50_304, width=2048, layers=24, heads=16, columns=2048)
_7B = Gpt(vocabulary=32_000, width=4096, layers=32, heads=32, columns=2048)
_7B_LONG = Gpt(vocabulary=32_000, width=4096, layers=32, heads=32, columns=32_768)
_13B = Gpt(vocabulary=32_000, width=5120, layers=40, heads=40, columns=2048)
_65B = Gpt(vocabulary=32_000, width=8192, layers=80, heads=64, columns=4096)
_175B = Gpt(vocabulary=50_304, width=12_288, layers=96, heads=96, columns=2048)  # as GPT-3
_DESKTOP = dict(memory=22e9, flops=165e12, inside=20e9)
_A100 = dict(memory=75e9, flops=312e12, inside=250e9)
_H100 = dict(memory=75e9, flops=989e12, inside=400e9)

JOBS = {
    "0.2B on one desktop card": Job(_SMALL, 64, 1, 1, between=1e9, **_DESKTOP),
    "1B on eight A100": Job(_1B, 256, 8, 8, between=20e9, **_A100),
    "7B on eight A100": Job(_7B, 256, 8, 8, between=20e9, **_A100),
    "7B on eight desktop cards": Job(_7B, 256, 8, 8, between=1e9, **_DESKTOP),
    "7B on 16 desktops, slow network": Job(_7B, 256, 16, 1, between=0.1e9, **_DESKTOP),
    "7B, long sequences, eight H100": Job(_7B_LONG, 16, 8, 8, between=50e9, **_H100),
    "13B on 64 A100, slow network": Job(_13B, 512, 64, 8, between=1e9, **_A100),
    "65B on 64 H100": Job(_65B, 512, 64, 8, between=50e9, **_H100),
    "65B on 512 H100, small batch": Job(_65B, 128, 512, 8, between=50e9, **_H100),
    "175B on 1,024 A100": Job(_175B, 1536, 1024, 8, between=20e9, **_A100),
}
