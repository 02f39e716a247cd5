"""Facts: what is known of a training, as plain numbers. Times in seconds, sizes in bytes.

summary.py reads them from a Watch, trials.py adds what was tried, and the rules of advice/, the
predictions and the report read nothing else. `as_data` is their form in `--json`.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from course.checkup.padding import Padding
from course.checkup.padding import padding_of as padding_of  # what unit 05 imports from here
from course.measure.comparison import FASTER, NOT_MEASURED

# ---- what was seen


@dataclass(frozen=True)
class Steps:
    """How many steps there were."""

    watched: int = 0  # timed or free: those that times come from
    run: int = 0


@dataclass(frozen=True)
class Seconds:
    """Seconds per step: the median, the quartiles, and each."""

    median: float = 0.0
    low: float = 0.0
    high: float = 0.0
    each: list[float] = field(default_factory=list)  # of undisturbed steps, in their order


@dataclass(frozen=True)
class Phase:
    """One phase of a step."""

    share: float  # of all timed steps together
    low: float = 0.0  # the ends of the share's interval of 95 %
    high: float = 0.0
    seconds: float = 0.0  # per step


class Phases(dict[str, Phase]):
    """The phases that were seen, by name; none if no step was timed."""

    def share(self, *names: str) -> float:
        """The share of a step that these phases take together."""
        return sum(self[name].share for name in names if name in self)


class LineShare(NamedTuple):
    """A line of the script, and its share of the time of a phase."""

    line: str  # "train.py:31"
    share: float


class Calls(NamedTuple):
    """A call that a line of the script makes in each step."""

    name: str
    line: str
    per_step: float


class Model(NamedTuple):
    """A module that the script calls."""

    name: str
    trained: int  # parameters
    dtype: str


@dataclass(frozen=True)
class Loader:
    """Settings of the training's DataLoader, and how long its starts took."""

    dataset: str
    batch_size: int | None
    workers: int
    pin_memory: bool
    persistent: bool
    prefetch: int | None
    starts: int = 0
    start_seconds: float = 0.0
    steps_per_start: float = 0.0
    iterable: bool = False  # an IterableDataset, whose rows workers must share out themselves


@dataclass(frozen=True)
class Evaluation:
    """Forward passes that do not train."""

    share: float = 0.0  # of the time of all steps
    times: int = 0  # steps with such passes
    graphs: dict[str, int] = field(default_factory=dict)  # line -> passes that record a graph
    in_train_mode: bool = False  # whether most are, as those that act in an environment


@dataclass(frozen=True)
class Memory:
    """Bytes that training takes."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int | None = None  # what autograd saves in a step, if it was seen
    lines: list[LineShare] = field(default_factory=list)  # whose forward pass saves most of that


@dataclass(frozen=True)
class Optimizers:
    """The optimizers that step."""

    names: dict[str, int] = field(default_factory=dict)  # class -> how many of it
    steps: int = 0  # of optimizers in a step of the training
    tensors: int = 0  # parameters of all


@dataclass(frozen=True)
class Batch:
    """A batch, or the arguments of the models if no loader served it."""

    bytes: int
    shapes: list[tuple[int, ...]]
    dtypes: list[str]
    samples: int


@dataclass(frozen=True)
class Rare:
    """What the script's own code does each so many steps, such as logging or a checkpoint."""

    share: float = 0.0  # of the time of all steps
    times: int = 0
    every: int = 0  # steps from one to the next, usually


@dataclass(frozen=True)
class Habits:
    """What the script has switched on, and does in small pieces."""

    anomaly: bool = False  # torch.autograd.set_detect_anomaly
    threads: int = 0  # of torch; 0 if it was not seen
    cores: int = 0
    processes: int = 1  # that train on this machine
    float32_matmul: bool = False  # on a GPU that has TF32, and may not use it
    distributions: float = 0.0  # seconds per step in argument checks of torch.distributions
    loops: list[Calls] = field(default_factory=list)  # calls on one tensor after the other
    looping: float = 0.0  # seconds per step in these
    loop_lines: dict[str, list[str]] = field(default_factory=dict)  # line of a call -> of its loop
    reductions: float = 0.0  # forward passes per step of DDP whose backward pass reduces
    recompiles: dict[str, int] = field(default_factory=dict)  # "file:line: why" -> times
    breaks: list[str] = field(default_factory=list)  # lines at which a compiled graph ends
    growth: float = 0.0  # bytes per step by which the process grows, if it does so steadily


@dataclass(frozen=True)
class Skew:
    """How ranks differ in what they do between waiting for each other."""

    seconds: list[float]  # per step, of each rank
    late: float  # of the slowest: more than the median of the others
    rank: int  # the slowest
    phase: str  # where the slowest loses most against the others
    waits: float  # seconds that this rank waits for the slowest
    line: str = ""  # most frequent in that phase
    low: float = 0.0  # the lower end of the interval of `late`

    @property
    def is_proven(self) -> bool:
        """Whether the slowest is late in more steps than chance would make it."""
        return self.low > 0


@dataclass(frozen=True)
class GradientNorms:
    """Squared norms of gradients of consecutive steps, and of means of as many in a group."""

    small: list[torch.Tensor] = field(default_factory=list)  # scalars
    large: list[torch.Tensor] = field(default_factory=list)


# ---- what was tried

