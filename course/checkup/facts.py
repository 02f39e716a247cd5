"""What a Watch has seen, as plain numbers: shares of a step, the loader's settings, syncs, memory,
padding.
"""

import collections
import statistics

import torch

from course.checkup.counted import COUNT
from course.checkup.phases import (
    BACKWARD,
    CODE,
    COUNTED,
    FORWARD,
    FREE,
    OPTIMIZER,
    PHASES,
    TIMED,
    TRANSFER,
)
from course.checkup.tensors import tensors_in

STEADY = FORWARD, BACKWARD, OPTIMIZER, TRANSFER  # the same in each step; waits may come in bursts
MOST_PAD = 0.02  # a share of cells that is padding and not worth a word


def facts(watch) -> dict:
    """Everything that is known without trying anything; times in seconds, sizes in bytes."""
    watched = sum(step.kind in (TIMED, FREE) for step in watch.steps)
    data = {"steps": {"watched": watched, "run": len(watch.steps)}}
    data |= {
        "seconds": seconds(watch),
        "phases": phases(watch),
        "lines": lines(watch),
        "loader": loader(watch),
    }
    data |= {
        "evaluation": evaluation(watch),
        "memory": memory(watch),
        "padding": padding_of(watch.counted.batches),
    }
    data |= {
        "syncs": per_step(watch.counted.syncs, watch),
        "collectives": per_step(watch.counted.collectives, watch),
    }
    data |= {
        "kept_losses": kept_losses(watch),
        "optimizers": optimizers(watch),
        "models": models(watch),
    }
    timed, free = _middle(watch, TIMED), _middle(watch, FREE)
    data["own_cost"] = own_cost(watch, timed, free)
    data["zeroed"] = watch.zeroed / max(1, len(watch.steps))
    data["ranks"] = watch.ranks
    data["backwards"] = round(watch.backwards / max(1, len(watch.steps)), 2)
    data["batch"] = batch_facts(watch)
    return data


def seconds(watch) -> dict:
    """Seconds per step of those that nothing was attached to: median, and quartiles."""
    steps = [s.seconds for s in watch.steps if s.kind == FREE and not s.evaluated and not s.started]
    steps = (
        steps
        or [s.seconds for s in watch.steps if s.kind == TIMED]
        or [s.seconds for s in watch.steps]
    )
    low, middle, high = statistics.quantiles(steps, n=4) if len(steps) > 1 else steps * 3
    return {"median": middle, "low": low, "high": high}


def phases(watch) -> dict:
    """{phase: {"share", "low", "high", "seconds"}}: shares of all timed steps together, quartiles
    of those of one.
    """
    steps = [s for s in watch.steps if s.kind == TIMED and not s.evaluated]
    plain = [s for s in steps if not s.started] or steps
    sums, each = collections.Counter(), collections.defaultdict(list)
    owns = [_by_phase(step) for step in plain]
    for own in owns:
        for name in STEADY:
            own[name] = min(own[name], 4 * statistics.median(other[name] for other in owns))
        if len(owns) > 1:  # what came once is chance
            own[CODE] = min(own[CODE], 2 * sorted(other[CODE] for other in owns)[-2])
        sums.update(own)
        for name in PHASES:
            each[name].append(own[name] / max(1e-12, sum(own.values())))
    total = sum(sums.values()) or 1.0
    result = {}
    for name in PHASES:
        if sums[name]:
            low, _, high = (
                statistics.quantiles(each[name], n=4) if len(plain) > 1 else each[name] * 3
            )
            result[name] = {
                "share": sums[name] / total,
                "low": low,
                "high": high,
                "seconds": sums[name] / len(plain),
            }
    return result


def _by_phase(step):
    own = collections.Counter()
    for name, begin, end in step.pieces:
        own[name] += end - begin
    return own


def lines(watch) -> dict:
    """{phase: [(line, share of the looks at this phase), ...]}, the three most frequent lines
    each.
    """
    by_phase = collections.defaultdict(collections.Counter)
    for (phase, line), count in watch.sampler.found.items():
        by_phase[phase][line] += count
    return {
        phase: [(line, n / counter.total()) for line, n in counter.most_common(3) if line]
        for phase, counter in by_phase.items()
    }


