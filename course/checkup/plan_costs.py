"""What a plan costs, and what every plan is made of: seconds of the step, bytes of a shard."""

from collections.abc import Iterable
from dataclasses import dataclass

from course.checkup.cluster import Cluster
from course.checkup.facts import Facts
from course.checkup.phases import BACKWARD, DATA, FORWARD, OPTIMIZER, TRANSFER
from course.checkup.structure import Parameter


@dataclass(frozen=True)
class Row:
    """What a plan takes on a cluster."""

    plan: str
    n_bytes: float  # that each device holds
    seconds: float  # of a step
    fits: bool
    state: float = 0.0  # weights, gradients and optimizer, as part of n_bytes
    sent: float = 0.0  # bytes that a device sends in a step, by a ring
    note: str = ""  # how the model is cut


@dataclass(frozen=True)
class Work:
    """Seconds of a step that a device computes alone."""

    forward: float
    backward: float
    optimizer: float
    loss: float  # the script's own code between forward and backward
    code: float  # the rest of it
    passes: int  # backward passes: more than one if gradients accumulate

    @property
    def seconds(self) -> float:
        """Seconds of all of it."""
        return self.forward + self.backward + self.optimizer + self.loss + self.code


def work(facts: Facts, cluster: Cluster) -> Work:
    """The Work of the watched step on a device of the cluster, without its data."""
    step = facts.seconds.median / cluster.speed
    forward, backward, optimizer, loading = (
        step * facts.phases.share(*names)
        for names in ((FORWARD,), (BACKWARD,), (OPTIMIZER,), (DATA, TRANSFER))
    )
    code = max(0.0, step - forward - backward - optimizer - loading)
    loss = min(code, facts.gaps.get(BACKWARD, 0.0) / cluster.speed)
    passes = max(1, round(facts.backwards))
    return Work(forward, backward, optimizer, loss, code - loss, passes)


def shard_bytes(parameters: Iterable[Parameter], n: int) -> tuple[int, int, int]:
    """(weights, gradients, optimizer) of the rank with the largest shards, as fully_shard cuts."""
    weights = gradients = optimizer = 0
    for each in parameters:
        rows = each.shape[0] if each.shape else 1
        largest = -(-rows // n)
        part = each.n_bytes * largest // max(1, rows)
        weights += part
        gradients += part if each.trained else 0
        optimizer += each.state * largest // max(1, rows) + each.scalars
    return weights, gradients, optimizer


def half_seconds(n_bytes: float, cluster: Cluster) -> float:
    """Seconds of half of a ring's all-reduce of so many bytes: n - 1 messages of 1 / n of them."""
    n = cluster.devices
    return (n - 1) * (cluster.latency + n_bytes / n / cluster.bandwidth)
