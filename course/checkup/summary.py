"""From what a Watch has seen to plain numbers: Watch -> *summary* -> Facts."""

import collections
import math
import statistics

import torch
from torch.utils.data import IterableDataset

from course.checkup.facts import (
    Batch,
    Calls,
    Evaluation,
    Facts,
    GradientNorms,
    Habits,
    LineShare,
    Loader,
    Memory,
    Model,
    Optimizers,
    Phase,
    Phases,
    Rare,
    Seconds,
    Steps,
)
from course.checkup.lines import Sampler
from course.checkup.padding import find_padding
from course.checkup.phases import (
    BACKWARD,
    CODE,
    COUNTED,
    EVALUATION,
    FORWARD,
    FREE,
    OPTIMIZER,
    PHASES,
    TIMED,
    TRANSFER,
    Step,
)
from course.checkup.ranks import skew
from course.checkup.rare import rare
from course.checkup.schedule import COUNTED_STEPS, MIDDLE_STEPS_MIN
from course.checkup.seen import Seen
from course.checkup.tensors import tensors_in
from course.checkup.watch import Watch

STEADY = (FORWARD, BACKWARD, OPTIMIZER, TRANSFER)  # the same in each step; waits come in bursts
# Times what is usual for a phase: what is longer in one step is a disturbance and cut off.
STEADY_MAX = 4  # times the median of a STEADY phase
CODE_MAX = 2  # times the second longest time of the script's own code: what came once is chance
LINES = 3  # most frequent ones, per phase
CALLS = 5  # most frequent ones
PLAIN_MIN = 0.25  # share of the steps; if fewer are without evaluation, it belongs to a step
STEPS_SHOWN = 10  # of the timeline
# A step's own graphs, and those of the step before, are alive when it has ended.
GRAPHS_EXPECTED = 2  # times the backward passes per step


def summarise(watch: Watch) -> Facts:
    """Everything that is known without trying anything.

    A collective where several ranks train: every rank calls it.
    """
    seen = watch.seen
    steps = watch.steps
    n_steps = max(1, len(steps))
    look = seen.failures.look  # what cannot be looked at has its default, and a line in the report
    counted = watch.counted
    n_counted = len(_of_kind(steps, COUNTED))
    step_seconds = look("seconds", seconds, steps, default=Seconds())
    step_phases = look("phases", phases, steps, default=Phases())
    found_lines = look("lines", lines, watch.sampler, default={})
    one_skew = look("ranks", skew, watch, found_lines)
    return Facts(
        cuda=watch.clock.cuda,
        compiled=seen.compiled,
        torch=torch.__version__,
        steps=Steps(watched=len(_of_kind(steps, TIMED, FREE)), run=len(steps)),
        seconds=step_seconds,
        phases=step_phases,
        lines=found_lines,
        loader=look("the loader", loader, watch),
        evaluation=look("evaluation", evaluation, watch, step_seconds.median, default=Evaluation()),
        memory=look("memory", memory, watch, default=Memory()),
        padding=look("padding", find_padding, counted.batches),
        syncs=per_step(counted.syncs, n_counted),
        sync_seconds=counted.sync_seconds / max(1, n_counted),
        collectives=per_step(counted.collectives, n_counted),
        kept_losses=look("losses that are kept", kept_losses, watch, default=0.0),
        optimizers=look("optimizers", optimizers, seen, default=Optimizers()),
        models=look("models", models, seen, default=[]),
        own_cost=look("the cost of watching", own_cost, watch),
        zeroed=seen.zeroed / n_steps,
        ranks=watch.schedule.ranks,
        backwards=round(seen.backwards / n_steps, 2),
        batch=look("a batch", batch, seen),
        skew=one_skew,
        gaps=look("the script's own code", gaps, timeline(steps), default={}),
        gradient_norms=GradientNorms(counted.small, counted.large),
        habits=look("habits", counted.habits.found, n_counted, watch.clock.cuda, default=Habits()),
        gpu_util=seen.gpu_util,
        rare=look("what is slow now and then", rare, steps, default=Rare()),
        failures=seen.failures,
    )


def _of_kind(steps: list[Step], *kinds: str) -> list[Step]:
    return [step for step in steps if step.kind in kinds]


# ---- times


def seconds(steps: list[Step]) -> Seconds:
    """Seconds per step of those that nothing was attached to, else of those that were timed."""
    chosen = _undisturbed(steps, FREE) or _of_kind(steps, TIMED) or steps
    each = [step.seconds for step in chosen]
    low, median, high = _quartiles(each)
    return Seconds(median=median, low=low, high=high, each=each)


def _undisturbed(steps: list[Step], kind: str) -> list[Step]:
    """Steps of a kind in which nothing was evaluated and no loader started.

    Steps that evaluate belong to them if nearly all do.
    """
    return [s for s in _plain(_of_kind(steps, kind)) if not s.started]


