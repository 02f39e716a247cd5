"""Probe of exercise shares_memory."""

import numpy as np
import torch

from course.checks.engine import exercise


def _left(answer, n):
    """An array after a look at what shares its memory."""
    array = np.arange(1.0, n)
    answer(torch.from_numpy, array)
    return array


@exercise(forbids=("numpy.shares_memory", "numpy.may_share_memory"))
def shares_memory(answer, device, seed):
    """Whether conversions of arrays and tensors share memory with what they were made of."""
    array = np.arange(1.0, 7 + seed % 4)  # float64
    tensor = torch.arange(1.0, 7 + seed % 4)  # float32
    yield "returns a bool", type(answer(torch.tensor, array)).__name__
    yield "torch.tensor of an array", answer(torch.tensor, array)
    yield "torch.from_numpy", answer(torch.from_numpy, array)
    yield "torch.as_tensor of an array", answer(torch.as_tensor, array)
    yield "torch.as_tensor with another dtype", answer(lambda a: torch.as_tensor(a, dtype=torch.float32), array)
    yield "the array is as it was", _left(answer, 7 + seed % 4)
    yield "clone()", answer(torch.clone, tensor)
    yield "detach()", answer(torch.detach, tensor)
    yield "numpy() of a tensor", answer(lambda t: t.numpy(), tensor)
    yield "to(the dtype that it has)", answer(lambda t: t.to(torch.float32), tensor)
    yield "to(another dtype)", answer(lambda t: t.to(torch.float64), tensor)
    yield "to(device)", answer(lambda t: t.to(device), tensor)
    yield "the first value alone", answer(lambda t: t[:1], tensor)
    yield "the last values alone", answer(lambda t: t[-2:], tensor)
    yield "an array of the last values alone", answer(lambda a: torch.from_numpy(a[-2:]), array)
    yield "every second value", answer(lambda t: t[1::2], tensor)
    square = torch.arange(1.0, 10).view(3, 3)
    yield "contiguous() of a transposed tensor", answer(lambda t: t.T.contiguous(), square)
    yield "contiguous() of a contiguous one", answer(lambda t: t.contiguous(), square)
    yield "a view with another shape", answer(lambda t: t.view(9), square)
    yield "zeros of 8 bits", answer(torch.as_tensor, np.zeros(3, dtype=np.uint8))
    yield "equal values are not shared memory", answer(lambda t: t + 0, tensor)
    calls = []
    answer(lambda t: calls.append(1) or t, tensor)
    yield "the conversion is made once", len(calls)