def gaps(step) -> dict:
    """{the phase that follows: seconds of the script's own code before it} of a timed step."""
    before = collections.Counter()
    for (name, begin, end), after in zip(step.pieces, [*step.pieces[1:], None], strict=True):
        if name == CODE:
            before[after[0] if after else "next step"] += end - begin
    return dict(before)


def train_loader(watch):
    """The DataLoader whose batches most steps used, or None."""
    served = sorted(watch.served.values(), key=lambda pair: pair[1])
    return served[-1][0] if served else None


def loader(watch) -> dict:
    """Settings of the training's DataLoader, and how long its starts took; {} if there is none."""
    one = train_loader(watch)
    if one is None:
        return {}
    starts = [s.started for s in watch.steps if s.started]
    return {
        "dataset": type(one.dataset).__name__,
        "batch_size": one.batch_size,
        "workers": one.num_workers,
        "pin_memory": one.pin_memory,
        "persistent": one.persistent_workers,
        "prefetch": one.prefetch_factor,
        "starts": len(starts),
        "start_seconds": sum(starts) / max(1, len(starts)),
        "steps_per_start": len(watch.steps) / max(1, len(starts)),
    }


def evaluation(watch) -> dict:
    """Share of the time in evaluation, as far as it happened, and lines that record graphs in
    it.
    """
    middle = seconds(watch)["median"]
    with_it = [s for s in watch.steps if s.evaluated]
    extra = sum(max(s.evaluated, s.seconds - middle) for s in with_it)
    graphs = watch.graphs if any(m.training for m in watch.models.values()) or with_it else {}
    trains_so = watch.forwards == 0  # a model in eval mode that is trained: its graphs are wanted
    return {
        "share": extra / max(1e-12, sum(s.seconds for s in watch.steps[1:])),
        "times": len(with_it),
        "graphs": {} if trains_so else dict(graphs),
    }


def memory(watch) -> dict:
    """Bytes of weights, gradients, optimizer state and what autograd saves in a step."""
    weights, gradients, state = {}, {}, {}
    for _, optimizer in watch.all_optimizers():
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            weights[id(p)] = p.nbytes
            gradients[id(p)] = p.nbytes if p.requires_grad else 0
        for values in optimizer.state.values():
            state |= {id(v): v.nbytes for v in tensors_in(values)}
    names = "weights", "gradients", "optimizer"
    sums = {
        name: sum(sizes.values())
        for name, sizes in zip(names, (weights, gradients, state), strict=True)
    }
    return sums | {"activations": watch.counted.saved}


def per_step(counter, watch) -> list:
    """[(call, line, times per step)], the most frequent first."""
    steps = sum(s.kind == COUNTED for s in watch.steps)
    return [(call, line, n / steps) for (call, line), n in counter.most_common(5)] if steps else []


def kept_losses(watch) -> float:
    """The share of the losses' graphs that something keeps: the mean over the last steps, the
    latest two left out.
    """
    backwards = len(watch.counted.losses) / max(1, len(watch.counted.kept))  # per step
    last = [
        max(0.0, alive - 2 * backwards) / (backwards * step)
        for step, alive in enumerate(watch.counted.kept, -1)
        if step >= COUNT // 2 and backwards
    ]
    return statistics.mean(last) if last else 0.0


def optimizers(watch) -> dict:
    """Names of the optimizers that step, and how many steps of optimizers there are in a step of
    the training.
    """
    names = collections.Counter(type(optimizer).__name__ for _, optimizer in watch.all_optimizers())
    tensors = [len(g["params"]) for _, o in watch.all_optimizers() for g in o.param_groups]
    steps = sum(most for most, _ in watch.all_optimizers())
    return {"names": dict(names), "steps": steps, "tensors": sum(tensors)}