def _plain(steps: list[Step]) -> list[Step]:
    """Steps in which nothing was evaluated, or all of them if nearly all evaluate."""
    plain = [step for step in steps if not step.evaluated]
    return plain if len(plain) >= PLAIN_MIN * len(steps) else steps


def _quartiles(values: list[float]) -> list[float]:
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def phases(steps: list[Step]) -> Phases:
    """Shares of the phases of all timed steps together, each with its interval."""
    timed = _plain(_of_kind(steps, TIMED))
    without_starts = [step for step in timed if not step.started]
    per_step = [_seconds_by_phase(step) for step in without_starts or timed]
    _cut_disturbances(per_step)
    of_steps = [sum(by_phase.values()) for by_phase in per_step]
    total = sum(of_steps) or 1.0
    result = Phases()
    for name in (*PHASES, EVALUATION):
        of_phase = [by_phase[name] for by_phase in per_step]
        spent = sum(of_phase)
        if spent:
            share = spent / total
            error = _error_of_share(of_phase, of_steps)
            low, high = max(0.0, share - 2 * error), min(1.0, share + 2 * error)
            result[name] = Phase(share, low, high, spent / len(per_step))
    return result


def _error_of_share(parts: list[float], wholes: list[float]) -> float:
    """The standard error of sum(parts) / sum(wholes), from step to step; infinite for one step."""
    n, total = len(parts), sum(wholes)
    if n < 2:
        return math.inf
    share = sum(parts) / total
    squares = [(part - share * whole) ** 2 for part, whole in zip(parts, wholes, strict=True)]
    return math.sqrt(n / (n - 1) * sum(squares)) / total


def _seconds_by_phase(step: Step) -> collections.Counter[str]:
    by_phase: collections.Counter[str] = collections.Counter()
    for piece in step.pieces:
        by_phase[piece.phase] += piece.end - piece.start
    return by_phase


def _cut_disturbances(per_step: list[collections.Counter[str]]) -> None:
    """Shorten what was far longer than in other steps."""
    for by_phase in per_step:
        for name in STEADY:
            usual = statistics.median(other[name] for other in per_step)
            by_phase[name] = min(by_phase[name], STEADY_MAX * usual)
        if len(per_step) > 1:
            second = sorted(other[CODE] for other in per_step)[-2]
            by_phase[CODE] = min(by_phase[CODE], CODE_MAX * second)


def timeline(steps: list[Step]) -> list[Step]:
    """The first timed steps in which nothing was evaluated."""
    timed = _plain(_of_kind(steps, TIMED))
    return timed[:STEPS_SHOWN]


def gaps(timed: list[Step]) -> dict[str, float]:
    """{the phase that follows: seconds per step of the script's own code before it}."""
    means: dict[str, float] = {}
    for step in timed:
        for after, spent in _gaps_of(step).items():
            means[after] = means.get(after, 0.0) + spent / len(timed)
    return means


def _gaps_of(step: Step) -> dict[str, float]:
    following = [piece.phase for piece in step.pieces[1:]] + ["next step"]
    before: collections.Counter[str] = collections.Counter()
    for piece, after in zip(step.pieces, following, strict=True):
        if piece.phase == CODE:
            before[after] += piece.end - piece.start
    return dict(before)


def lines(sampler: Sampler) -> dict[str, list[LineShare]]:
    """{phase: the lines in which it is longest, with their share of its time}."""
    by_phase = collections.defaultdict(collections.Counter)
    for (phase, line), spent in sampler.found.items():
        by_phase[phase][line] += spent
    found = {}
    for phase, counter in by_phase.items():
        total = counter.total()
        longest = counter.most_common(LINES)
        found[phase] = [LineShare(line, spent / total) for line, spent in longest if line]
    return found


def own_cost(watch: Watch) -> float | None:
    """How much longer the training took because it was watched, as a share.

    None if too few steps were seen.
    """
    timed = _median_seconds(_undisturbed(watch.steps, TIMED))
    free = _median_seconds(_undisturbed(watch.steps, FREE))
    if not timed or not free:
        return None
    n_timed = len(_of_kind(watch.steps, TIMED))
    n_free = len(_of_kind(watch.steps, FREE))
    share = n_timed / max(1, n_timed + n_free)
    between = statistics.median(watch.clock.between)
    return max(0.0, (timed / free - 1) * share + between / free)


def _median_seconds(steps: list[Step]) -> float | None:
    if len(steps) < MIDDLE_STEPS_MIN:
        return None
    return statistics.median(step.seconds for step in steps)


# ---- data


def loader(watch: Watch) -> Loader | None:
    """Settings of the training's DataLoader, and how long its starts took."""
    one = watch.seen.train_loader()
    if one is None:
        return None
    first_steps = [number for number, step in enumerate(watch.steps) if step.started]
    starts = [watch.steps[number].started for number in first_steps]
    steps_per_start = float(len(watch.steps))
    if len(starts) > 1:  # the last epoch may not have ended
        steps_per_start = (first_steps[-1] - first_steps[0]) / (len(starts) - 1)
    return Loader(
        dataset=type(one.dataset).__name__,
        batch_size=one.batch_size,
        workers=one.num_workers,
        pin_memory=one.pin_memory,
        persistent=one.persistent_workers,
        prefetch=one.prefetch_factor,
        starts=len(starts),
        start_seconds=statistics.median(starts) if starts else 0.0,
        steps_per_start=steps_per_start,
        iterable=isinstance(one.dataset, IterableDataset),
    )


