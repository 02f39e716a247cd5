"""From facts, predictions and trials to advice: what to change first, what would not help, what was
not seen.

Every rule is a function of the data of a report that yields Advice. A gain is how many times as
fast the training
gets: tried if it could be tried, else predicted, else the bound of the time that is concerned.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from course.checkup.phases import BACKWARD, CODE, COMMUNICATION, DATA, FORWARD, OPTIMIZER, TRANSFER
from course.measure.timing import HELPED, NOT_MEASURED

LEAST = 1.05  # a gain below this is not worth a line in the report
TINY = 2.5  # times faster per sample that a batch four times as large must be
WASTE = 1.15  # times the cells that buckets would leave
TOO_FEW = "too few steps to tell"
LATE = 0.1  # share of a step that one rank may take longer than another before it is worth a line
BEYOND = 1.1  # times its bound that a trial may give by chance
MUCH = 0.25  # share of a step that the script's own code may take before it is worth a line


@dataclass
class Advice:
    """One line of the table."""

    name: str  # of the rule
    text: str
    part: str  # of the course that teaches it
    bound: float  # at most so many times as fast
    tried: str = ""  # what was measured here
    gain: float = 1.0  # what is expected; decides the order
    fault: bool = False  # worth a line even without a gain in time
    later: bool = (
        False  # it trains otherwise, or only points at a line: it comes after what does not
    )


def advice(data: dict) -> list[dict]:
    """The lines of the table, the largest gain first; what is less certain comes last."""
    rows = [
        possible(line) for rule in RULES for line in rule(data) if line.fault or line.gain >= LEAST
    ]
    return [asdict(line) for line in sorted(rows, key=lambda line: (line.later, -line.gain))]


def possible(line: Advice) -> Advice:
    """The line, whose gain is at most its bound: a trial that gave much more was disturbed."""
    if line.bound > 1 and line.gain > BEYOND * line.bound:
        line.tried += f"; more than {line.bound:.2f}x cannot be, so run it again on an idle machine"
        line.gain = line.bound
    return line


def bound(share: float) -> float:
    """How many times as fast a whole gets if a share of it takes no time (Amdahl 1967)."""
    return 1 / max(1e-3, 1 - share)


def share(data, *phases) -> float:
    return sum(data["phases"].get(phase, {}).get("share", 0.0) for phase in phases)


def trial(data, name) -> dict:
    """The trial of that name, or one that says that it was not measured."""
    return data.get("trials", {}).get(name, {"verdict": NOT_MEASURED, "whole": 1.0, "text": ""})


# ---- rules


def workers(data) -> Iterator[Advice]:
    """Other numbers of workers than the loader has."""
    now, waits = data["loader"], share(data, DATA)
    if not now:
        return
    ways = {
        name: t for name, t in data.get("trials", {}).items() if name.startswith("num_workers=")
    }
    better = {name: t for name, t in ways.items() if t["verdict"] == HELPED}
    if better:
        best = max(better, key=lambda name: better[name]["whole"])
        text = f"{best} (now {now['workers']})"
        yield Advice(
            "workers", text, "01/4", bound(waits), ways[best]["text"], better[best]["whole"]
        )
    elif not ways and waits > 0.2 and now["workers"] == 0:
        yield Advice(
            "workers", "give the DataLoader workers (now 0)", "01/4", bound(waits), "", bound(waits)
        )


def transform(data) -> Iterator[Advice]:
    """Items that spend most of their time in one function of the dataset or the loader."""
    items = data.get("items", {})
    waits = share(data, DATA)
    ways = {
        "transform": ("make the transform cheaper, or compute it once", "01/3"),
        "read": ("read items faster", "04/1"),
        "collate": ("make collate_fn cheaper", "01/5"),
    }
    sure = {
        "read": True,
        "transform": items.get("busy", 1.0) > 0.6,
        "collate": items.get("own_collate"),
    }
    for name, (what, where) in ways.items():
        part = items.get("shares", {}).get(name, 0.0)
        if part > 0.6 and waits > 0.2 and sure[name]:
            text = f"{what}: it takes {part:.0%} of the time of an item"
            yield Advice(name, text, where, bound(waits * part), "", bound(waits * part))


def starts(data) -> Iterator[Advice]:
    """Workers that start again in each epoch."""
    now = data["loader"]
    if now and now["workers"] and not now["persistent"] and now["starts"] > 2:
        epoch = now["steps_per_start"] * data["seconds"]["median"]
        gain = bound(now["start_seconds"] / (epoch + now["start_seconds"]))
        text = f"persistent_workers=True: each of {now['starts']} starts took {now['start_seconds']:.2f} s"
        yield Advice("persistent", text, "01/3", gain, "", gain)


def pinned(data) -> Iterator[Advice]:
    """Pinned memory without a GPU."""
    if data["loader"].get("pin_memory") and not data["cuda"]:
        yield Advice("pin_memory", "pin_memory=False: without a GPU it does nothing, or only copies", "01/5", 1.0, "",
                     fault=True)  # fmt: skip
    elif data["loader"] and data["cuda"] and not data["loader"]["pin_memory"]:
        gain = bound(share(data, TRANSFER) / 2)
        yield Advice("pin_memory", "pin_memory=True and .to(device, non_blocking=True)", "01/5",
                     bound(share(data, TRANSFER)), "", gain)  # fmt: skip


def own_code(data) -> Iterator[Advice]:
    """Time between torch's phases: values that the script asks for, or anything else that it
    computes.
    """
    mine = share(data, CODE)
    lines = dict(data["lines"].get(CODE, []))
    frequent = [
        (call, line, n) for call, line, n in data["syncs"] if n >= 3 or (data["cuda"] and n >= 0.5)
    ]
    if frequent and (mine > 0.05 or data["cuda"]):
        concerned = mine * min(1.0, sum(lines.values()) or 1.0)
        where = ", ".join(f"{n:.3g} x {call} at {line}" for call, line, n in frequent[:2])
        yield Advice("syncs", f"ask for values once, at the end: per step {where}", "06/1", bound(concerned), "",
                     bound(concerned))  # fmt: skip
    elif mine > MUCH and lines:
        line, part = next(iter(lines.items()))
        text = f"look at {line}: your own code takes {mine:.0%} of a step, {part:.0%} of that in this line"
        yield Advice("code", text, "06/1", bound(mine), "", bound(mine * part), later=True)


def graphs(data) -> Iterator[Advice]:
    """Evaluation that records graphs."""
    recorded, seen = data["evaluation"]["graphs"], data["evaluation"]["share"]
    if recorded:
        t = trial(data, "inference_mode")
        gain = bound(seen * (1 - 1 / t["step"])) if t["verdict"] == HELPED else 1.0
        where = ", ".join(recorded)
        yield Advice("graphs", f"evaluate in torch.inference_mode(): {where} records graphs that nobody uses", "06/1",
                     bound(seen), t["text"], max(1.0, gain), fault=True)  # fmt: skip


def kept(data) -> Iterator[Advice]:
    """Losses that are kept with their graphs."""
    if data["kept_losses"] > 0.8:
        text = "keep loss.detach() or loss.item(): the losses keep their graphs, so memory grows with each step"
        yield Advice("kept_losses", text, "06/1", 1.0, "", fault=True)


def padding(data) -> Iterator[Advice]:
    """Cells that hold no token."""
    cells = data["padding"]
    if cells and cells["waste"] > WASTE * cells["bucketed"]:
        saved = share(data, FORWARD, BACKWARD) * (1 - cells["bucketed"] / cells["waste"])
        text = (f"batch sequences of similar length: {cells['waste']:.2f} cells per token, "
                f"{cells['bucketed']:.2f} in buckets")  # fmt: skip
        yield Advice("padding", text, "05/3", bound(saved), "", bound(saved))


def communication(data) -> Iterator[Advice]:
    """Barriers in the loop."""
    barriers = [
        (line, n) for call, line, n in data["collectives"] if call == "barrier" and n >= 0.9
    ]
    if barriers:
        line, n = barriers[0]
        text = f"remove the barrier at {line} ({n:.3g} per step): all-reduces make ranks wait for each other already"
        most = bound(share(data, COMMUNICATION))
        yield Advice("barrier", text, "02/3", most, "", most, fault=True)


def late_rank(data) -> Iterator[Advice]:
    """A rank that the others wait for."""
    s = data.get("skew")
    if s and s["late"] > LATE * data["seconds"]["median"]:
        gain = bound(s["late"] / data["seconds"]["median"])
        where = "its own code" if s["phase"] == CODE else f"its phase {s['phase']}"
        at = f" at {s['line']}" if s["line"] else ""
        longer = f"{1000 * s['late']:.3g} ms per step longer than elsewhere"
        text = f"all wait for rank {s['rank']}: {where}{at} takes {longer}"
        yield Advice("skew", text, "02/6", gain, "", gain)


def one_optimizer(data) -> Iterator[Advice]:
    """An optimizer, or a step, per parameter."""
    optimizers = data["optimizers"]
    if optimizers["steps"] >= 4 and optimizers["steps"] >= optimizers["tensors"] / 2:
        t = trial(data, "one optimizer")
        gain = t["whole"] if t["verdict"] != NOT_MEASURED else bound(share(data, OPTIMIZER))
        text = f"one optimizer for all {optimizers['tensors']} parameters (now {optimizers['steps']} steps per batch)"
        yield Advice(
            "optimizers",
            text,
            "06/3",
            bound(share(data, OPTIMIZER)),
            t["text"],
            gain,
            fault=gain > 1,
        )


def cheaper_step(data) -> Iterator[Advice]:
    """Changes of a line or two that were tried on the step."""
    compute = share(data, FORWARD, BACKWARD)
    ways = {
        "bf16 autocast": ("torch.autocast with bfloat16", "06/3", compute),
        "channels_last": ("model and images in channels_last", "06/3", compute),
        "fused optimizer": ("the optimizer with fused=True", "06/3", share(data, OPTIMIZER)),
        "compile": ("torch.compile of the model", "06/3", compute),
    }
    for name, (text, part, concerned) in ways.items():
        t = trial(data, name)
        if t["verdict"] == HELPED:
            yield Advice(name, text, part, bound(concerned), t["text"], t["whole"])


def larger_batch(data) -> Iterator[Advice]:
    """Batches so small that a step costs the same with four times as many samples."""
    t = trial(data, "batch x4")
    if t["verdict"] == HELPED and t["step"] >= TINY and t["whole"] >= 1.5:
        text = f"a larger batch: four times the samples, {4 / t['step']:.2f} times the step (mind the learning rate)"
        most = 4 / (1 + 3 * share(data, DATA))
        yield Advice("batch", text, "03/2", most, t["text"], t["whole"], later=True)


def zeroed(data) -> Iterator[Advice]:
    """Gradients that are filled with zeros."""
    if data["zeroed"] > 0.5:
        yield Advice("zeroed", "zero_grad() without set_to_none=False", "06/1", bound(share(data, OPTIMIZER)), "",
                     fault=True)  # fmt: skip


RULES = (workers, transform, starts, pinned, own_code, graphs, kept, padding, communication, late_rank,
         one_optimizer, cheaper_step, larger_batch, zeroed)  # fmt: skip


# ---- what holds the training back, what would not help, what was not seen


def regime(data: dict) -> str:
    """What holds this training back, in two or three words."""
    if not data["phases"]:
        return TOO_FEW
    tiny = trial(data, "batch x4")
    compute = (
        "overhead-bound" if tiny["verdict"] == HELPED and tiny["step"] >= TINY else "compute-bound"
    )
    syncs = any(n >= 3 or data["cuda"] for _, _, n in data["syncs"])
    waits = (
        min(share(data, BACKWARD), data["skew"]["waits"] / data["seconds"]["median"])
        if data.get("skew")
        else 0.0
    )
    names = {
        "data-bound": share(data, DATA),
        "transfer-bound": share(data, TRANSFER),
        "communication-bound": share(data, COMMUNICATION),
        "sync-bound" if syncs else "bound by the script's own code": share(data, CODE),
        "memory-bound (the optimizer reads and writes all weights)": share(data, OPTIMIZER),
        compute: share(data, FORWARD, BACKWARD) - waits,
        "waiting for a slower rank": waits,
    }
    return max(names, key=names.get)


def would_not_help(data: dict) -> list[str]:
    """Sentences on well-known advice that cannot help here, and why."""
    sentences, advised = [], {line["name"] for line in data["advice"]}
    if not data["phases"]:
        return []
    if data["loader"] and "workers" not in advised and share(data, DATA) < 0.1:
        sentences.append(
            f"More workers: waiting for data takes {share(data, DATA):.1%} of a step (01/4)."
        )
    if share(data, OPTIMIZER) < 0.05:
        sentences.append(
            f"Another optimizer kernel: the optimizer takes {share(data, OPTIMIZER):.1%} of a step (06/3)."
        )
    for name, t in data.get("trials", {}).items():
        if (
            t["verdict"] not in (HELPED, NOT_MEASURED)
            and name not in advised
            and "control" not in name
        ):
            sentences.append(f"{name}: {t['text']}.")
    return sentences


def not_seen(data: dict) -> list[str]:
    """Sentences on what the check-up could not see."""
    sentences = [
        f"{name}: {t['text']}."
        for name, t in data.get("trials", {}).items()
        if t["verdict"] == NOT_MEASURED
    ]
    if not data["loader"]:
        sentences.append("No DataLoader: how data are made is part of the script's own code.")
    if not data["evaluation"]["times"]:
        sentences.append(
            "No evaluation in these steps: no forward pass in eval() or without gradients."
        )
    if data["compiled"]:
        sentences.append("Inside compiled code: what autograd saves there.")
    return sentences
