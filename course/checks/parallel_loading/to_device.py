"""Probe of exercise to_device."""

import torch
from torch.utils._pytree import tree_leaves

from course.engine.exercise import Answer, Facts, exercise


class _Sheet:
    """Something that is no tensor and has a method `to` all the same."""

    def to(self, *args, **kwargs):
        return "moved"


def _skeleton(batch):
    """The containers and tensors of `batch` as nested names and shapes."""
    if isinstance(batch, torch.Tensor):
        return f"tensor {tuple(batch.shape)} {batch.dtype}"
    if isinstance(batch, dict):
        return {
            "a": type(batch).__name__,
            "of": [(f"key {key!r}", _skeleton(value)) for key, value in batch.items()],
        }
    if isinstance(batch, (list, tuple)):
        return {"a": type(batch).__name__, "of": [_skeleton(item) for item in batch]}
    return type(batch).__name__


def _others(answer, tensor, device):
    """Of what comes through that is no tensor the types, and whether it is what was given."""
    marker = object()
    given = ["Ada", 3, 2.5, None, True, marker, range(3), {1, 2}, _Sheet()]
    found = tree_leaves(answer((tensor, given, {"name": marker}), device))[1:]
    same = all(a is b for a, b in zip(found, [*given, marker], strict=False))
    return {"types": [type(leaf).__name__ for leaf in found], "same": same}


def _moves(answer, tensors, device):
    """How an answer moves five tensors: one bool a move, True for non_blocking."""
    moves = []

    class Spy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if getattr(func, "__name__", "") in ("to", "cuda", "copy_"):
                moves.append(bool(kwargs.get("non_blocking")) or any(arg is True for arg in args))
            return super().__torch_function__(func, types, args, kwargs)

    spies = [tensor.as_subclass(Spy) for tensor in tensors]
    answer([spies[0], (spies[1], {"b": spies[2]}), spies[3:]], device)
    return moves


@exercise()
def to_device(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Structures of tensors, moved; without a GPU the "meta" device stands for another device."""
    rng = torch.Generator().manual_seed(seed)
    away = torch.device("meta") if device.type == "cpu" else device

    def tensor(*shape):
        return torch.randn(shape, generator=rng)

    def moved(batch, target=away):
        """The skeleton of the answer and the devices of its tensors."""
        result = answer(batch, target)
        devices = {
            leaf.device.type for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)
        }
        return {"structure": _skeleton(result), "devices": sorted(devices)}

    x = tensor(2 + seed % 4, 3)
    yield "a tensor", moved(x)
    yield "a tuple of two tensors", moved((x, tensor(4)))
    yield "a list stays a list", moved([tensor(2), x])
    yield "a dictionary keeps its keys", moved({"images": x, "labels": tensor(5), 3: tensor(1)})
    yield (
        "a list in a tuple in a dictionary",
        moved({"pair": (x, [tensor(2), {"deep": tensor(3)}])}),
    )
    yield "empty containers", moved([(), [], {}])
    yield "other objects come through, as the same objects", _others(answer, x, away)
    yield "a lone string comes through", answer("Ada", away)
    yield "the device by its name", moved([x], str(away))

    given = {"faces": [x, x], "more": {"labels": x}}
    answer(given, away)
    yield (
        "the containers that were given still hold their own tensors",
        all(leaf is x for leaf in tree_leaves(given)),
    )
    here = x.to(device)
    result = answer([here, {"again": here}, here.t()], device)
    yield "on the device already: the values", result
    yield (
        "on the device already: no copy is made",
        [t.data_ptr() == here.data_ptr() for t in tree_leaves(result)],
    )
    moves = _moves(answer, [tensor(3) for _ in range(5)], away)
    yield "every tensor is moved once, with non_blocking=True", moves
    if device.type == "cuda":
        yield "the values, after a copy from pinned memory", answer([x.pin_memory(), x], device)