def batch(seen: Seen) -> Batch | None:
    """Bytes and shapes of a batch."""
    if seen.batch is not None:
        parts = list(tensors_in(seen.batch))
    else:
        parts = list(tensors_in([(call.args, call.kwargs) for call in seen.calls.values()]))
    if not parts:
        return None
    return Batch(
        bytes=sum(t.nbytes for t in parts),
        shapes=[tuple(t.shape) for t in parts],
        dtypes=[_dtype_name(t) for t in parts],
        samples=parts[0].shape[0] if parts[0].dim() else 1,
    )


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


# ---- models, optimizers, memory


def evaluation(watch: Watch, median: float) -> Evaluation:
    """The time of evaluation, as far as it happened, and the lines that record graphs in it.

    Args:
        median: seconds of a step without evaluation.
    """
    steps = watch.steps
    with_it = [step for step in steps if step.evaluated]
    timed = steps[1:]  # the first holds all that was before it
    extra = sum(max(step.evaluated, step.seconds - median) for step in timed if step.evaluated)
    total = sum(step.seconds for step in timed)
    passes = watch.hooks.forward.passes
    of_mode = {True: 0.0, False: 0.0}  # seconds in train and in eval mode
    for step in with_it:
        for phase, spent in step.passes.items():
            if passes.resolved(phase) == EVALUATION:
                of_mode[passes.is_in_train_mode(phase)] += spent
    graphs: collections.Counter[str] = collections.Counter()
    for (phase, line), n in watch.seen.graphs.items():
        if passes.resolved(phase) == EVALUATION:  # else its graph is wanted: frozen batch norm
            graphs[line] += n
    return Evaluation(
        share=extra / max(1e-12, total),
        times=len(with_it),
        graphs=dict(graphs),
        in_train_mode=of_mode[True] > of_mode[False],
    )


def models(seen: Seen) -> list[Model]:
    """The modules that the script calls and that have parameters, the largest first."""
    found = []
    for module in seen.models.values():
        parameters = list(module.parameters())
        if parameters:
            trained = sum(p.numel() for p in parameters if p.requires_grad)
            found.append(Model(type(module).__name__, trained, _dtype_name(parameters[0])))
    return sorted(found, key=lambda model: -model.trained)


def optimizers(seen: Seen) -> Optimizers:
    """The optimizers that step, and how many of their steps there are in a step of training."""
    of_all = list(seen.optimizers.values())
    names = collections.Counter(type(one.optimizer).__name__ for one in of_all)
    return Optimizers(
        names=dict(names),
        steps=sum(one.steps_max for one in of_all),
        tensors=len(list(seen.parameters())),
    )


def memory(watch: Watch) -> Memory:
    """Bytes of weights, gradients, optimizer state and what autograd saves in a step."""
    weights = {}  # by id, because several optimizers may hold a tensor
    gradients = {}
    for parameter in watch.seen.parameters():
        weights[id(parameter)] = parameter.nbytes
        gradients[id(parameter)] = parameter.nbytes if parameter.requires_grad else 0
    states = {}
    for one in watch.seen.optimizers.values():
        for tensor in tensors_in(list(one.optimizer.state.values())):
            states[id(tensor)] = tensor.nbytes
    saved_at = watch.counted.saved_at
    saved = max(1, saved_at.total())
    return Memory(
        lines=[LineShare(line, n / saved) for line, n in saved_at.most_common(LINES) if line],
        weights=sum(weights.values()),
        gradients=sum(gradients.values()),
        optimizer=sum(states.values()),
        activations=watch.counted.saved_bytes,
    )


# ---- what was counted in the last steps


def per_step(counter: collections.Counter[tuple[str, str]], n_steps: int) -> list[Calls]:
    """The most frequent calls, first those that come most often."""
    if not n_steps:
        return []
    return [Calls(name, line, n / n_steps) for (name, line), n in counter.most_common(CALLS)]


def kept_losses(watch: Watch) -> float:
    """The share of the losses' graphs that something keeps: a mean over the last steps."""
    alive_after = watch.counted.graphs_alive
    per_step = len(watch.counted.losses) / max(1, len(alive_after))
    if not per_step:
        return 0.0
    shares = []
    for i, alive in enumerate(alive_after):
        earlier = i + 1 - GRAPHS_EXPECTED  # steps whose graphs should be gone
        if earlier >= COUNTED_STEPS // 2:
            kept = max(0.0, alive - GRAPHS_EXPECTED * per_step)
            shares.append(kept / (per_step * earlier))
    return statistics.mean(shares) if shares else 0.0
