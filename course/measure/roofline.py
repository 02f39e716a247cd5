"""A roofline of a training step: an operation's arithmetic, bytes and time -> *a dot below a roof*.

An operation cannot compute faster than the machine's arithmetic, nor faster than its bytes come:
its rate is at most min(peak, intensity * bandwidth), where intensity is arithmetic per byte. Peak
and bandwidth are measured: the first is a large matrix product, the second a large addition.

Arithmetic of products is counted by torch's formulas (torch.utils.flop_counter); of any other
operation, one per number that it returns. Bytes are those of its tensors, each read or written
once. Source: Williams, Waterman and Patterson 2009, "Roofline: an insightful visual performance
model".
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from course.measure.timing import now

RUNS = 5
ROOF_RUNS = 15  # a program next to this one lowers the roof
# attention on a CPU, which torch's table of formulas lacks
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
Step = Callable[[], object]


@dataclass
class Operation:
    """All calls of one operation in a step: arithmetic, bytes, and the seconds they took."""

    name: str
    flops: float = 0.0
    n_bytes: float = 0.0
    seconds: float = 0.0
    calls: int = 0
    is_product: bool = False  # torch has a formula for its arithmetic

    @property
    def intensity(self) -> float:
        """Arithmetic per byte."""
        return self.flops / self.n_bytes

    @property
    def rate(self) -> float:
        """Arithmetic per second."""
        return self.flops / self.seconds


@dataclass(frozen=True)
class Roof:
    """What the machine reaches at best: arithmetic per second and bytes per second."""

    flops: float
    n_bytes: float

    @property
    def ridge(self) -> float:
        """The intensity from which on arithmetic is the limit."""
        return self.flops / self.n_bytes

    def at(self, intensity: float) -> float:
        """The highest rate of an operation of this intensity."""
        return min(self.flops, intensity * self.n_bytes)


def roof(width: int, numbers: int, device: torch.device) -> Roof:
    """The Roof of this machine in float32: the best product of matrices, and a sum of `numbers`.

    The products have matrices of `width`, a half and a quarter of it: the largest need not be best.
    """
    x, y = (torch.randn(numbers, device=device) for _ in range(2))
    total = torch.empty_like(x)
    move = _fastest(lambda: torch.add(x, y, out=total), device)
    return Roof(peak(width, device), 3 * x.nbytes / move)


def peak(width: int, device: torch.device, dtype: torch.dtype = torch.float32) -> float:
    """Arithmetic per second of the best product of matrices of `width`, a half or a quarter."""
    return max(_product_rate(each, device, dtype) for each in (width, width // 2, width // 4))


def _product_rate(width: int, device: torch.device, dtype: torch.dtype) -> float:
    """Arithmetic per second of a product of square matrices."""
    left, right = (torch.randn(width, width, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    return 2 * width**3 / _fastest(lambda: torch.mm(left, right, out=product), device)


def _fastest(call: Step, device: torch.device) -> float:
    """The least seconds of ROOF_RUNS calls: a roof is what the machine can do."""
    call()
    taken = []
    for _ in range(ROOF_RUNS):
        begin = now(device)
        call()
        taken.append(now(device) - begin)
    return min(taken)


def operations(step: Step, device: torch.device) -> list[Operation]:
    """The Operations of a step, slowest first; each call ends before the next begins.

    Seconds are the least of RUNS steps, as those of the roof. Operations that move and compute
    nothing, such as views, are left out. Noting takes time, so very short operations seem longer.
    """
    step()
    runs = []
    for _ in range(RUNS):
        with _Noting(device) as noting:
            step()
        runs.append(noting.found)
    merged = []
    for name, first in runs[0].items():
        first.seconds = min(run[name].seconds for run in runs if name in run)
        merged.append(first)
    return sorted(merged, key=lambda operation: -operation.seconds)


def product_flops(found: Iterable[Operation]) -> float:
    """The arithmetic of a step's products alone, what a model FLOPs utilisation counts."""
    return sum(operation.flops for operation in found if operation.is_product)


def products_of(step: Step) -> float:
    """The arithmetic of the products of one step, counted while it runs."""
    with _Counting() as counting:
        step()
    return counting.flops


class _Counting(TorchDispatchMode):
    """Adds up the arithmetic of products."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self.flops += _product(func, args, kwargs, out) or 0.0
        return out


@dataclass
class _Noting(TorchDispatchMode):
    """Adds up what each operation computes, moves and takes."""

    device: torch.device
    found: dict[str, Operation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        begin = now(self.device)
        out = func(*args, **kwargs)
        seconds = now(self.device) - begin
        if not _moves_nothing(func):
            self._note(func, args, kwargs, out, seconds)
        return out

    def _note(self, func, args, kwargs, out, seconds):
        results = _tensors(out)
        if not results:
            return  # it only tells something about a tensor
        name = func._overloadpacket.__name__
        note = self.found.setdefault(name, Operation(name))
        flops = _product(func, args, kwargs, out)
        note.is_product = flops is not None
        note.flops += sum(each.numel() for each in results) if flops is None else flops
        note.n_bytes += sum(each.nbytes for each in [*_tensors((args, kwargs)), *results])
        note.seconds += seconds
        note.calls += 1


def _moves_nothing(func):
    """Whether it returns a view of what it got, or only asks for memory."""
    is_view = any(
        returned.alias_info is not None and not returned.alias_info.is_write
        for returned in func._schema.returns
    )
    return is_view or func._overloadpacket.__name__ in ("detach", "_unsafe_view", "empty", "t")


def _product(func, args, kwargs, out):
    """The arithmetic of a product by torch's formula; None if the operation is none."""
    name = func._overloadpacket.__name__
    if name == _ATTENTION:
        return sdpa_flop_count(args[0].shape, args[1].shape, args[2].shape)
    if name == f"{_ATTENTION}_backward":
        return sdpa_backward_flop_count(*(args[i].shape for i in range(4)))
    formula = flop_registry.get(func._overloadpacket)
    return None if formula is None else formula(*args, **kwargs, out_val=out)


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def gpu_util() -> float | None:
    """The share of the last second or less in which a kernel ran, as nvidia-smi shows it.

    None without nvidia-ml-py, which torch asks for it.
    """
    try:
        return torch.cuda.utilization() / 100
    except ModuleNotFoundError:
        return None
