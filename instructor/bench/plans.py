"""`course bench plans`: what `course checkup --plan` predicts, over what really ran.

A training of a small GPT is watched, and the plans are predicted from it. Then real ranks run them:
DDP is torch's, ZeRO-3 is torch's fully_shard, tensor ranks and the pipeline are the course's (unit
07). Two things are emulated, because ranks on one machine share its cores and have no network:

- Matrix products are computed, then the rank rests until a device of EMULATED.flops would have
  finished, so most of a step is rest. With `--on-cores` nothing rests, and up to as many ranks as
  there are cores can be predicted: the training is watched while the other ranks train, too.
- Messages arrive when a card of EMULATED.bandwidth would have sent them (slow_ring.py).

On the CPU fully_shard waits for each message, so the cluster of ZeRO-3 has `overlap = false`.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from course.checkup import plan_blocks
from course.checkup.cluster import Cluster
from course.checkup.facts import Facts
from course.checkup.plan import PIPELINE, TENSOR, Row, rows
from course.checkup.structure import Structure
from course.device import machine
from course.notebook.solutions import load_solutions
from course.parallel.distributed import run_ranks
from course.training.plans import counted_flops
from course.training.small_gpt import next_token_loss
from course.training.tensor_parallel import Answers
from instructor.bench.plan_runs import Machine, Parts, Ran, Size, ran, watched
from instructor.bench.tables import Table

UNIT = "07_beyond_data_parallel"
SIZES = {
    "small": Size(dim=64, blocks=4, rows=4, columns=32),
    "large": Size(dim=128, blocks=6, rows=2, columns=32),
}
PLANS = ("DDP", "ZeRO-3", TENSOR, PIPELINE)
EMULATED = Machine(flops=5e8, latency=0.001, bandwidth=4e6)
CORES = replace(EMULATED, flops=math.inf)
MEMORY = 1e12  # all plans fit
WITHIN = 0.15  # of the measured time, what is asked of a prediction
WATCHED_STEPS = 12
WATCHED_MINUTES = 0.5
TIMEOUT_SECONDS = 1200.0
COLUMNS = [
    *("model", "ranks", "plan", "predicted, ms", "measured, ms", "predicted / measured"),
    *("MB sent", "MB of state", "bytes exact"),
]


@dataclass(frozen=True)
class Config:
    """One configuration: what was predicted, and what each rank did."""

    size: str
    ranks: int
    row: Row
    ran: list[Ran]
    rests: float = 0.0  # share of the watched step in which a slow device would compute

    @property
    def seconds(self) -> float:
        """Of a step: the slowest rank's, the median of all steps."""
        steps = zip(*(each.seconds for each in self.ran), strict=True)
        return statistics.median(max(step) for step in steps)

    @property
    def ratio(self) -> float:
        """Predicted over measured seconds."""
        return self.row.seconds / self.seconds

    @property
    def is_exact(self) -> bool:
        """Whether the bytes that were sent and those that are kept equal the predicted ones.

        What autograd saves is compared, too, but for ZeRO-3, where it saves gathered weights.
        """
        row = self.row
        sent = max(each.sent for each in self.ran)
        state = max(each.state for each in self.ran)
        whole = max(each.state + each.saved for each in self.ran)
        is_whole = row.plan == "ZeRO-3" or row.n_bytes == whole
        return is_whole and (round(row.sent), row.state) == (round(sent), state)


def run(ranks: Sequence[int], sizes: Sequence[str], steps: int, on_cores: bool) -> list[Table]:
    """Print and return predicted over measured seconds of each configuration."""
    device = CORES if on_cores else EMULATED
    key = "plans on cores" if on_cores else "plans"
    table = Table(key, "Plans, predicted and run", COLUMNS)
    found = []
    for name in sizes:
        for n in ranks:
            found += _configs(name, n, steps, device)
    for one in found:
        sent, state = one.row.sent / 1e6, one.row.state / 1e6
        milliseconds = f"{1000 * one.row.seconds:.0f}", f"{1000 * one.seconds:.0f}"
        exact = "yes" if one.is_exact else "no"
        cells = one.size, one.ranks, one.row.plan, *milliseconds, f"{one.ratio:.2f}"
        table.add(*cells, f"{sent:.2f}", f"{state:.2f}", exact)
    within = sum(abs(one.ratio - 1) <= WITHIN for one in found)
    exact = sum(one.is_exact for one in found)
    rests = min(one.rests for one in found)
    table.note = (
        f"{within} of {len(found)} within {WITHIN:.0%}, bytes exact in {exact}; "
        f"{device.bandwidth / 1e6:g} MB/s, {1000 * device.latency:g} ms per message, "
        f"{device.flops / 1e9:g} GFLOP/s, which are at least {rests:.0%} of a watched step (less "
        f"than 80% is a busy machine); median of {steps} steps"
    )
    print(table)
    print(machine())
    return [table]


def _configs(name: str, n: int, steps: int, device: Machine) -> list[Config]:
    """Every plan of one size on n ranks."""
    size = SIZES[name]
    watching = size, device, WATCHED_STEPS, WATCHED_MINUTES
    facts, structure = run_ranks(watched, n, *watching, backend="gloo", timeout=TIMEOUT_SECONDS)[0]
    blocks = [stage.n_blocks for stage in plan_blocks.stages_of(facts, _cluster(n), structure)]
    running = PLANS, size, parts(), device, blocks, steps
    of_ranks = run_ranks(ran, n, *running, backend="gloo", timeout=TIMEOUT_SECONDS)
    configs = []
    for row in predicted(facts, structure, n):
        of_plan = [each[row.plan] for each in of_ranks]
        configs.append(Config(name, n, row, of_plan, _rests(size, device, facts)))
    return configs


def _rests(size: Size, device: Machine, facts: Facts) -> float:
    """The share of the watched step that its FLOPs take on a device; the rest is the core's."""
    model = size.model()
    flops = counted_flops(lambda: next_token_loss(model, size.tokens(0)).backward())
    return flops / device.flops / facts.seconds.median


def predicted(facts: Facts, structure: Structure, n: int) -> list[Row]:
    """A Row for each of PLANS on n ranks."""
    found = {}
    for plan in PLANS:
        cluster = replace(_cluster(n), overlap=plan != "ZeRO-3")
        found[plan] = {row.plan: row for row in rows(facts, cluster, structure)}[plan]
    return list(found.values())


def _cluster(n: int) -> Cluster:
    return Cluster(n, MEMORY, EMULATED.bandwidth, EMULATED.latency)


def parts() -> Parts:
    """The reference answers of unit 07 that tensor and pipeline ranks are made of."""
    answers = load_solutions(UNIT)
    tensor = Answers(
        answers.copy_to_ranks, answers.sum_over_ranks, answers.SplitMLP, answers.head_rows
    )
    return Parts(tensor, answers.run_order)
