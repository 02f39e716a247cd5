"""Probe of exercise to_device."""

from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import tensors_in

Pair = namedtuple("Pair", "image label")  # default_collate keeps such a type


class _Sheet:
    """Something that has a method `to` but is not a tensor."""

    def to(self, *args: Any, **kwargs: Any) -> str:
        return "moved"


@exercise()
def to_device(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Structures of tensors, moved; without a GPU the "meta" device stands for another device."""
    rng = torch.Generator().manual_seed(seed)
    away = torch.device("meta") if device.type == "cpu" else device

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=rng)

    def moved(batch: Any, target: torch.device | str = away) -> dict[str, Any]:
        """The structure of what the answer gives, and the devices of its tensors."""
        result = answer(batch, target)
        devices = {leaf.device.type for leaf in tensors_in(result)}
        return {"structure": _structure(result), "devices": sorted(devices)}

    x = tensor(2 + seed % 4, 3)
    yield "a tensor", moved(x)
    yield "a tuple of two tensors", moved((x, tensor(4)))
    yield "a list stays a list", moved([tensor(2), x])
    yield "a dictionary keeps its keys", moved({"images": x, "labels": tensor(5), 3: tensor(1)})
    nested = {"pair": (x, [tensor(2), {"deep": tensor(3)}])}
    yield "a list in a tuple in a dictionary", moved(nested)
    yield "a namedtuple stays one", moved(Pair(x, [tensor(2)]))
    yield "an OrderedDict stays one", moved(OrderedDict(b=x, a=tensor(2)))
    counted = defaultdict(list, {"images": x})
    yield "a defaultdict stays one", moved(counted)
    yield "empty containers", moved([(), [], {}])
    others = tried(_others(answer, x, away), len(x))
    yield "other objects come through, as the same objects", others
    yield "a lone string comes through", answer("Ada", away)
    yield "the device by its name", moved([x], str(away))

    given = {"faces": [x, x], "more": {"labels": x}}
    answer(given, away)
    same = all(leaf is x for leaf in tree_leaves(given))
    yield "the containers that were given still hold their own tensors", tried(same, len(x))
    here = x.to(device)
    result = answer([here, {"again": here}, here.t()], device)
    yield "on the device already: the values", result
    same_memory = [leaf.data_ptr() == here.data_ptr() for leaf in tree_leaves(result)]
    yield "on the device already: no copy is made", tried(same_memory, len(x))
    moves = _moves(answer, [tensor(3) for _ in range(5 + seed % 4)], away)
    yield "every tensor is moved once, with non_blocking=True", moves
    if device.type == "cuda":
        yield "the values, after a copy from pinned memory", answer([x.pin_memory(), x], device)


def _structure(batch: Any) -> Any:
    """The containers and tensors of `batch` as nested names and shapes."""
    if isinstance(batch, torch.Tensor):
        return f"tensor {tuple(batch.shape)} {batch.dtype}"
    if isinstance(batch, dict):
        items = [(f"key {key!r}", _structure(value)) for key, value in batch.items()]
        return {"a": type(batch).__name__, "of": items}
    if isinstance(batch, (list, tuple)):
        return {"a": type(batch).__name__, "of": list(map(_structure, batch))}
    return type(batch).__name__


def _others(answer: Answer, tensor: torch.Tensor, device: torch.device) -> dict[str, Any]:
    """Return the types of all leaves but tensors, and whether these are the objects given."""
    marker = object()
    given = ["Ada", 3, 2.5, None, True, marker, range(3), {1, 2}, _Sheet()]
    found = tree_leaves(answer((tensor, given, {"name": marker}), device))[1:]
    same = all(a is b for a, b in zip(found, [*given, marker], strict=False))
    return {"types": [type(leaf).__name__ for leaf in found], "same": same}


def _moves(answer: Answer, tensors: Sequence[torch.Tensor], device: torch.device) -> list[bool]:
    """How an answer moves three or more tensors: for each move, whether it is non_blocking."""
    moves = []

    class Spy(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
        ) -> Any:
            kwargs = kwargs or {}
            if getattr(func, "__name__", "") in ("to", "cuda", "copy_"):
                moves.append(bool(kwargs.get("non_blocking")) or any(arg is True for arg in args))
            return super().__torch_function__(func, types, args, kwargs)

    first, second, third, *others = [tensor.as_subclass(Spy) for tensor in tensors]
    answer([first, (second, {"b": third}), others], device)
    return moves