def models(watch) -> list:
    """[(name, trained parameters, dtype)] of the modules that the script calls and that have
    parameters.
    """
    rows = []
    for module in watch.models.values():
        own = list(module.parameters())
        if own:
            trained = sum(p.numel() for p in own if p.requires_grad)
            rows.append((type(module).__name__, trained, str(own[0].dtype).removeprefix("torch.")))
    return sorted(rows, key=lambda row: -row[1])


def batch_facts(watch) -> dict:
    """Bytes and shapes of a batch; {} if none was seen."""
    parts = list(tensors_in(watch.batch if watch.batch is not None else _arguments(watch)))
    if not parts:
        return {}
    return {
        "bytes": sum(t.nbytes for t in parts),
        "shapes": [tuple(t.shape) for t in parts],
        "dtypes": [str(t.dtype).removeprefix("torch.") for t in parts],
        "samples": parts[0].shape[0] if parts[0].dim() else 1,
    }


def _arguments(watch):
    return [(call.args, call.kwargs) for call in watch.calls.values() if call]


def _middle(watch, kind):
    steps = [s.seconds for s in watch.steps if s.kind == kind and not s.evaluated and not s.started]
    return statistics.median(steps) if len(steps) >= 4 else None


def own_cost(watch, timed, free) -> float | None:
    """How much longer the training took because it was watched, as a share; None if too few steps
    were seen.
    """
    if not timed or not free:
        return None
    kinds = collections.Counter(s.kind for s in watch.steps)
    share = kinds[TIMED] / max(1, kinds[TIMED] + kinds[FREE])
    between = statistics.median(watch.own)
    return max(0.0, (timed / free - 1) * share + between / free)


# ---- padding


def lengths_of(batch) -> torch.Tensor | None:
    """int64 (n,): tokens per sequence of a batch with a mask, or with rows of whole numbers that
    end in equal ones.

    None where a batch has neither: no padding can be seen in it.
    """
    parts = [
        t
        for t in tensors_in(batch)
        if t.dim() == 2 and t.shape[1] > 1 and not t.is_floating_point()
    ]
    binary = [t.dtype == torch.bool or bool(t.max() == 1 and t.min() == 0) for t in parts]
    for t, is_mask in zip(parts, binary, strict=True):
        if is_mask:
            first, last = t[:, 0].bool(), t[:, -1].bool()
            mask = (
                t.bool() if first.all() else ~t.bool() if last.any() and not first.any() else None
            )
            if mask is not None and bool((mask.sort(1, descending=True).values == mask).all()):
                return mask.sum(1)
    for t in (t for t, is_mask in zip(parts, binary, strict=True) if not is_mask):
        pad = t[:, -1].mode().values
        ends = (t != pad).long() * torch.arange(1, t.shape[1] + 1, device=t.device)
        lengths = ends.max(1).values.clamp(min=1)
        short = (lengths < t.shape[1] - 1).float().mean()
        if (
            short > 0.25
        ):  # one repeated token at the end is chance, several in a quarter of the rows are padding
            return lengths
    return None


def padding_of(batches) -> dict:
    """Cells per token of `batches`, now and if similar lengths were batched; {} where nothing is
    padded.
    """
    pairs = [
        (length.cpu(), width)
        for b in batches
        if (length := lengths_of(b)) is not None
        for width in [_width(b)]
    ]
    if not pairs:
        return {}
    lengths = torch.cat([length for length, _ in pairs])
    cells, tokens = sum(len(length) * width for length, width in pairs), int(lengths.sum())
    if tokens / cells > 1 - MOST_PAD:
        return {}
    size = max(1, len(lengths) // len(pairs))
    ordered = lengths.sort().values.split(size)
    bucketed = sum(len(part) * int(part.max()) for part in ordered)
    tight = sum(len(length) * int(length.max()) for length, _ in pairs)
    return {"waste": cells / tokens, "longest": tight / tokens, "bucketed": bucketed / tokens,
            "sequences": len(lengths), "lengths": lengths}  # fmt: skip


def _width(batch):
    return max(t.shape[1] for t in tensors_in(batch) if t.dim() == 2 and not t.is_floating_point())
