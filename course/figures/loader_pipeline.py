"""A pass over a DataLoader as a timeline: does its length follow max(load / workers, step)?"""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure as Picture
from matplotlib.patches import Patch

from course.figures.figure import Figure
from course.text import counted

COLORS = {"load": "C1", "compute": "C0", "wait": "0.85"}
MEANS = {"load": "loads a batch", "compute": "step of the loop", "wait": "loop waits"}


@dataclass(frozen=True)
class Span:
    """What one row does: row 0 is the training loop, row 1 + w is worker w; times in ms."""

    row: int
    kind: str  # "load", "wait" or "compute"
    batch: int
    begin: float
    end: float


def schedule(
    load_ms: Sequence[float],
    step_ms: float,
    workers: int,
    batches: int,
    prefetch: int = 2,
    start_ms: float = 0.0,
) -> tuple[list[Span], float]:
    """(Spans, ms of the whole pass) of a DataLoader whose batch i takes load_ms[i % len(load_ms)].

    Batch i belongs to worker i % workers, is asked for when batch i - prefetch * workers has
    arrived, and is handed to the loop in order, as torch.utils.data.dataloader does it.
    """
    spans: list[Span] = []
    received: list[float] = []
    free = [start_ms] * workers
    loop = 0.0
    for i in range(batches):
        load = load_ms[i % len(load_ms)]
        if workers:
            ahead = i - prefetch * workers
            asked = received[ahead] if ahead >= 0 else 0.0
            begin = max(free[i % workers], asked)
            free[i % workers] = begin + load
            spans.append(Span(1 + i % workers, "load", i, begin, begin + load))
            arrival = max(loop, begin + load)
            if arrival > loop:
                spans.append(Span(0, "wait", i, loop, arrival))
        else:
            arrival = loop + load
            spans.append(Span(0, "load", i, loop, arrival))
        received.append(arrival)
        loop = arrival + step_ms
        spans.append(Span(0, "compute", i, arrival, loop))
    return spans, loop


def pipeline(
    load_ms: Sequence[float],
    step_ms: float,
    workers: int = 2,
    batches: int = 12,
    prefetch: int = 2,
    start_ms: float = 0.0,
) -> Figure:
    """The timeline of a pass, with sliders for all but the measured times.

    Args:
        load_ms: milliseconds that a worker takes for a batch, measured, one or many.
        step_ms: milliseconds of a step of the training loop.
        start_ms: milliseconds until the workers have started.
    """
    spans, total = schedule(load_ms, step_ms, workers, batches, prefetch, start_ms)
    data = {
        "load_ms": [float(value) for value in load_ms],
        "step_ms": float(step_ms),
        "workers": workers,
        "batches": batches,
        "prefetch": prefetch,
        "start_ms": float(start_ms),
    }
    each = total / batches
    waits = max(each - step_ms, 0.0)
    caption = (
        f"{batches} batches, {counted(workers, 'worker')}: {each:,.1f} ms per batch, "
        f"of which the loop waits {waits:,.1f} ms.\n{_formula(load_ms, step_ms, workers)}"
    )
    return Figure("loader_pipeline", data, _picture(spans, workers, caption), caption)


def _formula(load_ms, step_ms, workers):
    """What the formula says of an endless pass whose workers have a core each."""
    load = sum(load_ms) / len(load_ms)
    if workers:
        return f"max(load / workers, step) says {max(load / workers, step_ms):,.1f} ms."
    return f"load + step says {load + step_ms:,.1f} ms."


def _picture(spans: list[Span], workers: int, caption: str) -> Picture:
    picture = Picture(figsize=(7.6, 0.8 + 0.3 * (1 + workers)))
    axes = picture.add_subplot()
    for span in spans:
        axes.barh(
            span.row,
            span.end - span.begin,
            left=span.begin,
            color=COLORS[span.kind],
            ec="w",
            lw=0.5,
        )
    names = ["loop"]
    names += [f"worker {number}" for number in range(workers)]
    axes.set_yticks(range(1 + workers), names)
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title(caption, fontsize=10)
    handles = [Patch(color=COLORS[kind], label=meaning) for kind, meaning in MEANS.items()]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9)
    return picture