BF16 = "bf16 autocast"
CHANNELS_LAST = "channels_last"
FLOAT32 = "float32"
TF32 = "TF32"
WITHOUT_ANOMALY = "without anomaly detection"
THREADS = "a thread per core"
FUSED = "fused optimizer"
LARGER_BATCH = "batch x4"
ONE_OPTIMIZER = "one optimizer"
COMPILE = "compile"
INFERENCE_MODE = "inference_mode"
NUM_WORKERS = "num_workers="  # and a number
BATCH_TIMES = 4  # times the samples of LARGER_BATCH
NOT_TRUSTED = "not trusted"  # a verdict: more than what is known of the step allows
MANY_OPTIMIZERS = 4  # of one step; ONE_OPTIMIZER is tried for so many


class NoWay(Exception):
    """A change that cannot be tried on this training; its text says why."""


@dataclass(frozen=True)
class Trial:
    """What one change gave."""

    verdict: str  # of course.measure.comparison, or NOT_TRUSTED
    step: float  # how many times as fast what was changed got
    low: float | None  # the interval of `whole`, if it was measured
    high: float | None
    whole: float  # how many times as fast a whole step would get
    text: str
    bound: float | None = None  # of `whole`, if it was measured

    @property
    def helped(self) -> bool:
        """Whether the whole interval is above 1, and not above the bound."""
        return self.verdict == FASTER

    @property
    def was_measured(self) -> bool:
        """Whether there is a number at all."""
        return self.verdict != NOT_MEASURED


def not_measured(text: str) -> Trial:
    """The Trial of what was not measured, for the reason that the text says."""
    return Trial(NOT_MEASURED, step=1.0, low=None, high=None, whole=1.0, text=text)


@dataclass(frozen=True)
class Items:
    """What an item of the dataset costs without workers."""

    seconds: float
    busy: float  # share of the time in which the process computed, and did not wait
    own_collate: bool  # collate_fn is not torch's
    shares: dict[str, float]  # of reading, transform and collate_fn
    line: str = ""  # of the script that most of the reading is in
    line_share: float = 0.0  # of the time of the reading
    opened: str = ""  # a file that was opened again for each item

    def share(self, name: str) -> float:
        """The share of the time of an item that a function takes."""
        return self.shares.get(name, 0.0)


@dataclass(frozen=True)
class Costs:
    """Seconds, and CPU seconds, of a batch without workers and of a step without loading."""

    batch: float
    batch_cpu: float
    step: float
    step_cpu: float
    memcpy: float | None = None  # seconds of a copy of the batch, if that is large enough


@dataclass(frozen=True)
class Arithmetic:
    """What a step's models compute, and what the device reaches."""

    flops: float  # of products, per step
    peak: float  # FLOPs per second of a matrix product here


@dataclass(frozen=True)
class Trials:
    """Everything that was tried."""

    by_name: dict[str, Trial] = field(default_factory=dict)
    items: Items | None = None
    costs: Costs | None = None
    arithmetic: Arithmetic | None = None
    interrupted: bool = False  # by Ctrl-C

    def get(self, name: str) -> Trial:
        """The trial of that name, or one that says that it was not measured."""
        return self.by_name.get(name, not_measured(""))

    def of_workers(self) -> dict[str, Trial]:
        """The trials of other numbers of workers."""
        return {name: t for name, t in self.by_name.items() if name.startswith(NUM_WORKERS)}


# ---- all of it


@dataclass(frozen=True)
class Facts:
    """All that is known; a field that was not seen has its default."""

    cuda: bool = False
    compiled: bool = False
    torch: str = ""  # its version
    steps: Steps = Steps()
    seconds: Seconds = Seconds()
    phases: Phases = field(default_factory=Phases)
    lines: dict[str, list[LineShare]] = field(default_factory=dict)  # phase -> the most frequent
    loader: Loader | None = None
    evaluation: Evaluation = Evaluation()
    memory: Memory = Memory()
    padding: Padding | None = None
    syncs: list[Calls] = field(default_factory=list)  # that wait for a value of a tensor
    sync_seconds: float = 0.0  # per step, in these
    collectives: list[Calls] = field(default_factory=list)
    kept_losses: float = 0.0  # share of the losses' graphs that something keeps
    optimizers: Optimizers = Optimizers()
    models: list[Model] = field(default_factory=list)
    own_cost: float | None = None  # share by which watching made training longer, if measured
    zeroed: float = 0.0  # calls per step of zero_grad that fill gradients with zeros
    ranks: int = 1
    backwards: float = 0.0  # per step
    batch: Batch | None = None
    skew: Skew | None = None
    gaps: dict[str, float] = field(default_factory=dict)  # next phase -> own code before it
    gradient_norms: GradientNorms = GradientNorms()
    habits: Habits = Habits()
    rare: Rare = Rare()
    gpu_util: float | None = None  # share of the time in which a kernel ran, as nvidia-smi says
    trials: Trials = Trials()
    failures: dict[str, str] = field(default_factory=dict)  # what could not be looked at: why


def as_data(facts: Facts) -> dict[str, Any]:
    """What `--json` holds of the facts: the fields by name, {} for parts that were not seen."""
    data = dataclasses.asdict(facts)
    del data["gradient_norms"]
    del data["failures"]  # they are sentences of not_seen
    del data["gaps"]  # they follow at the end of a report
    for name in ("loader", "padding", "batch", "skew"):
        data[name] = data[name] or {}
    tried = data.pop("trials")
    data["trials"] = {name: _measured(trial) for name, trial in tried["by_name"].items()}
    data["items"] = tried["items"] or {}
    data["costs"] = _measured(tried["costs"] or {})
    data["arithmetic"] = tried["arithmetic"] or {}
    return data


def _measured(part: dict[str, Any]) -> dict[str, Any]:
    """The fields that were measured."""
    return {name: value for name, value in part.items() if value is not None}
