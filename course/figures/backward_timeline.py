"""The backward pass of a data-parallel step: which bucket size hides the messages?"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from matplotlib.figure import Figure as Picture

from course.errors import CourseError
from course.figures.figure import Figure
from course.text import counted

BITS = 8
MIB = 2**20 / 1e6  # MB
# of torch's DistributedDataParallel; with its `bucket_cap_mb` given, all buckets have that cap
TORCH_BUCKETS = {"bucket_mb": 25 * MIB, "first_mb": 1 * MIB}


@dataclass(frozen=True)
class Layer:
    """What a layer costs: ms of its backward, MB of its gradient, MB that its forward keeps."""

    name: str
    backward_ms: float
    gradient_mb: float
    activation_mb: float = 0.0


@dataclass(frozen=True)
class Message:
    """A bucket on the wire: from when to when (ms), how many MB, the gradients of which layers."""

    names: tuple[str, ...]
    begin: float
    end: float
    megabytes: float


def schedule(
    layers: Sequence[Layer],
    bucket_mb: float,
    gbit: float,
    latency_ms: float,
    first_mb: float | None = None,
) -> tuple[list[Message], float]:
    """(Messages, ms until the last one has arrived) of `layers` in the order of backward.

    A bucket is closed when it holds `bucket_mb` or more, the first one `first_mb` if that is given
    and less, and sent when the wire is free.
    """
    messages: list[Message] = []
    now = wire = bucket = 0.0
    names: list[str] = []
    for number, layer in enumerate(layers, 1):
        now += layer.backward_ms
        bucket += layer.gradient_mb
        names.append(layer.name)
        cap = min(first_mb, bucket_mb) if first_mb and not messages else bucket_mb
        if bucket >= cap or number == len(layers):
            begin = max(now, wire)
            wire = begin + latency_ms + BITS * bucket / gbit
            messages.append(Message(tuple(names), begin, wire, bucket))
            bucket = 0.0
            names = []
    return messages, max(now, wire)


def layers_of_checkup(report: Mapping[str, Any], layers: int = 10) -> list[Layer]:
    """So many equal layers with the backward and the gradients of a check-up.

    Args:
        report: `data` of a report of `course.checkup`, or what its `--json` file holds.

    Raises: CourseError if the check-up saw no backward or no gradients.
    """
    backward = report["phases"].get("backward")
    gradients = report["memory"]["gradients"]
    if not backward or not gradients:
        raise CourseError("the check-up saw no backward with gradients; watch steps that train.")
    milliseconds = 1e3 * backward["share"] * report["seconds"]["median"] / layers
    megabytes = gradients / 1e6 / layers
    return [Layer(f"part {n}", milliseconds, megabytes) for n in range(1, layers + 1)]


def step_timeline(
    layers: Sequence[Layer],
    bucket_mb: float = 25.0,
    gbit: float = 10.0,
    latency_ms: float = 0.1,
    first_mb: float | None = None,
) -> Figure:
    """The timeline of a backward pass, with sliders for the bucket, the wire and the message.

    Args:
        layers: in the order of backward, measured.
        bucket_mb: gradients in a message, at least; see TORCH_BUCKETS.
        gbit: Gbit per second of the wire.
        latency_ms: what a message costs however small it is.
        first_mb: as `bucket_mb`, of the first message, if that is less.
    """
    messages, total = schedule(layers, bucket_mb, gbit, latency_ms, first_mb)
    backward = sum(layer.backward_ms for layer in layers)
    data = {
        "layers": [asdict(layer) for layer in layers],
        "bucket_mb": bucket_mb,
        "gbit": gbit,
        "latency_ms": latency_ms,
        "first_mb": first_mb,
    }
    waits = total - backward
    sent = counted(len(messages), "message")
    caption = (
        f"{sent}: backward takes {backward:,.1f} ms, "
        f"then the step waits {waits:,.1f} ms for the wire."
    )
    return Figure("backward_timeline", data, _picture(layers, messages, total, caption), caption)


def _picture(layers, messages, total, caption) -> Picture:
    picture = Picture(figsize=(7.6, 1.6))
    axes = picture.add_subplot()
    now = 0.0
    for layer in layers:
        axes.barh(0, layer.backward_ms, left=now, color="C0", ec="w", lw=0.5)
        now += layer.backward_ms
    if total > now:
        axes.barh(0, total - now, left=now, color="0.85", ec="w", lw=0.5)
        axes.text((now + total) / 2, 0, "waits", ha="center", va="center", fontsize=9)
    for message in messages:
        axes.barh(1, message.end - message.begin, left=message.begin, color="C2", ec="w", lw=0.5)
    axes.set_yticks([0, 1], ["backward", "messages"])
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title(caption, fontsize=10)
    return picture
