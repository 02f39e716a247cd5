"""Probe of exercise batch_picture."""

from typing import Any

import numpy as np
import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import kind_and_device


class _OnGpu(torch.Tensor):
    """A batch that no GPU holds, and that like one on a GPU is an array only after a copy."""

    def cpu(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The same values as an ordinary tensor."""
        return self.as_subclass(torch.Tensor)

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """An ordinary tensor if that is asked of the CPU."""
        places = [*args, kwargs.get("device")]
        plain = self.cpu() if {"cpu", torch.device("cpu")} & {*map(_hashable, places)} else None
        return super().to(*args, **kwargs) if plain is None else plain.to(*args, **kwargs)

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """As a tensor of a GPU does it.  Raises: TypeError, unless `force` asks for a copy."""
        if not force:
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the "
                "tensor to host memory first."
            )
        return self.cpu().numpy()

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        """As `numpy`."""
        return self.numpy()


def _hashable(place: Any) -> Any:
    return place if isinstance(place, (str, torch.device)) else None


@exercise()
def batch_picture(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Batches of smooth and of random images."""
    rng = torch.Generator().manual_seed(seed)
    height = 4 + seed % 3
    width = 9 + seed % 5
    values = torch.rand(6, 3, height, width, generator=rng)
    images = values.to(device)
    picture = answer(images, 3)
    yield "returns a NumPy array (height, width, 3)", kind_and_device(picture)
    yield "its pixels", np.asarray(picture)
    lone = answer(images[:5], 2)
    yield "a last row that is not full", np.asarray(lone)
    yield "fewer images than columns", np.asarray(answer(images[:2], 4))
    on_gpu = answer(values.as_subclass(_OnGpu), 3)
    yield "a batch on a GPU gives the same array", np.asarray(on_gpu)
